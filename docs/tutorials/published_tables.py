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
# # Published tables
#
# [The studies' pages](../studies/index.md) say what was found. Behind them are the scores of every table, one for each row and seed. This notebook
# draws any of them. Start it in the project's folder, or change `DATA`.

# %%
from pathlib import Path

from multitask.experiments.results_file import Results

DATA = Path("docs/studies/results")
for file in sorted(DATA.glob("*.parquet")):
    print(file.stem, *(table.description.table for table in Results.load(file).tables))

# %% [markdown]
# ## Choose a table
#
# Rows are paired by seed ([Intervals and tests](../concepts/intervals-and-tests.md)). Intervals and tests cover other dev examples where predictions
# are published (`results/runs`), otherwise seeds alone.

# %%
FILE, TABLE = "multitask-report", "best-parts"

# %%
from multitask.experiments.score_tables import difference_table, score_table

table = Results.load(DATA / f"{FILE}.parquet").table(TABLE)
print(table.description.title, table.description.note, sep="\n", end="\n\n")
print(score_table(table, table.pictured).strip())

# %% [markdown]
# Each row less the reference row, if the table has one. A star marks p < 0.05, corrected for all tests of the table.

# %%
print(difference_table(table).strip())

# %% [markdown]
# ## Draw it

# %%
# Means with 95% intervals; the dots are seeds
from matplotlib import pyplot as plt

figure, axes = plt.subplots(figsize=(6, 0.4 * len(table.rows) + 1))
cells = table.column(table.pictured[0])
axes.plot([cells.low, cells.high], [range(len(cells))] * 2, color="tab:blue")
axes.plot(cells["mean"], range(len(cells)), "o", color="tab:blue")
for place, values in enumerate(cells["values"]):
    axes.plot(values, [place + 0.25] * len(values), ".", color="tab:blue", alpha=0.4)
axes.set_yticks(range(len(cells)), table.rows.label)
axes.invert_yaxis()
axes.set_xlabel(table.description.columns[table.pictured[0]].heading)
figure.tight_layout();

# %% [markdown]
# ## Compare any two rows
#
# `contrast` takes weights of rows by their keys, here the first row and the last. Without predictions, its intervals are over seeds alone.

# %%
from multitask.experiments.grid_frames import GridFrames
from multitask.experiments.compare_rows import PresetResults

found = PresetResults.of(GridFrames.load(DATA / "scores" / f"{FILE}.parquet")).finished_tables[TABLE]
first, *_, last = table.rows.index
contrast = found.contrast({last: 1, first: -1}, found.table.score_columns[0])
low, high = contrast.interval()
print(f"{table.rows.label[last]} less {table.rows.label[first]}: {contrast.value:+.3f} [{low:+.3f}, {high:+.3f}]")
