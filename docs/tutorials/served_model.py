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
# # From training to a served model
#
# This tutorial trains a model, checks it, starts a service, and asks it questions over HTTP. It takes a minute on a laptop.
# [Your own CSV](own_csv.ipynb) explains how to type along. The service needs more packages: `pip install -e ".[serve]"`. (`requirements.txt` has them.)
#
# ## Train and check
#
# Two of the course's tasks on the bundled sample: five classes of sentiment, and the similarity of two sentences. `--calibrate` makes the
# probabilities agree better with how often the model is right. That matters if a program decides by them.

# %%
# !multitask finetune --tasks sentiment similarity --name served --epoch-size 384 --calibrate

# %%
# !multitask evaluate --model runs/finetune-served-*

# %% [markdown]
# Are these scores good enough to be used? The sample is composed by a script, so they say nothing about real texts. Before you serve a model,
# score it on texts of the kind that it will see: `multitask evaluate --input FILE`.
#
# ## Serve
#
# The service runs until it is stopped. In a terminal, you would type this:
#
# ```
# multitask serve --model runs/finetune-served-* --port 8765
# ```
#
# In a notebook, it becomes a process in the background. We wait until it says that it is ready.

# %%
import json
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

run = next(Path("runs").glob("finetune-served-*"))
URL = "http://127.0.0.1:8765"
service = subprocess.Popen(
    ["multitask", "serve", "--model", f"reviews={run}", "--port", "8765"], stderr=subprocess.DEVNULL
)


def ask(route: str, **request: object) -> dict:
    """The service's answer to a request."""
    body = json.dumps(request).encode() if request else None
    with urlopen(Request(URL + route, body, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)


for _ in range(600):
    try:
        with urlopen(f"{URL}/healthz") as answer:
            print(answer.read().decode())
        break
    except URLError:
        time.sleep(0.2)

# %% [markdown]
# ## Ask
#
# Any program that speaks HTTP can ask. From a terminal:

# %%
# !curl -s http://127.0.0.1:8765/v1/predict -H "Content-Type: application/json" -d '{"texts": ["A gem."], "tasks": ["sentiment"]}'

# %% [markdown]
# From Python, with a pair of sentences, and with embeddings:

# %%
answer = ask(
    "/v1/predict",
    texts=[["Two dogs run.", "Dogs are running."], ["Two dogs run.", "A cat sleeps."]],
    tasks=["similarity"],
)
for prediction in answer["predictions"]["similarity"]:
    print(round(prediction["value"], 2), "on the scale from 0 to 5")

answer = ask("/v1/similarity", first=["Where is my parcel?"], second=["The parcel has not arrived.", "I like tea."])
print([round(cosine, 2) for cosine in answer["similarities"][0]])

# %% [markdown]
# The first two numbers are similarities as the model learned them, the last two are cosines of embeddings.
#
# What it refuses, it refuses in one line:

# %%
# !curl -s http://127.0.0.1:8765/v1/predict -H "Content-Type: application/json" -d '{"texts": ["A gem."], "tasks": ["mood"]}'

# %% [markdown]
# ## How fast is it?
#
# Texts that wait are packed into one batch, so many requests at once are answered faster than one after the other.

# %%
# Seconds until each of 64 requests was answered
from concurrent.futures import ThreadPoolExecutor

from matplotlib import pyplot as plt

texts = open("data/sample/sentences.txt", encoding="utf-8").read().splitlines()[:64]


def answered(clients: int) -> list[float]:
    """When each text's prediction arrived, with so many clients that ask one text at a time."""
    start = time.perf_counter()

    def predict(text: str) -> float:
        ask("/v1/predict", texts=[text], tasks=["sentiment"])
        return time.perf_counter() - start

    with ThreadPoolExecutor(clients) as pool:
        return sorted(pool.map(predict, texts))


figure, axes = plt.subplots(figsize=(5, 3))
for clients in (1, 16):
    axes.plot(answered(clients), range(1, len(texts) + 1), label=f"{clients} client{'s' * (clients > 1)}")
axes.set(xlabel="seconds", ylabel="answered")
axes.legend();
# %% [markdown]
# ## Stop
#
# SIGTERM and Ctrl-C stop the service after it has answered what it accepted.

# %%
service.terminate()
service.wait()
print("stopped")

# %% [markdown]
# - `http://127.0.0.1:8765/` in a browser is a page to try the model, and `/docs` lists all routes.
# - [Answer requests over HTTP](../how-to/serve.md) has the limits, tokens for access, and what to do across a network.
# - [Export](../how-to/export.md) writes the model for programs that do not have this library.
