"""The command line: what commands write, and how they refuse bad input."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from scipy.stats import pearsonr

from multitask.cli.main import main
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import Artefact
from tests.conftest import COURSE_TASKS, SMALL_ROWS, task_file
from tests.multitask.cli.mistakes import REFUSED, REFUSED_BY_FINETUNE

TRAINED = ("sentiment", "paraphrase", "similarity")
CPU = ("--device", "cpu", "--precision", "fp32")
HEADERS = {
    "sst": "id \t Predicted_Sentiment \n",
    "para": "id \t Predicted_Is_Paraphrase \n",
    "sts": "id \t Predicted_Similiary \n",
}


@pytest.fixture(scope="module")
def run(tiny_encoder: Path, small_data: Path, tmp_path_factory) -> Path:
    """The folder of a short fine-tuning."""
    runs = tmp_path_factory.mktemp("runs")
    settings = ("--epochs", "2", "--batch-size", "16", "--learning-rate", "3e-3", "--pooling", "mean")
    command = ["finetune", "--start", str(tiny_encoder), "--data", str(small_data), "--runs", str(runs)]
    assert main([*command, *settings, *CPU]) == 0
    (folder,) = runs.glob("finetune-*")
    return folder


def call(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_finetune_prints_the_scores_and_the_folder(run, tiny_encoder, small_data, capsys):
    settings = ("--epochs", 2, "--batch-size", 16, "--learning-rate", "3e-3", "--pooling", "mean")
    assert call("finetune", "--start", tiny_encoder, "--data", small_data, "--runs", run.parent, *settings, *CPU) == 0
    *table, folder = capsys.readouterr().out.splitlines()
    assert folder == str(run)
    assert table[0].split() == ["epoch", "overall", *TRAINED]
    for row, line in zip(table[1:], Artefact(run).history(), strict=True):
        assert [float(cell.strip("*")) for cell in row.split()[1:]] == [round(v, 4) for v in line["scores"].values()]


def read_predictions(path: Path) -> tuple[str, list[tuple[str, float]]]:
    """The header and the (id, value) rows of one of the course's files."""
    header, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert all(line.endswith(" \n") for line in lines)
    return header, [(i, float(value)) for i, value in (line.removesuffix(" \n").split(" , ") for line in lines)]


def column(data: Path, task: str, split: str, name: str) -> list[str]:
    with task_file(data, task, split).open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file, delimiter="\t")]


def test_predict_writes_the_courses_six_files(run, small_data, tmp_path, capsys):
    output = tmp_path / "not" / "there"
    assert call("predict", "--model", run, "--data", small_data, "--output", output, *CPU) == 0
    stems = {COURSE_TASKS[task].prediction_file: task for task in TRAINED}
    names = [f"{stem}-{split}-output.csv" for split in ("dev", "test") for stem in stems]
    assert sorted(path.name for path in output.iterdir()) == sorted(names)
    assert capsys.readouterr().out.splitlines() == [str(output / name) for name in names]
    legal = {"sst": {0, 1, 2, 3, 4}, "para": {0, 1}}
    for stem, task in stems.items():
        for split, file in (("dev", "dev"), ("test", "test-student")):
            header, rows = read_predictions(output / f"{stem}-{split}-output.csv")
            assert header == HEADERS[stem]
            assert [i for i, _ in rows] == column(small_data, task, split, "id")
            assert len(rows) == SMALL_ROWS[file]
            values = {value for _, value in rows}
            assert values <= legal[stem] if stem in legal else all(0 <= value <= 5 for value in values)
            assert len(values) > 1 or stem != "sts"  # so short a training may know one class only


