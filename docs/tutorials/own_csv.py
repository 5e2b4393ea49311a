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
# # Your own CSV
#
# You have a table of texts with labels, and you want the labels of new texts. This tutorial trains a model on
# `data/own/messages.csv`, which comes with the project, and uses it on messages that have no labels. It takes a minute on a
# laptop.
#
# First [install](../start/install.md) the project. Then open a terminal in its folder and type `source .venv/bin/activate`, so that the
# terminal finds `multitask`. If you installed the package instead, use a folder in which you ran `multitask data sample`.
#
# Lines that begin with `$` are commands for this terminal. The other code is Python. Paste it block by block into `ipython`
# (`pip install ipython`) in a second terminal like the first one; `python` takes such blocks only since version 3.13. Do not close it, because
# later blocks use names from earlier ones. `plt.show()` opens a figure. You can also run the notebook at the end of this page in Jupyter
# (`pip install jupyterlab`).
#
# ## Look at the data

# %%
import csv
from pathlib import Path

with Path("data/own/messages.csv").open(encoding="utf-8", newline="") as file:
    messages = list(csv.DictReader(file))
print(len(messages), "rows")
for message in messages[:3]:
    print(message)

# %% [markdown]
# Each row is a message to a shop. `topic` is one of four words. `urgency` is a number from 1 to 5. We want to predict both.
#
# ## Say what to learn
#
# A tasks file says which column is the text and which columns are labels. Words are classes, so `topic` is a `classification`. Numbers are
# a `regression`. Both tasks read the same file, and one model learns both. Save this as `tasks.toml`:

# %%
# %%writefile tasks.toml
[tasks.topic]
kind = "classification"
text = "message"
label = "topic"
train = "data/own/messages.csv"

[tasks.urgency]
kind = "regression"
text = "message"
label = "urgency"
range = [1, 5]
train = "data/own/messages.csv"

# %% [markdown]
# Paths are relative to the tasks file. We name no dev set, so a tenth of the rows is held out to measure how good the model is.
#
# ## Check
#
# `data check` reads every row before you spend time on training.

# %%
# !multitask data check --tasks-file tasks.toml

# %% [markdown]
# The last column shows how often each class occurs, and how the numbers are spread. `dropped` rows are left out, because their label or text is
# empty; `repeated` rows have the text of an earlier row. The other columns show how long the texts are in tokens (pieces of words), and that
# none is longer than the model can read.
#
# Mistakes end in one line that says where and what. Here someone misspelt the name of a column:

# %%
wrong = Path("tasks.toml").read_text().replace('label = "topic"', 'label = "topics"')
Path("wrong.toml").write_text(wrong);
# %% tags=["fails"]
# !multitask data check --tasks-file wrong.toml

# %% [markdown]
# ## Train
#
# Training makes three passes (epochs), each over 192 of the messages to be quick. `--name` becomes a part of the folder's name.

# %%
# !multitask finetune --tasks-file tasks.toml --name messages --epoch-size 192

# %% [markdown]
# The table shows the score on the held-out messages after each epoch: the share of right topics, and the correlation of predicted and true
# urgency. A star marks the best of each column. The model with the best mean (`overall`) is kept.
#
# The last line is the run: a folder with the model and everything about it. Its name ends in 16 characters that stand for all settings and
# inputs. They may be different on your machine, so below, `*` stands for them. (If you train again with other settings, give another `--name`, so
# that `*` still stands for one run.) You can also look at the training:

# %%
# Dev scores after each epoch, from the run's metrics.jsonl
import json

from matplotlib import pyplot as plt

run = next(Path("runs").glob("finetune-messages-*"))
history = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
epochs = [line["epoch"] for line in history]
figure, axes = plt.subplots(figsize=(5, 3))
for task in ("topic", "urgency"):
    axes.plot(epochs, [line["scores"][task] for line in history], "o-", label=task)
axes.set(xlabel="epoch", ylabel="dev score", xticks=epochs)
axes.legend();
# %% [markdown]
# ## Predict
#
# `new_messages.txt` has one message a line. The answers are a CSV file, because its name says so.

# %%
# !multitask predict --model runs/finetune-messages-* --input data/own/new_messages.txt --output answers.csv
# !cat answers.csv

# %% [markdown]
# The number after each topic is how sure the model is. These messages are composed like the training messages, so it is very sure. With
# real messages it will be less so.
#
# ## See where it is wrong
#
# `evaluate --details` writes more about each task: scores of each class, which classes are confused, and the worst errors.

# %%
# !multitask evaluate --model runs/finetune-messages-* --tasks-file tasks.toml --details details
# !head -n 4 details/urgency-errors.csv

# %% [markdown]
# In `urgency-errors.csv`, `row` is the line in `messages.csv` (the header is line 1), and `error` is how far the prediction is from the label.
#
# The last table counts the held-out messages that the model was trained on after all, and shows the scores on the others. There are a few,
# because the two tasks hold out nearly the same tenth, but not quite: a message held out for one may be a training message of the other. The
# lines that begin with "not known" say what nobody can check: which sentences the start weights were trained on.
#
# ## Use it in a program

# %%
from multitask import MultitaskModel

model = MultitaskModel.load(run)
texts = ["The bill is wrong. I need help right now!", "Where is my parcel? There is no hurry."]
for task, predictions in model.predict_all(texts).items():
    for prediction in predictions:
        print(task, prediction.label if task == "topic" else round(prediction.value, 1))

# %% [markdown]
# ## Your file
#
# To use your own file, change the paths and the names of columns in `tasks.toml`. Three things are worth knowing:
#
# - Files may also be tsv, jsonl or parquet. Rows without a label are left out of that task only.
# - A text may have several labels, and a row may be a pair of texts. [Your own tasks](../how-to/own-tasks.md) lists all kinds of tasks.
# - Scores on held-out rows are optimistic, because the best epoch is chosen by them. For a number to report, keep a test file aside, name it
#   with `test = ...`, and run `multitask evaluate --split test` once.
