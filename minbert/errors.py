"""The exception for wrong input, as opposed to a wrong program."""


class InputError(Exception):
    """Wrong input from outside: a file, a name, an option.

    The message is one line that says what is wrong, where (file and row), what was expected and how to fix it.
    The command line prints it without a traceback and exits with code 2.
    """