def test_evaluate_agrees_with_the_prediction_files_and_the_run(run, small_data, tmp_path, capsys):
    report = tmp_path / "scores.json"
    assert call("evaluate", "--model", run, "--data", small_data, "--output", report, *CPU) == 0
    printed = capsys.readouterr().out
    scores = json.loads(report.read_text())
    assert call("predict", "--model", run, "--data", small_data, "--output", tmp_path, *CPU) == 0
    recomputed = {}
    for task in TRAINED:
        _, rows = read_predictions(tmp_path / f"{COURSE_TASKS[task].prediction_file}-dev-output.csv")
        values = np.array([value for _, value in rows])
        labels = np.array([float(label) for label in column(small_data, task, "dev", COURSE_TASKS[task].label)])
        expected = pearsonr(values, labels)[0] if task == "similarity" else np.mean(values == labels)
        recomputed[task] = scores["tasks"][task][COURSE_TASKS[task].metric]
        assert recomputed[task] == pytest.approx(expected, abs=1e-6)
        assert f"{recomputed[task]:.4f}" in printed
    assert scores["overall"] == pytest.approx(np.mean(list(recomputed.values())), abs=1e-9)
    best = max(line["scores"]["overall"] for line in Artefact(run).history())
    assert scores["overall"] == best
    line = next(line for line in Artefact(run).history() if line["scores"]["overall"] == best)
    np.testing.assert_equal(scores["tasks"], line["dev"])  # undefined scores are NaN in both


def test_last_is_the_latest_run(run, small_data, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", "--model", "last", "--data", small_data, *CPU) == 2
    (tmp_path / "runs").symlink_to(run.parent)
    with caplog.at_level("INFO"):
        assert call("evaluate", "--model", "last", "--data", small_data, "--output", "scores.json", *CPU) == 0
    assert f"--model last: runs/{run.name}" in caplog.text


def test_evaluate_each_kept_model(run, small_data, tmp_path):
    for task in TRAINED:
        report = tmp_path / f"{task}.json"
        options = ("--best-on", task, "--output", report)
        assert call("evaluate", "--model", run, "--data", small_data, *options, *CPU) == 0
        measured = json.loads(report.read_text())["tasks"][task][COURSE_TASKS[task].metric]
        assert measured == max(line["scores"][task] for line in Artefact(run).history())


def test_evaluate_writes_into_the_models_folder_by_default(run, small_data, tmp_path, capsys):
    model = shutil.copytree(Artefact(run).model_folder(), tmp_path / "model")
    assert call("evaluate", "--model", model, "--data", small_data, "--split", "train", *CPU) == 0
    written = model / f"evaluation-train-{small_data.name}.json"  # no run says what its own data are
    assert json.loads(written.read_text())["split"] == "train"
    assert capsys.readouterr().out.splitlines()[-1] == str(written)


def test_evaluate_says_what_was_trained_on(run, small_data, tmp_path, capsys):
    data = shutil.copytree(small_data, tmp_path / "data")
    train = task_file(data, "sentiment", "train").read_text().splitlines(keepends=True)
    dev = task_file(data, "sentiment", "dev")
    lines = dev.read_text().splitlines(keepends=True)
    dev.write_text("".join([*lines[:-3], *train[1:4]]))
    report = tmp_path / "scores.json"
    assert call("evaluate", "--model", run, "--data", data, "--output", report, *CPU) == 0
    said = json.loads(report.read_text())
    overlap = said["overlap"]
    assert (overlap["sentiment"]["rows_seen"], overlap["sentiment"]["rows"]) == (3, len(lines) - 1)
    assert call("predict", "--model", run, "--data", data, "--output", tmp_path, *CPU) == 0
    _, rows = read_predictions(tmp_path / "sst-dev-output.csv")
    labels = [float(label) for label in column(data, "sentiment", "dev", "sentiment")]
    right = [value == label for (_, value), label in zip(rows, labels, strict=True)]
    assert overlap["sentiment"]["scores"]["accuracy"] == pytest.approx(np.mean(right))
    assert overlap["sentiment"]["clean"]["accuracy"] == pytest.approx(np.mean(right[:-3]))
    assert overlap["paraphrase"]["rows_seen"] == 0
    np.testing.assert_equal(overlap["paraphrase"]["clean"], overlap["paraphrase"]["scores"])
    assert said["unknown"]
    assert call("evaluate", "--model", run, "--data", small_data, "--split", "train", "--output", report, *CPU) == 0
    printed = capsys.readouterr().out
    assert "not known: " in printed
    whole = json.loads(report.read_text())["overlap"]["similarity"]
    assert whole["rows_seen"] == whole["rows"]
    assert whole["clean"] is None
    assert f"{whole['rows']:,} of {whole['rows']:,}" in printed


def test_embed_equals_the_encoder(tiny_encoder, tmp_path, capsys):
    sentences = ["A band seemed to have a good time.", "short", "A couple is serving tea. " * 30, "short"]
    (tmp_path / "text.txt").write_text("\n".join(sentences) + "\n")
    output = tmp_path / "folder" / "e.npy"
    assert call("embed", tmp_path / "text.txt", output, "--model", tiny_encoder, "--normalize", *CPU) == 0
    embeddings = np.load(output)
    assert embeddings.dtype == np.float32
    expected = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32").encode(sentences, normalize=True)
    np.testing.assert_array_equal(embeddings, expected)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)
    assert capsys.readouterr().out == f"{output}: 4 embeddings of size 32\n"


