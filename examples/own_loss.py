"""A contrastive loss of your own in `pretrain`: one class that looks like its formula.

Run from the checkout: python examples/own_loss.py
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from multitask.base.options import RunOptions
from multitask.objectives.base import Objective, UnitPairs, register
from multitask.stages.pretrain import pretrain
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.settings import ObjectiveConfig

START, DATA = "all-minilm-l6-v2", Path("data/sample")


@register("softplus_mean")
class SoftplusMean(Objective):
    """mean_i mean_{j≠i} log(1 + e^{(s_ij − s_ii)/τ}): every negative counts on its own, not through a softmax."""

    temperature: Annotated[float, Field(ge=1e-3)] = 0.1
    """Temperature τ of the differences of cosines."""

    def loss(self, pairs: UnitPairs) -> Tensor:
        gaps = (pairs.u @ pairs.v.T - pairs.positive[:, None]) / self.temperature  # [pairs, pairs]
        losses = softplus(gaps).masked_fill(pairs.excluded, 0)
        return losses.sum() / (~pairs.excluded).sum().clamp_min(1)


def main(data: Path = DATA, start: str = START, runs: Path = Path("runs"), rows: int = 256) -> dict[str, float]:
    """Train with InfoNCE and with the loss above; return the Spearman correlation on similarity's dev set of each."""
    scores = {}
    for name in ("infonce", "softplus_mean"):
        config = PretrainConfig(objective=ObjectiveConfig.of(name), train_limit=rows, batch_size=32)
        run = pretrain(start, data, config, RunOptions(runs=runs, name=name))
        scores[name] = run.history()[-1]["scores"]["similarity"]
    for name, value in scores.items():
        print(f"{name:15}{value:.4f}")
    return scores


if __name__ == "__main__":
    main()
