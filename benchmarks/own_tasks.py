"""Six declared tasks trained together, each alone, beside a linear probe and beside SetFit with few rows.

    python -m benchmarks.own_tasks --senteval FOLDER --output FOLDER [--part together alone probe few pairs setfit]

The tasks are SentEval's TREC, MRPC, SICK (two tasks of one file), SST2 and CR, in the formats that users have: JSON
lines, tab-separated files, parquet. Every row of results.jsonl has part, task, seed, the score on the test set, and
minutes. SetFit is not a dependency of this project: `pip install setfit`.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import write_text
from multitask import FinetuneConfig, MultitaskModel, SentenceEncoder, finetune, load_tasks
from multitask.data.write_tables import table_writer
from multitask.models.config import HeadsConfig
from multitask.models.predictions import estimate_rows
from multitask.runtime.options import RunOptions
from multitask.runtime.random_streams import generator
from multitask.stages.pretrain import PretrainConfig
from multitask.stages.pretrain.training import pretrain
from multitask.tasks.read_examples import load_rows, load_training_rows
from multitask.tasks.task import Task
from multitask.training.config import OptimizerConfig

START = "all-minilm-l6-v2"
PARTS = ("together", "alone", "probe", "few", "pairs", "setfit")
ROWS_PER_CLASS = (8, 64)

TASKS = """
[tasks.trec]
kind = "classification"
text = "question"
label = "type"
train = "trec-train.jsonl.gz"
test = "trec-test.csv"

[tasks.mrpc]
kind = "pair_classification"
text = ["#1 String", "#2 String"]
label = "Quality"
separator = "\\t"
quotes = false
train = "{senteval}/MRPC/msr_paraphrase_train.txt"
test = "{senteval}/MRPC/msr_paraphrase_test.txt"

[tasks.entailment]
kind = "pair_classification"
text = ["sentence_A", "sentence_B"]
label = "entailment_judgment"
separator = "\\t"
quotes = false
train = "{senteval}/SICK/SICK_train.txt"
dev = "{senteval}/SICK/SICK_trial.txt"
test = "{senteval}/SICK/SICK_test_annotated.txt"

[tasks.relatedness]
kind = "cosine"
text = ["sentence_A", "sentence_B"]
label = "relatedness_score"
range = [1.0, 5.0]
separator = "\\t"
quotes = false
train = "{senteval}/SICK/SICK_train.txt"
dev = "{senteval}/SICK/SICK_trial.txt"
test = "{senteval}/SICK/SICK_test_annotated.txt"

[tasks.sst2]
kind = "classification"
text = "sentence"
label = "label"
train = "sst2-train.parquet"
dev = "sst2-dev.tsv"
test = "sst2-test.tsv"

