"""Record stop signals, so that a training can save its state before it stops; and stop at once before it starts."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
    """From now on, Ctrl-C raises KeyboardInterrupt in place of `exit_at_once`."""
    if signal.getsignal(signal.SIGINT) is exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
