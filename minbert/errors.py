"""The one exception that means "the input is wrong", as opposed to "the program is wrong"."""


class InputError(Exception):
    """Bad input from outside: a file, a name, an option.

    The message is one line that says what is wrong, where (file and row), what was expected and how to mend it.
    The command line prints it without a traceback and exits with code 2.
    """