[tasks.cr]
kind = "classification"
text = "review"
label = "opinion"
file = "cr.parquet"
dev = {{ file = "cr.parquet", split = "dev" }}
"""


def prepare(senteval: Path, folder: Path) -> Path:
    """Write the tasks file and the files that SentEval has in a format without columns; returns the tasks file."""
    for split, name in (("train.jsonl.gz", "train_5500"), ("test.csv", "TREC_10")):
        lines = (senteval / "TREC" / f"{name}.label").read_text("latin-1").splitlines()
        pairs = [line.split(" ", 1) for line in lines]
        write(folder / f"trec-{split}", [{"question": text, "type": label.split(":")[0]} for label, text in pairs])
    for split, suffix in (("train", "parquet"), ("dev", "tsv"), ("test", "tsv")):
        lines = (senteval / "SST" / "binary" / f"sentiment-{split}").read_text("utf-8").splitlines()
        pairs = [line.rsplit("\t", 1) for line in lines]
        write(folder / f"sst2-{split}.{suffix}", [{"sentence": text, "label": label} for text, label in pairs])
    rows = [
        {"review": line, "opinion": opinion}
        for opinion in ("neg", "pos")
        for line in (senteval / "CR" / f"custrev.{opinion}").read_text("latin-1").splitlines()
    ]
    splits = generator(0, "splits of CR", len(rows)).choice(["train", "dev", "test"], len(rows), p=[0.8, 0.1, 0.1])
    write(folder / "cr.parquet", [{**row, "split": str(split)} for row, split in zip(rows, splits, strict=True)])
    write_text(folder / "tasks.toml", TASKS.format(senteval=senteval.resolve()))
    return folder / "tasks.toml"


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with table_writer(path, list(rows[0])) as write_rows:
        write_rows(rows)


def settings(seed: int, tasks: tuple[str, ...] = ()) -> FinetuneConfig:
    """The settings of the trainings together and alone: pairs are read as features, except for cosines."""
    heads = HeadsConfig(sharing="separate", pairs="features", similarity_pairs="embeddings", residual=True)
    optimizer = OptimizerConfig(learning_rate=5e-5, head_learning_rate=1e-3, schedule="linear", warmup=0.1)
    return FinetuneConfig(tasks=tasks, epochs=2, epoch_size=800, seed=seed, heads=heads, optimizer=optimizer)


def settings_of_pairs(name: str, seed: int) -> PretrainConfig:
    """The settings of contrastive training on pairs of one label, before the training with few rows."""
    return PretrainConfig(
        sources=(name,),
        partners=20,
        batch_size=16,
        projection="none",
        select="last",
        seed=seed,
        optimizer=OptimizerConfig(learning_rate=2e-5, schedule="linear", warmup=0.1),
    )


def settings_of_few_rows(seed: int, count: int) -> FinetuneConfig:
    """The settings with few rows a class: a linear head, and more epochs the fewer rows there are."""
    heads = HeadsConfig(sharing="none", dropout=0.1)
    optimizer = OptimizerConfig(learning_rate=3e-4, head_learning_rate=1e-2, schedule="linear", warmup=0.1)
    epochs = 15 if count == ROWS_PER_CLASS[0] else 8
    return FinetuneConfig(epochs=epochs, batch_size=8, seed=seed, heads=heads, optimizer=optimizer)


def test_scores(model: MultitaskModel, tasks: dict[str, Task]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All metrics of each of the model's tasks on its test set."""
    for name, task in model.tasks.items():
        rows = load_rows(replace(task, **{f: getattr(tasks[name], f) for f in FILES}), "test", labelled=True)
        texts = list(zip(*rows.sentences, strict=True)) if task.pair else list(rows.sentences[0])
        assert rows.labels is not None
        yield name, task.metrics(estimate_rows(model, texts, [name])[name], rows.labels)


FILES = ("train", "dev", "test", "separator", "quotes")


def train(
    declared: Path, config: FinetuneConfig, runs: Path, pairs: PretrainConfig | None = None
) -> tuple[MultitaskModel, float]:
    """Train, first on pairs of one label if their settings are given; returns the model and minutes."""
    began = time.monotonic()
    options = RunOptions(runs=runs, name="own-tasks")
    start = START if pairs is None else str(pretrain(START, declared, pairs, options).folder)
    run = finetune(start, declared, config, options)
    minutes = (time.monotonic() - began) / 60
    return MultitaskModel.load(run.folder), minutes


def together_and_alone(declared: Path, runs: Path, seed: int, parts: list[str]) -> Iterator[dict[str, Any]]:
    tasks = load_tasks(declared)
    groups = {"together": [()], "alone": [(name,) for name in tasks]}
    for part in ("together", "alone"):
        for names in groups[part] if part in parts else ():
            model, minutes = train(declared, settings(seed, names), runs)
            for name, metrics in test_scores(model, tasks):
                yield result(part, name, seed, tasks[name], metrics, minutes)


def result(part: str, name: str, seed: int, task: Task, metrics: dict[str, Any], minutes: float) -> dict[str, Any]:
    score = metrics[task.metric]
    return {"part": part, "task": name, "seed": seed, "metric": task.metric, "score": score, "minutes": minutes}


