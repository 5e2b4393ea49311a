"""TensorBoard event files of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minbert.errors import InputError


@contextmanager
def tensorboard_log(folder: Path | None) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """A function that logs a step and its line of metrics.jsonl; without a folder, the function does nothing.

    Raises:
        InputError: the optional package tensorboard is not installed.
    """
    if folder is None:
        yield lambda step, record: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "--tensorboard needs the package tensorboard; install it with: pip install tensorboard"
        ) from None
    with SummaryWriter(str(folder / "tensorboard")) as writer:

        def log(step: int, record: dict[str, Any]) -> None:
            for group in ("training", "scores"):
                for name, value in record[group].items():
                    writer.add_scalar(f"{group}/{name}", value, step)

        yield log
