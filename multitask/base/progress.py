"""What a person sees of something that takes long: a bar on a terminal, plain lines in logs and notebooks."""

import logging
import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, Self

from tqdm import tqdm

from multitask.base import distributed, logger

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BEFORE_BAR = 2.0
"""What ends sooner has no bar of rows."""

OnRows = Callable[[int], None]
"""Is told how many more rows a pass has computed."""


def no_progress(_rows: int) -> None:
    """Show no progress."""


class ProgressBar:
    """A bar of the first rank; where standard error is no terminal, lines instead. A context, which closes the bar."""

    def __init__(self, **options: Any) -> None:
        self.began = self.told = time.monotonic()
        # None: a bar on a terminal only.
        self.bar: tqdm[Any] = tqdm(disable=None if distributed.is_first() else True, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def move(self, count: float, line: Callable[[], str]) -> None:
        """Move the bar; without one, tell the line if none was told for ten seconds."""
        self.bar.update(count)
        if self.bar.disable and time.monotonic() - self.told > SECONDS_BETWEEN_LINES:
            self.tell(line())

    def tell(self, line: str) -> None:
        """Log a line, or print it where nobody has set up logging, as in a notebook."""
        self.told = time.monotonic()
        self.bar.clear()
        if logger.isEnabledFor(logging.INFO) or logger.level:
            logger.info(line)
        elif distributed.is_first():
            print(line, file=sys.stderr, flush=True)
        self.bar.refresh()


class RowsDone(ProgressBar):
    """How many rows are done, of so many if this is known. Nothing is shown of what ends soon.

    Rows that are computed in several passes are done after the last one.
    """

    def __init__(self, total: int | None = None, unit: str = "rows", passes: int = 1) -> None:
        form = "{desc}" if total is None else "{desc} |{bar}|"
        super().__init__(total=total, bar_format=form, delay=SECONDS_BEFORE_BAR)
        self.total = total
        self.unit = unit
        self.passes = passes
        self.done = 0.0
        self.lock = Lock()  # several threads add rows

    def add(self, rows: int) -> None:
        """Report that a pass has computed these rows, too."""
        with self.lock:
            self.done += rows / self.passes
            self.bar.set_description_str(self._line(), refresh=False)
            self.move(rows / self.passes, self._line)

    def _line(self) -> str:
        speed = self.done / max(time.monotonic() - self.began, 1e-9)
        total, left = "", ""
        if self.total is not None:
            total, left = f" of {self.total:,}", f", {time_left((self.total - self.done) / speed)}"
        return f"{self.done:,.0f}{total} {self.unit}, {speed:,.1f} {self.unit}/s{left}"


def time_left(seconds: float) -> str:
    """`3 min 05 s left`."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    return f"{minutes} min {rest:02} s left"