def probe(declared: Path) -> Iterator[dict[str, Any]]:
    """Logistic regression (ridge regression of a number) on frozen embeddings; regularised by cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    encoder = SentenceEncoder.load(START)
    for name, task in load_tasks(declared).items():
        began = time.monotonic()
        task, training = load_training_rows(task)
        test = load_rows(task, "test", labelled=True)
        assert training.labels is not None
        assert test.labels is not None
        kept = np.sort(generator(0, "rows of the probe", name).permutation(len(training))[:20_000])
        training = training.take(kept)
        inputs, held_out = (features(encoder, rows.sentences) for rows in (training, test))
        if task.kind == "cosine":
            model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 5, 11))).fit(inputs, training.labels)
            low, high = task.bounds  # type: ignore[attr-defined]
            metrics = task.metrics((model.predict(held_out) - low) / (high - low), test.labels)
        else:
            classifier = LogisticRegressionCV(Cs=np.logspace(-4, 1, 6), cv=5, max_iter=2000)
            model = make_pipeline(StandardScaler(), classifier).fit(inputs, training.labels)
            accuracy = float(np.mean(model.predict(held_out) == test.labels))
            metrics = {"accuracy": accuracy}
        yield result("probe", name, 0, task, metrics, (time.monotonic() - began) / 60)


def features(encoder: SentenceEncoder, columns: Any) -> NDArray[np.float32]:
    """Embeddings of sentences; of pairs |x - y| and x * y (InferSent), [rows, features]."""
    embeddings = [encoder.encode(list(column)) for column in columns]
    if len(embeddings) == 1:
        return embeddings[0]
    first, second = embeddings
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def few_rows(declared: Path, name: str, count: int, seed: int) -> tuple[list[str], list[str], Task]:
    """`count` training rows of each class, drawn at random: texts and labels."""
    task, rows = load_training_rows(load_tasks(declared)[name])
    assert rows.labels is not None
    order = generator(seed, "few rows", name).permutation(len(rows))
    chosen = np.concatenate([order[rows.labels[order] == code][:count] for code in range(len(task.labels))])  # type: ignore[attr-defined]
    texts, numbers = rows.take(chosen).sentences[0], rows.labels[chosen].astype(int)
    return list(texts), [task.names[number] for number in numbers], task  # type: ignore[attr-defined]


def few(
    declared: Path, folder: Path, runs: Path, seed: int, counts: list[int], with_pairs: bool
) -> Iterator[dict[str, Any]]:
    """Ours with few rows. The training rows are the development rows too, as there are no others to select on."""
    part = "pairs" if with_pairs else "few"
    for name in ("trec", "sst2", "cr"):
        for count in counts:
            texts, labels, task = few_rows(declared, name, count, seed)
            place = folder / "few" / f"{name}-{count}-{seed}.jsonl"
            write(place, [{task.text[0]: text, task.label: label} for text, label in zip(texts, labels, strict=True)])  # type: ignore[misc]
            toml = place.with_suffix(".toml")
            kind = f'kind = "classification"\ntext = "{task.text[0]}"\nlabel = "{task.label}"'
            write_text(toml, f'[tasks.{name}]\n{kind}\ntrain = "{place.name}"\ndev = "{place.name}"\n')
            pairs = settings_of_pairs(name, seed) if with_pairs else None
            model, minutes = train(toml, settings_of_few_rows(seed, count), runs, pairs)
            for _, metrics in test_scores(model, {name: replace(task, train=load_tasks(toml)[name].train)}):
                yield result(f"{part} {count}", name, seed, task, metrics, minutes)


def setfit(declared: Path, folder: Path, seed: int, counts: list[int]) -> Iterator[dict[str, Any]]:
    """SetFit on the same rows with its paper's settings: 20 positive and negative pairs a row, one epoch."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    from minbert.download_checkpoint import resolve

    for name in ("trec", "sst2", "cr"):
        for count in counts:
            texts, labels, task = few_rows(declared, name, count, seed)
            began = time.monotonic()
            model = SetFitModel.from_pretrained(str(resolve(START)), labels=list(task.names))  # type: ignore[attr-defined]
            numbers = [task.names.index(label) for label in labels]  # type: ignore[attr-defined]
            arguments = TrainingArguments(
                output_dir=str(folder / "setfit"),
                batch_size=16,
                num_epochs=1,
                num_iterations=20,
                seed=seed,
                save_strategy="no",
                show_progress_bar=False,
            )
            Trainer(model, arguments, Dataset.from_dict({"text": texts, "label": numbers})).train()
            minutes = (time.monotonic() - began) / 60
            rows = load_rows(task, "test", labelled=True)
            assert rows.labels is not None
            found = np.asarray(model.predict(list(rows.sentences[0]), use_labels=False))
            accuracy = float(np.mean(found == rows.labels))
            yield result(f"setfit {count}", name, seed, task, {"accuracy": accuracy}, minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS_PER_CLASS), help="of each class, few rows")
    options = parser.parse_args()
    declared = prepare(options.senteval, options.output)
    runs = options.output / "runs"
    with (options.output / "results.jsonl").open("a") as file:

        def keep(rows: Iterator[dict[str, Any]]) -> None:
            for row in rows:
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(json.dumps(row))

        if "probe" in options.part:
            keep(probe(declared))
        for seed in options.seeds:
            keep(together_and_alone(declared, runs, seed, options.part))
            for part in ("few", "pairs"):
                if part in options.part:
                    keep(few(declared, options.output, runs, seed, options.rows, with_pairs=part == "pairs"))
            if "setfit" in options.part:
                keep(setfit(declared, options.output, seed, options.rows))


if __name__ == "__main__":
    main()
