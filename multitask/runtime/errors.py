"""Errors of a run itself; wrong input is `minbert.errors.InputError`."""


class TrainingError(Exception):
    """Training cannot go on, e.g. a loss that is not finite. The message is one line; the exit code is 1."""


class Interrupted(Exception):  # noqa: N818 - an order from outside, not an error
    """A signal asked the run to stop; its state is saved and the same command resumes it.

    Args:
        signal_number: the exit code is 128 plus this number, as shells expect.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__("stopped; the state is saved: run the same command again to go on")
        self.signal_number = signal_number
