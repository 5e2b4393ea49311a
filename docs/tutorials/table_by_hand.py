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
# # One table of the report by hand
#
# `multitask experiments run` fills ten tables. This tutorial fills one of them step by step, so that you know where its numbers come from.
# It asks what Table 7 asks: does it help to project conflicting gradients of the tasks (PCGrad)? The table has two rows. To stay below a
# minute on a laptop, we train much less than the report does, without its contrastive pre-training, and with the sum of the projected gradients
# (the table takes their mean). [Your own CSV](own_csv.ipynb) explains how to type along.
#
# ## Train the rows
#
# The two rows differ in one setting, the scheduler. Each row is trained with two seeds: with one, nobody knows how much a score varies when
# nothing but chance is different.

# %%
from dataclasses import replace
from pathlib import Path

from multitask import FinetuneConfig, finetune
from multitask.base.options import RunOptions

DATA = Path("data/sample")
base = FinetuneConfig(
    epochs=1,
    epoch_size=96,  # examples of each of the three tasks
    keep_task_bests=False,
)
rows = {"average": base, "pcgrad": replace(base, scheduler="pcgrad")}
seeds = (0, 1)
runs = {
    (row, seed): finetune("all-minilm-l6-v2", DATA, replace(config, seed=seed), RunOptions(name=row))
    for row, config in rows.items()
    for seed in seeds
}
for (row, seed), run in runs.items():
    print(f"{row:8} seed {seed}: overall {run.history()[-1]['scores']['overall']:.3f}")

# %% [markdown]
# Each training is a folder in `runs/`. If you run this cell again, it prints the same numbers at once, because nothing is computed twice.
#
# ## Predict the dev sets
#
# A score is one number for a whole dev set. For intervals and tests, we need each model's prediction for each example.

# %%
import numpy as np

from multitask import MultitaskModel
from multitask.models.estimates import estimate, load_split

TASKS = ("sentiment", "paraphrase", "similarity")
labels = {}
predictions, scores = ({task: {} for task in TASKS} for _ in range(2))
for key, run in runs.items():
    model = MultitaskModel.load(run.folder)
    dev = load_split(model, DATA, "dev")
    for task, values in estimate(model, dev).items():
        labels[task] = dev[task].examples.labels
        predictions[task][key] = model.tasks[task].decide(values)
        scores[task][key] = model.tasks[task].score(values, labels[task])
print({task: len(values) for task, values in labels.items()}, "dev examples")

# %% [markdown]
# ## Resample
#
# How much would the scores change with other dev examples? We draw the examples with replacement, 2,000 times, and score every model on
# every draw. All models are scored on the same draws. (The report draws 10,000 times.)

# %%
from multitask.evaluation.statistics import resampled_scores
from multitask.evaluation.statistics import SampledScores

models = [(row, seed) for row in rows for seed in seeds]
sampled = {row: {} for row in rows}
for task in TASKS:
    of_models = np.stack([predictions[task][key] for key in models])  # [models, examples]
    metric, draws = model.tasks[task].metric, np.random.default_rng(0)
    resampled = resampled_scores(labels[task], of_models, metric, draws, samples=2000)  # [samples, models]
    for row in rows:
        own = [place for place, key in enumerate(models) if key[0] == row]
        observed = np.array([scores[task][row, seed] for seed in seeds])  # [seeds]
        sampled[row][task] = SampledScores(seeds, observed, resampled[:, own])
for row in rows:
    sampled[row]["overall"] = SampledScores.mean_of([sampled[row][task] for task in TASKS])

# %% [markdown]
# ## The table
#
# `contrast` computes a mean over seeds, or a difference of two rows seed by seed, with its interval.

# %%
from multitask.evaluation.statistics import contrast, holm

columns = ("overall", *TASKS)
print(f"{'':9}" + "".join(f"{column:>24}" for column in columns))
for row in rows:
    cells = []
    for column in columns:
        mean = contrast([(1.0, sampled[row][column])])
        low, high = mean.interval()
        cells.append(f"{mean.value:.3f} [{low:.3f}, {high:.3f}]")
    print(f"{row:9}" + "".join(f"{cell:>24}" for cell in cells))

# %% [markdown]
# ## The tests
#
# The difference of the rows, with its own interval. It is computed on the same draws, so what is hard for both models cancels out. A table
# with several tests finds some differences by chance alone; Holm's correction raises the p values so that this rarely happens.

# %%
# Differences to the row "average", with 95% intervals
from matplotlib import pyplot as plt

differences = {c: contrast([(1.0, sampled["pcgrad"][c]), (-1.0, sampled["average"][c])]) for c in columns}
adjusted = holm([difference.p_value() for difference in differences.values()])
for (column, difference), p in zip(differences.items(), adjusted, strict=True):
    low, high = difference.interval()
    verdict = f"p = {p:.3f}" if p < 0.05 else "no significant difference"
    print(f"{column:11} {difference.value:+.3f} [{low:+.3f}, {high:+.3f}]  {verdict}")

figure, axes = plt.subplots(figsize=(6, 2.5))
for place, difference in enumerate(differences.values()):
    axes.plot(difference.interval(), [place, place], linewidth=3)
    axes.plot([difference.value], [place], "ko")
axes.axvline(0, color="black", linewidth=0.8)
axes.set_yticks(range(len(columns)), columns)
axes.set_xlabel("pcgrad − average");

# %% [markdown]
# With so little training and two seeds, the intervals are wide. "No significant difference" does not say that PCGrad has no effect. It says
# that this experiment cannot see one smaller than the interval.
#
# ## The report's way
#
# The command below compares the two with the report's settings and writes the table into `report/index.html`, next to the published scores. It
# takes several minutes on the sample, and hours on real data.
#
# ```
# multitask experiments run sample --tables 7 --seeds 3
# ```
#
# [Intervals and tests](../concepts/intervals-and-tests.md) explains the statistics, and [Studies](../studies/index.md) how to run tables on
# real data.
