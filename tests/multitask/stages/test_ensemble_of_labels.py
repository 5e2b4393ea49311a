"""Ensembles of models with thresholds and temperatures: each model is scored with its own, a soup has new ones."""

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from sklearn.metrics import f1_score

from minbert.files import read_json, write_json
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.base.keys import RunKey
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.models.multitask_model import MultitaskModel
from multitask.models.settings import HeadsConfig
from multitask.stages.ensemble import ensemble
from multitask.stages.settings import EnsembleConfig, FinetuneConfig
from multitask.tasks.declarations import task_of

LABELS = ["a", "b", "c"]
WORDS = ("film", "time", "board", "tea", "good", "bad", "dog", "cat")
ROWS = [{"q": f"{WORDS[i % 8]} {WORDS[i * 5 % 7]}", "tags": [LABELS[i % 3], LABELS[i % 2]]} for i in range(30)]
GOLD = np.array([[label in row["tags"] for label in LABELS] for row in ROWS])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    declared = (
        '[tasks.tags]\nkind = "multilabel"\ntext = "q"\nlabel = "tags"\ntrain = "rows.jsonl"\ndev = "rows.jsonl"\n'
    )
    (tmp_path / "tasks.toml").write_text(declared)
    return tmp_path / "tasks.toml"


def write_run(tiny_encoder: Path, runs: Path, seed: int, **tuned: object) -> Path:
    """A run whose model has random weights and these thresholds or this temperature."""
    inputs = {"parents": ["one"], "seed": [seed, str(tuned)]}
    with Run.building(runs, RunKey("finetune", 1, FinetuneConfig(), inputs), "run", {}) as run:
        declared = {"kind": "multilabel", "text": "q", "label": "tags", "labels": LABELS, **tuned}
        torch.manual_seed(seed)
        encoder, tokenizer = BertModel.from_pretrained(str(tiny_encoder)), load_tokenizer(str(tiny_encoder))
        model = MultitaskModel(encoder, tokenizer, {"tags": task_of("tags", declared)}, "mean", HeadsConfig())
        model.save(run.folder / "checkpoints" / "step-1")
        write_json(run.folder / "best.json", {"overall": "step-1"})
        run.finish()
    return run.folder


def predicted(folder: Path) -> np.ndarray:
    """What a stored model predicts for the rows, [rows, labels]."""
    found = MultitaskModel.load(folder, "cpu", "fp32").predict("tags", [row["q"] for row in ROWS])
    return np.array([[label in prediction.labels for label in LABELS] for prediction in found])


@pytest.fixture
def runs(tiny_encoder: Path, tmp_path: Path) -> list[Path]:
    return [
        write_run(tiny_encoder, tmp_path / "runs", 1, thresholds=[0.999, 0.999, 0.999], temperature=5.0),
        write_run(tiny_encoder, tmp_path / "runs", 2, thresholds=[0.4, 0.5, 0.3]),
    ]


def build(runs: list[Path], data: Path, method: str) -> Run:
    options = RunOptions(device="cpu", precision="fp32", runs=data.parent / "runs")
    return ensemble(runs, data, EnsembleConfig(method), options)


def test_members_are_scored_with_their_own_thresholds(runs, data):
    members = read_json(build(runs, data, "average").folder / "evaluation.json")["members"]
    for run in runs:
        folder = Run(run).model_folder()
        expected = f1_score(GOLD, predicted(folder), average="macro", zero_division=0)
        assert members[str(folder)]["scores"]["tags"] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["soup", "greedy_soup"])
def test_a_stored_soup_predicts_what_the_ensemble_was_scored_with(runs, data, method):
    artefact = build(runs, data, method)
    found = predicted(artefact.folder)
    written = pandas.read_csv(artefact.folder / "predictions" / "tags-dev-output.csv", keep_default_na=False)
    assert list(written["tags"]) == [
        "|".join(label for label, there in zip(LABELS, row, strict=True) if there) for row in found
    ]
    expected = f1_score(GOLD, found, average="macro", zero_division=0)
    assert read_json(artefact.folder / "evaluation.json")["overall"] == pytest.approx(expected)
    task = MultitaskModel.load(artefact.folder).tasks["tags"]
    assert max(task.thresholds) < 0.999
    assert task.temperature != 5.0