def test_data_check(small_data, tmp_path, capsys):
    assert call("data", "check", small_data) == 0
    assert "sts-dev.csv" in capsys.readouterr().out
    data = shutil.copytree(small_data, tmp_path / "data")
    rows = (data / "sts-dev.csv").read_text().splitlines()
    rows[1] = rows[1].rpartition("\t")[0] + "\t4,6"
    (data / "sts-dev.csv").write_text("\n".join(rows))
    assert call("data", "check", data) == 2
    assert 'sts-dev.csv:2: similarity is "4,6"' in capsys.readouterr().err


def assert_refused(capsys, message: str, *arguments: object, code: int = 2) -> None:
    assert call(*arguments) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("error: ")
    assert message in captured.err


@pytest.mark.parametrize(("message", "options"), REFUSED_BY_FINETUNE, ids=str)
def test_finetune_refuses_and_writes_nothing(message, options, tiny_encoder, small_data, tmp_path, capsys):
    where = ["--start", tiny_encoder, "--data", small_data, "--runs", tmp_path / "runs", "--epochs", 1, *CPU]
    assert_refused(capsys, message, "finetune", *where, *options.split())
    assert not list(tmp_path.glob("runs/[!.]*"))


@pytest.mark.parametrize(("message", "arguments"), REFUSED, ids=str)
def test_wrong_commands_and_values(message, arguments, capsys):
    assert_refused(capsys, message, *arguments.split())


def test_a_file_where_a_folder_should_be(tiny_encoder, small_data, tmp_path, capsys):
    (tmp_path / "runs").touch()
    where = ["--start", tiny_encoder, "--data", small_data, "--runs", tmp_path / "runs", *CPU]
    assert_refused(capsys, "Not a directory", "finetune", *where, code=1)


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_models_that_are_none_make_no_files(command, run, small_data, tmp_path, capsys):
    output, model = tmp_path / "output", shutil.copytree(Artefact(run).model_folder(), tmp_path / "model")
    other = [command, "--data", small_data, "--output", output, *CPU]
    assert_refused(capsys, "/no/such/model: no such folder", *other, "--model", "/no/such/model")
    assert_refused(capsys, "keeps no model that is best on reviews", *other, "--model", run, "--best-on", "reviews")
    tensors = load_file(model / "heads.safetensors")
    save_file({name: tensor * float("nan") for name, tensor in tensors.items()}, model / "heads.safetensors")
    assert_refused(capsys, "heads.safetensors: the tensor", *other, "--model", model)
    assert not output.exists()


@pytest.mark.parametrize("missing", ["sts-dev.csv", "quora-test-student.csv"])
def test_predict_writes_all_files_or_none(missing, run, small_data, tmp_path, capsys):
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / missing).unlink()
    where = ["--model", run, "--data", data, "--output", tmp_path / "output"]
    assert_refused(capsys, f"{data / missing}: no such file", "predict", *where, *CPU)
    assert not (tmp_path / "output").exists()


def test_embed_refuses(tiny_encoder, tmp_path, capsys):
    text, output = tmp_path / "text.txt", tmp_path / "folder" / "e.npy"
    model = ("--model", tiny_encoder, *CPU)
    assert_refused(capsys, f"{text}: no such file", "embed", text, output, *model)
    text.write_text("\n  \n")
    assert_refused(capsys, f"{text}: no sentence", "embed", text, output, *model)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
