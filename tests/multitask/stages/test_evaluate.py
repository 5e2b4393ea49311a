"""Evaluation of runs and checkpoints: scores and the geometry of embeddings by brute force, and when there is none."""

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.runs import Run
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.evaluate import evaluate_on_dev, similarity_dev_set
from multitask.stages.finetune import finetune
from multitask.stages.settings import EvaluateConfig, FinetuneConfig
from multitask.training.settings import OptimizerConfig
from tests.multitask.stages.conftest import StageRun

CONFIG = FinetuneConfig(("sentiment",), epochs=1, epoch_size=16, optimizer=OptimizerConfig(learning_rate=1e-3))


@pytest.fixture
def run(run_stage: StageRun, small_data: Path) -> Run:
    """A model of sentiment, whose embeddings are measured all the same."""
    return run_stage(finetune, CONFIG, data=small_data)


@pytest.fixture
def scored(run_stage: StageRun, small_data: Path) -> Callable[..., Path]:
    """The folder with a model's scores."""
    return lambda model, data=small_data: run_stage(evaluate_on_dev, EvaluateConfig(), start=model, data=data).folder


def test_alignment_and_uniformity_are_those_of_all_pairs(run, scored, small_data):
    found = read_json(scored(run.folder) / "evaluation.json")
    assert found["scores"].keys() == {"sentiment"}
    pairs = similarity_dev_set(small_data)
    assert pairs is not None
    assert pairs.labels is not None
    model = MultitaskModel.load(run.model_folder(), keep_layers=True)

    def direction(text: str) -> np.ndarray:
        with torch.no_grad():
            vector = model.encoder.embed(model.encoder.tokenizer.encode([text]))[0].double().numpy()
        return vector / np.linalg.norm(vector)

    first, second = ([direction(text) for text in column] for column in pairs.sentences)
    near = [np.square(a - b).sum() for a, b, gold in zip(first, second, pairs.labels, strict=True) if gold >= 4]
    assert len(near) > 2
    assert found["geometry"]["alignment"] == pytest.approx(np.mean(near), rel=1e-4)
    texts = {text for column in pairs.sentences for text in column}
    kernel = [np.exp(-2 * np.square(a - b).sum()) for a, b in combinations(map(direction, sorted(texts)), 2)]
    assert found["geometry"]["uniformity"] == pytest.approx(np.log(np.mean(kernel)), rel=1e-4)
    assert "bands" not in found["geometry"]


def test_a_checkpoint_is_scored_by_the_cosine_of_its_embeddings(scored, tiny_encoder, small_data):
    found = read_json(scored(tiny_encoder) / "evaluation.json")
    assert found["scores"].keys() == {"paraphrase", "similarity"}  # sentiment needs a trained head
    pairs = similarity_dev_set(small_data)
    assert pairs is not None
    embedder = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    first, second = (embedder.encode(list(column), normalize=True).astype(float) for column in pairs.sentences)
    cosines = (first * second).sum(1)
    rounding = (
        16 * np.finfo(np.float32).eps
    )  # of a cosine, as batches differ; a correlation moves by twice that, in deviations
    expected = pytest.approx(pearsonr(cosines, pairs.labels)[0], abs=2 * rounding / cosines.std())
    assert found["scores"]["similarity"] == expected
    assert found["overlap"]["similarity"]["rows_seen"] == 0


def test_other_dev_rows_are_another_evaluation_and_refused_for_a_run(run, scored, tiny_encoder, small_data, tmp_path):
    data = shutil.copytree(small_data, tmp_path / "data")
    of_run, before = (scored(model, data) for model in (run.folder, tiny_encoder))
    for name in ("quora-dev.csv", "ids-sst-dev.csv"):
        header, _, *rows = (data / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (data / name).write_text("".join([header, *rows]), encoding="utf-8")
    after = scored(tiny_encoder, data)
    assert len(np.load(after / "predictions.npz")["paraphrase_labels"]) == 31
    assert len(np.load(before / "predictions.npz")["paraphrase_labels"]) == 32
    assert (of_run / "DONE").exists()
    with pytest.raises(InputError, match=r"ids-sst-dev.csv: not the dev set on which"):
        scored(run.folder, data)


def test_without_similar_pairs_nothing_is_measured(small_data, tmp_path):
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / "sts-dev.csv").unlink()
    assert similarity_dev_set(data) is None
    header, row, *_ = (small_data / "sts-dev.csv").read_text(encoding="utf-8").splitlines()
    columns = row.split("\t")
    (data / "sts-dev.csv").write_text(header + "\n" + "\t".join([*columns[:2], "Same.", "Same.", columns[4]]) + "\n")
    assert similarity_dev_set(data) is None


def test_another_similarity_is_not_measured(small_data, tmp_path):
    declaration = ["[tasks.similarity]", 'kind = "cosine"', 'text = ["a", "b"]', 'label = "c"', 'dev = "dev.csv"']
    (tmp_path / "tasks.toml").write_text("\n".join([*declaration, "range = [0, 1]", 'train = "dev.csv"', ""]))
    (tmp_path / "dev.csv").write_text("a,b,c\nA film.,A movie.,0.9\nA film.,A cat.,0.1\n")
    assert similarity_dev_set(tmp_path / "tasks.toml") is None
    assert similarity_dev_set(small_data) is not None
