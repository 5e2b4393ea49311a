"""`evaluate` and `predict` use the data that the run was trained with, and replace nothing saved in silence."""

import csv
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from multitask.cli.main import main
from tests.conftest import task_file

CPU = ("--device", "cpu", "--precision", "fp32")


@pytest.fixture(scope="module")
def trained(tiny_encoder: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the folder of data that it was trained with."""
    data, runs = tmp_path_factory.mktemp("course") / "rows", tmp_path_factory.mktemp("runs")
    shutil.copytree(small_data, data)
    options = ("--tasks", "sentiment", "similarity", "--epochs", "1", "--epoch-size", "16")
    where = ("--start", str(tiny_encoder), "--data", str(data), "--runs", str(runs))
    assert main(["finetune", *where, *options, *CPU]) == 0
    return next(runs.glob("finetune-*")), data


@pytest.fixture
def run(trained: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the run, into which scores may be written."""
    return shutil.copytree(trained[0], tmp_path / trained[0].name)


@pytest.fixture
def without(trained: tuple[Path, Path]):
    """Calls something while a file of the data has other text; None: no data at all."""

    def call(name: str, text: str | None, then):
        data = trained[1]
        kept = shutil.copytree(data, data.with_name("kept"))
        try:
            shutil.rmtree(data) if text is None else (data / name).write_text(text)
            return then()
        finally:
            shutil.rmtree(data, ignore_errors=True)
            kept.rename(data)

    return call


def test_evaluate_scores_the_rows_that_the_run_was_trained_for(run, trained, tmp_path, caplog):
    caplog.set_level("INFO")
    assert main(["evaluate", "--model", str(run), *CPU]) == 0
    assert caplog.messages[0] == f"data: {trained[1]}"
    (written,) = run.glob("checkpoints/*/evaluation-dev.json")
    assert (
        main(["evaluate", "--model", str(run), "--data", str(trained[1]), "--output", str(tmp_path / "b"), *CPU]) == 0
    )
    assert json.loads(written.read_text()) == json.loads((tmp_path / "b").read_text())
    assert json.loads(written.read_text())["data"] == str(trained[1])


def test_predict_writes_the_rows_that_the_run_was_trained_for(run, trained, tmp_path, caplog):
    caplog.set_level("INFO")
    assert main(["predict", "--model", str(run), "--output", str(tmp_path / "out"), *CPU]) == 0
    assert f"data: {trained[1]}" in caplog.messages
    ids = [line.split(" , ")[0] for line in (tmp_path / "out" / "sst-dev-output.csv").read_text().splitlines()[1:]]
    rows = task_file(trained[1], "sentiment", "dev").read_text().splitlines()[1:]
    assert ids == [row.split("\t")[1] for row in rows]


@pytest.mark.parametrize("command", ["evaluate", "predict"])
@pytest.mark.parametrize("changed", [None, "id\tsentence\tsentiment\n"])
def test_data_that_has_changed_or_gone_is_refused(command, changed, run, trained, without, tmp_path, capsys):
    output = tmp_path / "out"
    arguments = [command, "--model", str(run), "--output", str(output), *CPU]
    assert without("ids-sst-dev.csv", changed, lambda: main(arguments)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {trained[1]}")
    assert "--data" in said
    assert said.count("\n") == 1
    assert not output.exists()


def test_scores_on_other_data_have_a_name_of_their_own(run, small_data, tmp_path):
    assert main(["evaluate", "--model", str(run), *CPU]) == 0
    (own,) = run.glob("checkpoints/*/evaluation-dev.json")
    before = own.read_bytes()
    other = shutil.copytree(small_data, tmp_path / "other")
    dev = task_file(other, "sentiment", "dev")
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:20]))
    assert main(["evaluate", "--model", str(run), "--data", str(other), *CPU]) == 0
    assert own.read_bytes() == before
    assert json.loads((own.parent / "evaluation-dev-other.json").read_text())["data"] == str(other)


def test_what_is_replaced_is_named(run, small_data, tmp_path, caplog):
    arguments = ["predict", "--model", str(run), "--output", str(tmp_path / "out"), *CPU]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert "replaced" not in caplog.text  # by the same bytes
    (tmp_path / "out" / "sst-dev-output.csv").write_text("of another model")
    assert main(arguments) == 0
    assert f"{tmp_path / 'out' / 'sst-dev-output.csv'}: replaced" in caplog.text
    answers = tmp_path / "answers.csv"
    answers.write_text("mine")
    (tmp_path / "in.txt").write_text("A gem.\n")
    one = ["--task", "sentiment", "--input", str(tmp_path / "in.txt"), "--output", str(answers)]
    assert main(["predict", "--model", str(run), *one, *CPU]) == 0
    assert f"{answers}: replaced" in caplog.text


def test_a_file_that_is_scored_needs_no_data(run, trained, without, small_data):
    """Its scores do not take the name of those of a split."""
    dev = task_file(small_data, "sentiment", "dev")
    file = dev.with_name("dev.csv")
    shutil.copy(dev, file)
    arguments = ["evaluate", "--model", str(run), "--task", "sentiment", "--input", str(file), "--separator", "\t"]
    assert without("", None, lambda: main([*arguments, *CPU])) == 0
    (written,) = run.glob("checkpoints/*/evaluation*.json")
    assert written.name == "evaluation-of-dev.json"


def test_evaluate_reports_each_class_and_errors_by_their_line(run, trained, tmp_path, capsys):
    details = tmp_path / "details"
    assert main(["evaluate", "--model", str(run), "--task", "sentiment", "--details", str(details), *CPU]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["sentiment", "rows", "precision", "recall", "f1"] in printed
    with (details / "sentiment-classes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            scores = [row[name] and f"{float(row[name]):.4f}" for name in ("precision", "recall", "f1")]
            assert [row["class"], row["rows"], *[s if s not in ("", "nan") else "undefined" for s in scores]] in printed
    lines = task_file(trained[1], "sentiment", "dev").read_text().splitlines()
    with (details / "sentiment-errors.csv").open(newline="") as file:
        errors = list(csv.DictReader(file))
    assert errors
    assert all(error["sentence"] in lines[int(error["row"]) - 1] for error in errors)


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"multitask {version('minbert-multitask')}\n"
