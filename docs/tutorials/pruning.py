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
# # Pruning and what it costs
#
# An encoder has attention heads and neurons that hardly matter. Without them it is smaller and faster. This tutorial removes more and more
# of them, and measures what is gained and what is lost. It takes a minute on a laptop. [Your own CSV](own_csv.ipynb) explains how to type along.
#
# ## Remove a third
#
# `prune` scores all units on a few rows of the similarity task, and removes those with the smallest effect on the loss.

# %%
# !multitask prune --share 0.3 --train-limit 250 --name third

# %% [markdown]
# The table shows how many heads and neurons each layer keeps. The weights shrink less than by 30%, because half of this encoder's parameters
# are word embeddings, which stay.
#
# ## More and more
#
# Now from Python, at several shares: by the score, and at random for comparison.

# %%
from pathlib import Path

from multitask.base.options import RunOptions
from multitask.stages.prune import PruneConfig, prune

DATA = Path("data/sample")
shares = (0.2, 0.5, 0.8)
pruned = {}
for score in ("align_uniform", "random"):
    for share in shares:
        config = PruneConfig(share=share, score=score, train_limit=250)
        pruned[score, share] = prune("all-minilm-l6-v2", DATA, config, RunOptions()).folder

# %% [markdown]
# The quality of the embeddings: the Spearman correlation of their cosines with the labels of the similarity dev set.

# %%
from scipy.stats import spearmanr

from multitask import SentenceEncoder, load_tasks
from multitask.evaluation.embeddings import cosines
from multitask.tasks.read_examples import load_rows

rows = load_rows(load_tasks(DATA)["similarity"], "dev")
first, second = (list(column) for column in rows.sentences)


def quality(model: str | Path) -> float:
    encoder = SentenceEncoder.load(model)
    return spearmanr(cosines(encoder.encode(first), encoder.encode(second)), rows.labels).statistic


whole = quality("all-minilm-l6-v2")
found = {key: quality(folder) for key, folder in pruned.items()}
print(f"nothing removed: {whole:.3f}")
for share in shares:
    print(f"{share:.0%} removed: {found['align_uniform', share]:.3f} by score, {found['random', share]:.3f} at random")

# %% [markdown]
# ## Size and speed
#
# Speed is measured on 500 sentences, the best of three times. It depends on your machine and on what else runs on it.

# %%
# Quality and speed by the share of removed units
from time import perf_counter

from matplotlib import pyplot as plt

sentences = open("data/sample/sentences.txt", encoding="utf-8").read().splitlines()[:500]


def seconds(model: str | Path) -> float:
    encoder = SentenceEncoder.load(model)
    times = []
    for _ in range(3):
        start = perf_counter()
        encoder.encode(sentences)
        times.append(perf_counter() - start)
    return min(times)


before = seconds("all-minilm-l6-v2")
speedups = [before / seconds(pruned["align_uniform", share]) for share in shares]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
for score, label in (("align_uniform", "by score"), ("random", "at random")):
    left.plot([0, *shares], [whole, *(found[score, share] for share in shares)], "o-", label=label)
left.set(xlabel="share removed", ylabel="Spearman correlation")
left.legend()
right.plot([0, *shares], [1, *speedups], "o-")
right.set(xlabel="share removed", ylabel="times as fast")
figure.tight_layout()

# %% [markdown]
# By the score, half of the units cost little here. At random, the same share costs much more. This is one draw, on data that a script
# composed. [SparseCSE](../studies/sparse-cse.md) has the comparison on real data, with five seeds.
#
# ## Train the rest
#
# What is left can be trained like any encoder: here a few contrastive steps after half of the units were removed.

# %%
from multitask.stages.pretrain import PretrainConfig, pretrain
from multitask.training.settings import OptimizerConfig

optimizer = OptimizerConfig(learning_rate=3e-5)
config = PretrainConfig(train_limit=256, batch_size=64, max_length=32, optimizer=optimizer)
trained = pretrain(str(pruned["align_uniform", 0.5]), DATA, config, RunOptions())
print(f"{found['align_uniform', 0.5]:.3f} before, {quality(trained.folder):.3f} after")

# %% [markdown]
# - The pruned model is a folder like any other: `embed`, `finetune`, `evaluate` and `serve` take it.
# - transformers has no layers of different sizes. `export` therefore writes a pruned encoder as ONNX only.
# - [Prune](../how-to/prune.md) explains the scores, several rounds, and rewinding to earlier weights.
