# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A loss of your own
#
# You have an idea for a contrastive loss. This tutorial writes it down, looks at its gradient, trains with it, and compares it with InfoNCE.
# It takes a minute on a laptop. [Your own CSV](own_csv.ipynb) explains how to type along. You should know what a contrastive loss is;
# [The three components of a gradient](../concepts/gradient-components.md) explains the measures.
#
# ## The loss
#
# InfoNCE compares the positive with all negatives. Our idea: compare it with the mean of the `k` hardest negatives only, and stop when it is
# closer by a margin. A loss is a class whose `loss` looks like its formula. `pairs.u` are the anchors and `pairs.v` the positives, as unit
# vectors `[pairs, dim]`. `pairs.excluded` is true where a column is not a negative of a row.

# %%
from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn.functional import relu

from multitask.objectives.base import Objective, UnitPairs, register


@register("top_k")
class TopK(Objective):
    """mean_i [mean of the k largest s_ij (j≠i) − s_ii + m]_+."""

    margin: Annotated[float, Field(ge=0, le=2)] = 0.5
    """Margin m between two cosines."""
    k: Annotated[int, Field(ge=1, le=64)] = 4
    """Number of hardest negatives."""

    def loss(self, pairs: UnitPairs) -> Tensor:
        cosines = (pairs.u @ pairs.v.T).masked_fill(pairs.excluded, -1)  # [pairs, pairs]
        hardest = cosines.topk(min(self.k, len(cosines) - 1)).values  # [pairs, k]
        return relu(hardest.mean(-1) - pairs.positive + self.margin).mean()


# %% [markdown]
# `register` makes it known by its name. `Field` gives a parameter's range, so a value out of range is refused in one line.
#
# ## Its gradient
#
# `probe` splits the gradient of each anchor into a pull on the positive and pushes from the negatives. We compare the losses on 64 sentences
# of the sample, in two views that differ by dropout. The same dropout is drawn for every loss.

# %%
import torch

from multitask import SentenceEncoder
from multitask.evaluation.gradient_probe import probe
from multitask.objectives import build_objective

encoder = SentenceEncoder.load("all-minilm-l6-v2", keep_layers=True)  # for their dropout
sentences = open("data/sample/sentences.txt", encoding="utf-8").read().splitlines()[:64]
torch.manual_seed(0)
encoder.model.train()  # with dropout
anchors, positives = (encoder.encode(sentences, convert_to_tensor=True) for _ in range(2))  # [64, 384]

losses = {name: build_objective(name) for name in ("infonce", "mpt", "top_k")}
probed = {name: probe(loss, anchors, positives) for name, loss in losses.items()}
print(f"{'':26}" + "".join(f"{name:>10}" for name in losses))
for measure in ("dissipation", "dissipated anchors", "ratio", "hardest negative weight", "residual"):
    print(f"{measure:26}" + "".join(f"{of.summary()[measure]:10.3f}" for of in probed.values()))

# %% [markdown]
# How to read it:
#
# - `dissipation` is the part of the gradient that is left, 0 to 1. Little is left, because this encoder can already tell two views of a
#   sentence from other sentences. Most of it is left with our loss. `dissipated anchors` is the share of sentences that have nothing left at all.
# - `ratio` is 1 for all three: they pull as much as they push.
# - `hardest negative weight`: MPT pushes a single negative. Ours shares the push among four, so the hardest one has a quarter.
# - `residual` is the part of the gradient that the split does not explain. It is zero, so the other rows tell all.

# %%
# Dissipation of each anchor against the gap between its positive and its hardest negative
from matplotlib import pyplot as plt

with torch.no_grad():
    u, v = (torch.nn.functional.normalize(view) for view in (anchors, positives))
    cosines = (u @ v.T).fill_diagonal_(-1)
gap = (u * v).sum(-1) - cosines.amax(-1)
figure, axes = plt.subplots(figsize=(5, 3))
for name, of in probed.items():
    axes.plot(gap, of.dissipation, ".", label=name)
axes.set(xlabel="cosine of the positive − cosine of the hardest negative", ylabel="dissipation")
axes.legend();
# %% [markdown]
# Each point is one sentence. A hinge is either open (1) or closed (0). That of MPT is open where the gap is below its margin, 0.23. Ours also
# depends on the next three negatives, so the gap to the hardest one alone does not decide it. InfoNCE fades out.
#
# ## Train with it
#
# `pretrain` trains the encoder on dropout views of 512 sentences: 8 steps of 64. That is far too little for a verdict on a loss, and enough
# to see it work. The score is the Spearman correlation on the sample's similarity dev set.

# %%
from pathlib import Path

from multitask.training.settings import ObjectiveConfig
from multitask.base.options import RunOptions
from multitask.stages.pretrain import PretrainConfig, pretrain
from multitask.training.settings import OptimizerConfig

runs = {}
for name in losses:
    config = PretrainConfig(
        objective=ObjectiveConfig.of(name),
        train_limit=512,
        batch_size=64,
        max_length=32,
        evaluate_every=4,
        optimizer=OptimizerConfig(learning_rate=5e-5),
    )
    runs[name] = pretrain("all-minilm-l6-v2", Path("data/sample"), config, RunOptions(name=name))
    scores = [line["scores"]["similarity"] for line in runs[name].history()]
    print(f"{name:8}", " ".join(f"{score:.4f}" for score in scores))

# %% [markdown]
# The first number is the score after 4 steps, the second after 8. The differences are small, and there is only one seed. Nothing follows from them
# yet. To find out whether your loss is better:
#
# 1. Move the class into a file in `multitask/objectives/`. It is found by itself, so `multitask pretrain --objective top_k:k=8` works, and so
#    do `--help-objective top_k` and the fields of `multitask explore`.
# 2. Write its value again as a slow loop in `tests/multitask/objectives/loops.py`. The tests then compare the two, in value and in gradient.
# 3. Add rows to a table of a [study](../studies/index.md), and run it on real data with three seeds or more. The report tests the differences.
