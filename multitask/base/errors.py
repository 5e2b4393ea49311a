"""How a run ends early: the errors of a training, and signals."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TrainingError(Exception):
    """Training cannot continue, e.g. because the loss is not finite. One line of message; the exit code is 1."""


class Stopped(Exception):  # noqa: N818 - a request from outside, not an error
    """`on_evaluation` asked a training to stop. Its state is saved, and the same run goes on from it."""


class Interrupted(Exception):  # noqa: N818 - a request from outside, not an error
    """A signal asked the run to stop. Its state is saved, and the same command resumes it.

    The exit code is 128 plus the signal's number, as shells expect.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__("stopped; the state is saved. Run the same command again to continue")
        self.signal_number = signal_number


class Terminated(BaseException):
    """SIGTERM reached a command that saves no state: it removes what is half-written, then the signal ends it."""


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT within the block instead of stopping; the same signal again stops as usual."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread can handle signals
        return

    def note(number: int, _frame: object) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_at_once(number: int, _frame: object) -> None:
    """End the process, as a handler while settings are built: pydantic ignores some exceptions, and converts others."""
    os._exit(128 + number)


def raise_interrupts() -> None:
    """From now on, Ctrl-C raises KeyboardInterrupt in place of `exit_at_once`, and SIGTERM `Terminated`."""

    def terminate(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    if signal.getsignal(signal.SIGINT) is exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, terminate)
