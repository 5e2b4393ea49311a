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
# # A figure of your own from a report
#
# The report of a table comes with its scores as data, in the file `report/results.parquet`. This tutorial runs a small table, reads the file
# into pandas, and draws one figure from it.
#
# ## Run a table
#
# The table of a tasks file compares each task alone with all tasks together. Two seeds and few examples keep it short. The progress goes to
# a file.

# %%
# !multitask experiments run --tasks-file data/own/tasks.toml --schedulers average --seeds 2 --epochs 1 --epoch-size 32 2> log.txt

# %% [markdown]
# ## Read the scores
#
# The file has one line for each row of the table, seed and task. What belongs to the mean over seeds (the interval, the test against the
# reference row) stands in every line of the row. A row that is not scored on a task has one line without a value there; we drop these lines.

# %%
from multitask.experiments.results_file import Results

scores = Results.load("report/results.parquet").to_pandas().dropna(subset="value")
print(scores[["label", "seed", "task", "metric", "value", "low", "high"]].round(3).to_string(index=False))

# %% [markdown]
# ## Draw them
#
# For each task: the mean of every row with its 95% interval, and each seed as a light dot.

# %%
# Means with 95% intervals, and each seed as a light dot
from matplotlib import pyplot as plt

labels = list(scores.label.unique())
tasks = ("overall", "topic", "urgency")
figure, panels = plt.subplots(1, len(tasks), figsize=(9, 2.5), sharey=True)
for axes, task in zip(panels, tasks, strict=True):
    for label, cell in scores[scores.task == task].groupby("label"):
        place = labels.index(label)
        axes.plot(cell[["low", "high"]].iloc[0], [place, place], color="tab:blue")
        axes.plot(cell.value.mean(), place, "o", color="tab:blue")
        axes.plot(cell.value, [place + 0.25] * len(cell), ".", color="tab:blue", alpha=0.4)
    axes.set_xlabel(f"{task}, {cell.metric.iloc[0]}")
panels[0].set_yticks(range(len(labels)), labels)
panels[0].set_ylim(len(labels) - 0.5, -0.5)
figure.tight_layout();

# %% [markdown]
# `Results` also has each table by itself, with a line for each row and column: see [Python](../reference/python.md#multitask.experiments.results_file.TableScores).
# [Intervals and tests](../concepts/intervals-and-tests.md) explains what the intervals mean.
