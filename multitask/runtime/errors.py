"""Errors of a run. Wrong input raises `minbert.errors.InputError` instead."""


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
