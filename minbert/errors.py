"""The exceptions for what is wrong outside of the program: the input, or the disk."""


class InputError(Exception):
    """Wrong input from outside: a file, a name, an option.

    The message is one line that says what is wrong, where (file and row), what was expected and how to fix it.
    The command line prints it without a traceback and exits with code 2.
    """


class OtherArchitectureError(InputError):
    """A `config.json` that describes an encoder that this project does not compute."""


class DiskFullError(OSError):
    """No space left on a disk. The message says what could not be written and how much is free.

    Whatever was complete before is complete still. The command line prints one line and exits with code 1.
    """
