"""A scheduler of your own: how tasks share the training steps is one class.

Run from the checkout: python examples/own_scheduler.py
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from multitask import FinetuneConfig, finetune
from multitask.base.options import RunOptions
from multitask.data.examples import RowNumbers
from multitask.training.schedulers.base import Scheduler, register
from multitask.training.source import Batch, Update

START, DATA = "all-minilm-l6-v2", Path("data/sample")


@register("easy_first")
class EasyFirst(Scheduler):
    """In the first half of an epoch's steps the first task alone, then one task a step in turn."""

    def arrange(self, batches: Mapping[str, Sequence[RowNumbers]], order: np.random.Generator) -> list[Update]:
        first, *others = batches
        alone = [(Batch(first, rows),) for rows in batches[first]]
        in_turn = [
            (Batch(name, rows),)
            for step in zip(*(batches[n] for n in others), strict=True)
            for name, rows in zip(others, step, strict=True)
        ]
        return [*alone, *in_turn]


def main(data: Path = DATA, start: str = START, runs: Path = Path("runs"), rows: int = 320) -> dict[str, float]:
    """Train with the average of the tasks' losses and with the scheduler above; return the overall score of each."""
    scores = {}
    for name in ("average", "easy_first"):
        config = FinetuneConfig(scheduler=name, epochs=1, epoch_size=rows)
        run = finetune(start, data, config, RunOptions(runs=runs, name=name))
        scores[name] = run.history()[-1]["scores"]["overall"]
    for name, value in scores.items():
        print(f"{name:15}{value:.4f}")
    return scores


if __name__ == "__main__":
    main()
