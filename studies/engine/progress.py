"""What a person sees of a grid while it is computed: one live line on a terminal, a line for each stage in a log."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any, Self

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from studies.engine.recipes import Node

logger = logging.getLogger("multitask")

SECONDS_BETWEEN_REFRESHES = 1.0


class GridProgress:
    """Reports the stages of a grid as they begin and end. A context, which ends with the grid.

    The time that is left follows from the stages that ended here: a stage takes as long as others of its kind did, or
    as long as all did on average where none of its kind has ended. `live` is whether to show the live line on a
    terminal; stages that are computed in this process show bars of their own.
    """

    def __init__(self, stages: Iterable[Node], name: Callable[[Node], str], live: bool = True) -> None:
        self.open = dict.fromkeys(stages)
        self.total = len(self.open)
        self.name = name
        self.running: dict[Node, float] = {}  # when each began
        self.took: dict[str, list[float]] = defaultdict(list)  # seconds, by the stage's name
        self.at_once = 1
        self.began = time.monotonic()
        self.over = threading.Event()
        # None: on a terminal only.
        self.bar: tqdm[Any] = tqdm(total=self.total, bar_format="{desc}", disable=None if live and self.total else True)
        self.redirected = logging_redirect_tqdm([logging.getLogger()])

    def __enter__(self) -> Self:
        if not self.bar.disable:
            self.redirected.__enter__()
            threading.Thread(target=self._refresh, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.bar.close()
        if not self.bar.disable:
            self.redirected.__exit__(None, None, None)

    def began_stage(self, node: Node) -> None:
        """Count a stage as running."""
        self.running[node] = time.monotonic()
        self.at_once = max(self.at_once, len(self.running))
        self._show()

    def ended_stage(self, node: Node, error: str | None = None) -> None:
        """Count a running stage as over, and say so in a log; `error` says why it failed."""
        seconds = time.monotonic() - self.running.pop(node)
        self.took[node.stage].append(seconds)
        self.left_out(node)
        if error is not None or self.bar.disable:
            result = f"{seconds:.0f} s" if error is None else f"failed: {error}"
            logger.info("%s %s: %s (%s)", self._place(), self.name(node), result, self._times())

    def left_out(self, node: Node) -> None:
        """Count a stage as over that is not computed here: another grid was faster, or what it starts from failed."""
        self.open.pop(node, None)
        self._show()

    def seconds_left(self) -> float | None:
        """Until all stages are over; None before the first one is."""
        if not self.took:
            return None
        usual = fmean(seconds for took in self.took.values() for seconds in took)
        now = time.monotonic()
        left = 0.0
        for node in list(self.open):  # the live line is refreshed by a thread of its own
            expected = fmean(self.took[node.stage]) if node.stage in self.took else usual
            left += max(expected - (now - self.running.get(node, now)), 0.0)
        return left / self.at_once

    def _place(self) -> str:
        return f"[{self.total - len(self.open)}/{self.total}]"

    def _times(self) -> str:
        left = self.seconds_left()
        return f"{_clock(time.monotonic() - self.began)} so far" + ("" if left is None else f", {_clock(left)} left")

    def _show(self) -> None:
        if not self.bar.disable:
            now = "; ".join(map(self.name, list(self.running)))
            self.bar.set_description_str(f"{self._place()} {self._times()}: {now}"[: self.bar.ncols or 10_000])

    def _refresh(self) -> None:
        while not self.over.wait(SECONDS_BETWEEN_REFRESHES):
            self._show()


def _clock(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))
