"""`multitask`, also as `python -m multitask`."""

import signal
import sys

from multitask.base.errors import Terminated, exit_at_once


def run() -> int:
    """Run the command line; returns the exit code."""
    signal.signal(signal.SIGINT, exit_at_once)
    from multitask.cli.main import main

    try:
        code = main()
    except Terminated:
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the code stands while Python shuts down
    return code


if __name__ == "__main__":
    sys.exit(run())
