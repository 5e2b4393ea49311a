"""Exports with heads predict what the model predicts, in programs that have only the named libraries."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.errors import InputError
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.cli.main import main
from multitask.data.contamination import TrainedOn
from multitask.inference import export_heads
from multitask.inference.export_heads import export_onnx_with_heads
from multitask.models.config import HeadsConfig
from multitask.models.multitask_model import MultitaskModel, predict_rows
from multitask.runtime.device import start
from multitask.tasks.declarations import MAIN_TASKS, chosen_tasks
from multitask.tasks.kinds import Classification, Cosine, MultiLabel, PairClassification, PairRegression, Regression
from multitask.tasks.task import Task
from tests.conftest import ROOT

NOTHING = TrainedOn()
SENTENCES = ["The band seemed to have a good time.", "It falls short of what was promised. " * 30, "?", "a gem", "no"]
PAIRS = [(first, second) for first, second in zip(SENTENCES, SENTENCES[::-1], strict=True)]
CLASSES = Classification(name="linear", text=("text",), label="label", labels=("bad", "good", "so-so"), temperature=1.7)
PAIR = {"text": ("first", "second"), "label": "label"}
TASKS: tuple[Task, ...] = (
    CLASSES,  # its name is also that of values within the file
    PairClassification(name="two", labels=("no", "yes"), temperature=0.6, **PAIR),
    PairClassification(name="three", labels=(0, 1, 2), **PAIR),
    MultiLabel(name="tags", text=("text",), label="label", labels=("x", "y"), thresholds=(0.2, 0.7), temperature=2),
    MultiLabel(name="new-tags", text=("text",), label="label", labels=("x", "y")),
    Regression(name="bounded", text=("text",), label="label", range=(1, 5)),
    Regression(name="open", text=("text",), label="label", learned_range=(-30, 70)),
    PairRegression(name="pair", range=(0, 10), **PAIR),
    Cosine(name="cosine", range=(0, 5), **PAIR),
)
HEADS = [
    HeadsConfig(),
    HeadsConfig("none"),
    HeadsConfig("separate", "joint", similarity_pairs="features"),
    HeadsConfig("shared", residual=True, head_hidden_size=20),
]


def build(
    encoder: Path | BertModel,
    tokenizer: Path,
    heads: HeadsConfig = HEADS[0],
    pooling: str = "mean",
    tasks: Sequence[Task] = TASKS,
    max_length: int | None = 24,
) -> MultitaskModel:
    """A model whose predictions differ between sentences."""
    torch.manual_seed(1)
    loaded = encoder if isinstance(encoder, BertModel) else BertModel.from_pretrained(str(encoder))
    by_name = {task.name: task for task in tasks}
    model = MultitaskModel(loaded, load_tokenizer(str(tokenizer)), by_name, pooling, heads, max_length)
    with torch.no_grad():
        for parameter in model.heads.parameters():
            parameter.normal_(std=0.1)
    return model.eval()


@pytest.fixture
def onnx() -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)


def run_onnx(folder: Path, tasks: Sequence[str], rows: Sequence[str | tuple[str, str]]) -> list[np.ndarray]:
    """Outputs for rows of one kind, as a user without this project computes them."""
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    description = json.loads((folder / "tasks.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(description["max_length"])
    tokenizer.enable_padding()
    in_turn = description["tasks"][tasks[0]]["input"] == "two_sentences"
    encoded = tokenizer.encode_batch([text for row in rows for text in row] if in_turn else rows)
    inputs = {name: np.array([getattr(e, part) for e in encoded]) for name, part in description["inputs"].items()}
    return InferenceSession(folder / "model.onnx").run(list(tasks), inputs)


def expected(model: MultitaskModel, task: str, rows: Sequence[str | tuple[str, str]]) -> np.ndarray:
    found = predict_rows(model, rows, [task], start("cpu", "fp32"))[task]
    return np.array([[*p.probabilities.values()] if p.value is None else p.value for p in found])


# ONNX.


@pytest.mark.parametrize(("heads", "pooling"), list(zip(HEADS, ["mean", "cls"] * 2, strict=True)), ids=str)
def test_onnx_predicts_every_kind_of_task(onnx, tiny_encoder, tmp_path, heads, pooling):
    model = build(tiny_encoder, tiny_encoder, heads, pooling)
    report = export_onnx_with_heads(model, tmp_path / "out", NOTHING)
    assert report.rows == 200 * len(TASKS)
    assert 0 < report.difference <= 1e-4
    differing = 0
    for name, task in model.tasks.items():
        rows = PAIRS if task.pair else SENTENCES
        differing += np.ptp(expected(model, name, rows), axis=0).max() > 1e-3
        spread = np.diff(task.bounds)[0] if isinstance(task, Regression) else 1
        for part in (rows, rows[1:2]):
            (found,) = run_onnx(tmp_path / "out", [name], part)
            np.testing.assert_allclose(found, expected(model, name, part), atol=1e-4 * spread)
    assert differing > len(TASKS) / 2  # equal predictions for all rows would hide a mistake
    assert TrainedOn.read(tmp_path / "out") is not None
    together = run_onnx(tmp_path / "out", ["linear", "open"], SENTENCES)
    np.testing.assert_allclose(together[1], expected(model, "open", SENTENCES), atol=1e-2)


def test_the_description_says_how_to_read_the_outputs(onnx, tiny_encoder, tmp_path):
    model = build(tiny_encoder, tiny_encoder, HeadsConfig("separate", "joint", similarity_pairs="embeddings"))
    export_onnx_with_heads(model, tmp_path / "out", NOTHING)
    found = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert (found["weights"], found["max_length"]) == ("fp32", 24)
    tasks = found["tasks"]
    assert {name: task["input"] for name, task in tasks.items()} == {
        **dict.fromkeys(("linear", "tags", "new-tags", "bounded", "open"), "sentence"),
        **dict.fromkeys(("two", "three"), "joint_pair"),
        **dict.fromkeys(("pair", "cosine"), "two_sentences"),
    }
    assert tasks["linear"]["labels"] == ["bad", "good", "so-so"]
    assert tasks["three"]["labels"] == ["0", "1", "2"]
    assert tasks["tags"]["thresholds"] == [0.2, 0.7]
    assert tasks["new-tags"]["thresholds"] == [0.5, 0.5]
    assert tasks["open"]["range"] == [-30, 70]
    assert tasks["pair"]["text"] == ["first", "second"]


def test_an_export_that_computes_something_else_is_not_left_behind(onnx, tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        export_heads, "_output", lambda task, outputs: outputs.softmax(dim=1)
    )  # forgets the temperature
    model = build(tiny_encoder, tiny_encoder, tasks=[CLASSES])
    with pytest.raises(RuntimeError, match="ONNX Runtime's outputs for linear differ by"):
        export_onnx_with_heads(model, tmp_path / "out", NOTHING)
    assert not any(tmp_path.iterdir())


def test_a_task_cannot_have_the_name_of_an_input(onnx, tiny_encoder, tmp_path):
    model = build(tiny_encoder, tiny_encoder, tasks=[replace(CLASSES, name="input_ids")])
    with pytest.raises(InputError, match="the task input_ids has the name of an input of the ONNX file"):
        export_onnx_with_heads(model, tmp_path / "out", NOTHING)


def test_without_onnx_runtime_the_error_says_how_to_get_it(tiny_encoder, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    hidden = ("onnxruntime",)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in hidden else found(name) or sys)
    for name in ("onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name, sys))
    with pytest.raises(InputError, match=r'needs onnxruntime; install with: pip install -e "\.\[onnx\]"'):
        export_onnx_with_heads(build(tiny_encoder, tiny_encoder), tmp_path / "out", NOTHING)


def course_model(encoder: Path, data: Path, folder: Path, pooling: str = "mean") -> MultitaskModel:
    model = build(encoder, encoder, pooling=pooling, tasks=list(chosen_tasks(data, MAIN_TASKS).values()))
    model.save(folder)
    return model


def test_the_documented_program_runs_without_this_project(onnx, tiny_encoder, small_data, tmp_path):
    (program,) = [
        block
        for block in re.findall(
            r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "export.md").read_text("utf-8"), re.DOTALL
        )
        if "InferenceSession" in block
    ]
    assert len([line for line in program.splitlines() if line]) == 12
    model = course_model(tiny_encoder, small_data, tmp_path / "model")
    with torch.no_grad():  # so that the three sentences differ in class
        model.heads["sentiment"].mlp.second.bias.sub_(model_logits(model).mean(axis=0))
    export_onnx_with_heads(model, tmp_path / "FOLDER", NOTHING)
    program += "import sys\nassert not {'torch', 'minbert', 'multitask'} & sys.modules.keys()\n"
    ran = subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    labels = [found.label for found in model.predict("sentiment", ["A gem.", "It falls apart.", "It is a film."])]
    assert len(set(labels)) > 1
    assert ran.stdout == f"{labels}\n"


def model_logits(model: MultitaskModel) -> torch.Tensor:
    batch = model.tokenizer.pack(["A gem.", "It falls apart.", "It is a film."])
    return model(batch, {"sentiment": 3})["sentiment"].mean(dim=0, keepdim=True)


def test_int8_is_smaller_and_its_score_is_that_of_its_predictions(onnx, tiny_encoder, small_data, tmp_path, capsys):
    model = course_model(tiny_encoder, small_data, tmp_path / "model")
    to = ["--to", "onnx", "--with-heads", "--data", str(small_data), "--int8"]
    assert main(["export", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "int8"), *to]) == 0
    checked, _, *rows, sizes, folder = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"checked: 96 rows; the largest difference is \d\.\de-\d\d", checked)
    before, after = map(float, re.findall(r"[\d.]+(?= MB)", sizes))
    assert after < before
    assert folder == str(tmp_path / "int8")
    assert json.loads((tmp_path / "int8" / "tasks.json").read_text())["weights"] == "int8"
    lines = (small_data / "ids-sst-dev.csv").read_text("utf-8").splitlines()
    header, *cells = (line.split("\t") for line in lines)
    sentences, gold = ([row[header.index(name)] for row in cells] for name in ("sentence", "sentiment"))
    (int8,) = run_onnx(tmp_path / "int8", ["sentiment"], sentences)
    fp32 = expected(model, "sentiment", sentences)
    scores = [np.mean(found.argmax(axis=1) == np.array(gold, int)) for found in (fp32, int8)]
    assert rows[0].split() == ["sentiment", *(f"{score:.4f}" for score in scores), f"{scores[0] - scores[1]:+.4f}"]
    assert 0 < np.abs(int8 - fp32).max() < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--int8"], "--int8, --data and --tasks-file are for --to onnx --with-heads"),
        (["--to", "onnx", "--with-heads", "--int8"], "--int8 needs --data or --tasks-file"),
        (["--with-heads"], "--with-heads is for --to onnx"),
        (["--to", "onnx", "--with-heads", "--normalize"], "--pooling and --normalize are for embeddings"),
        (["--to", "onnx", "--with-heads"], "not a fine-tuned model, as it has no multitask.json"),
    ],
)
def test_the_command_refuses_what_does_not_fit(tiny_encoder, tmp_path, options, message, capsys):
    assert main(["export", "--model", str(tiny_encoder), "--output", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
