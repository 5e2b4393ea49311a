"""`finetune`, `evaluate` and `predict`: tables and files agree, data are those of the run, what is lost is named."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy.stats import pearsonr

from minbert.files import nan_for_null
from multitask.base.runs import Run, Weights
from multitask.cli.main import main
from multitask.data.messages import refuse
from multitask.models.sentence_encoder import load_encoder
from tests.conftest import COURSE_TASKS, SMALL_ROWS, slow_after, task_file, with_files
from tests.multitask.declared import model_of_every_kind, tasks_file
from tests.multitask.evaluation.folder import write_retrieval

TRAINED = ("sentiment", "paraphrase", "similarity")
CPU = ("--device", "cpu", "--precision", "fp32")
HEADERS = {
    "sst": "id \t Predicted_Sentiment \n",
    "para": "id \t Predicted_Is_Paraphrase \n",
    "sts": "id \t Predicted_Similiary \n",
}


def call(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data(small_data, tmp_path_factory) -> Path:
    """The data that the run is trained with."""
    return shutil.copytree(small_data, tmp_path_factory.mktemp("course") / "rows")


@pytest.fixture(scope="module")
def training(tiny_encoder, data, tmp_path_factory) -> list[object]:
    """The command of a short fine-tuning."""
    where = ["--start", tiny_encoder, "--data", data, "--runs", tmp_path_factory.mktemp("runs")]
    settings = ["--epochs", 2, "--batch-size", 16, "--learning-rate", "3e-3", "--pooling", "mean"]
    return ["finetune", *where, *settings, *CPU]


@pytest.fixture(scope="module")
def trained(training) -> Path:
    """The run's folder."""
    assert call(*training) == 0
    (folder,) = training[training.index("--runs") + 1].glob("finetune-*")
    return folder


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of the run, into which scores may be written."""
    return shutil.copytree(trained, tmp_path / trained.name)


@pytest.fixture
def with_other_data(data) -> Callable[[str | None, Callable[[], int]], int]:
    """Calls something while the dev file of sentiment has another text; None: while there are no data at all."""

    def then(text: str | None, run: Callable[[], int]) -> int:
        kept = shutil.copytree(data, data.with_name("kept"))
        try:
            shutil.rmtree(data) if text is None else task_file(data, "sentiment", "dev").write_text(text)
            return run()
        finally:
            shutil.rmtree(data, ignore_errors=True)
            kept.rename(data)

    return then


def read_predictions(path: Path) -> tuple[str, list[tuple[str, float]]]:
    """The header and the (id, value) rows of one of the course's files."""
    header, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert all(line.endswith(" \n") for line in lines)
    return header, [(i, float(value)) for i, value in (line.removesuffix(" \n").split(" , ") for line in lines)]


def column(data: Path, task: str, split: str, name: str) -> list[str]:
    with task_file(data, task, split).open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file, delimiter="\t")]


def test_predict_writes_the_courses_six_files_for_the_runs_own_data(run, data, tmp_path, capsys, caplog):
    caplog.set_level("INFO")
    output = tmp_path / "not" / "there"
    assert call("predict", "--model", run, "--output", output, *CPU) == 0
    assert caplog.messages[0] == f"data: {data}"
    stems = {COURSE_TASKS[task].prediction_file: task for task in TRAINED}
    names = [f"{stem}-{split}-output.csv" for split in ("dev", "test") for stem in stems]
    assert sorted(path.name for path in output.iterdir()) == sorted(names)
    assert capsys.readouterr().out.splitlines() == [str(output / name) for name in names]
    legal = {"sst": {0, 1, 2, 3, 4}, "para": {0, 1}}
    for stem, task in stems.items():
        for split, file in (("dev", "dev"), ("test", "test-student")):
            header, rows = read_predictions(output / f"{stem}-{split}-output.csv")
            assert header == HEADERS[stem]
            assert [i for i, _ in rows] == column(data, task, split, "id")
            assert len(rows) == SMALL_ROWS[file]
            values = {value for _, value in rows}
            assert values <= legal[stem] if stem in legal else all(0 <= value <= 5 for value in values)
            assert len(values) > 1 or stem != "sts"  # so short a training may know one class only


def test_an_encoder_without_heads_predicts_similarities_alone(tiny_encoder, data, tmp_path, caplog, capsys):
    asked = ["predict", "--model", tiny_encoder, "--output", tmp_path / "out", *CPU]
    assert call(*asked, "--data", data) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"sts-dev-output.csv", "sts-test-output.csv"}
    encoder = load_encoder(str(tiny_encoder), device="cpu", precision="fp32")
    pairs = (encoder.encode(column(data, "similarity", "dev", f"sentence{i}")) for i in (1, 2))
    first, second = (found / np.linalg.norm(found, axis=1, keepdims=True) for found in pairs)
    _, rows = read_predictions(tmp_path / "out" / "sts-dev-output.csv")
    np.testing.assert_allclose([value for _, value in rows], 5 * (first * second).sum(axis=1).clip(0, 1), atol=1e-4)
    assert caplog.messages[-1].startswith(f"{tiny_encoder}: has no heads; not predicted: sentiment, paraphrase")
    one = tasks_file(tmp_path, {"a": ["x"], "b": ["y"]}, same={"kind": "classification", "text": "a", "label": "b"})
    assert call(*asked, "--tasks-file", one) == 2
    assert capsys.readouterr().err.startswith(f"error: {tiny_encoder}: has no heads, so it does not predict same;")


def test_two_models_do_not_replace_each_others_prediction_files(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Run(run).model_folder()
    for named, folder in (
        ([run], run.name),
        ([run, "--best-on", "sentiment"], f"{run.name}-sentiment"),
        ([model], f"{run.name}-{model.name}"),
    ):
        assert call("predict", "--model", *named, *CPU) == 0
        assert {Path(line).parent for line in capsys.readouterr().out.splitlines()} == {Path("predictions", folder)}


def test_evaluate_agrees_with_the_prediction_files_and_the_run(run, data, tmp_path, capsys, caplog):
    caplog.set_level("INFO")
    assert call("evaluate", "--model", run, *CPU) == 0
    assert caplog.messages[0] == f"data: {data}"
    *shown, report = capsys.readouterr().out.splitlines()
    assert report == str(Run(run).model_folder() / "evaluation-dev.json")
    scores = json.loads(Path(report).read_text())
    intervals = {line.split()[0]: line.split()[1] for line in shown if " to " in line}
    assert list(intervals) == ["overall", *TRAINED]
    assert intervals["overall"] == f"{scores['overall']:.4f}"
    assert scores["data"] == str(data)
    assert call("predict", "--model", run, "--output", tmp_path, *CPU) == 0
    for task in TRAINED:
        _, rows = read_predictions(tmp_path / f"{COURSE_TASKS[task].prediction_file}-dev-output.csv")
        values = np.array([value for _, value in rows])
        labels = np.array([float(label) for label in column(data, task, "dev", COURSE_TASKS[task].files.label)])
        expected = pearsonr(values, labels)[0] if task == "similarity" else np.mean(values == labels)
        assert scores["tasks"][task][COURSE_TASKS[task].metric] == pytest.approx(expected, abs=1e-6)
    lines = Run(run).history()
    best = max(lines, key=lambda line: line["scores"]["overall"])
    assert scores["overall"] == best["scores"]["overall"]
    np.testing.assert_equal(nan_for_null(scores["tasks"]), best["dev"])
    for task in TRAINED:
        assert call("evaluate", "--model", run, "--best-on", task, "--output", tmp_path / task, *CPU) == 0
        measured = json.loads((tmp_path / task).read_text())["tasks"][task][COURSE_TASKS[task].metric]
        assert measured == max(line["scores"][task] for line in lines)


def test_evaluate_says_what_was_trained_on(run, data, tmp_path, capsys):
    other = shutil.copytree(data, tmp_path / "other")
    train = task_file(other, "sentiment", "train").read_text(encoding="utf-8").splitlines(keepends=True)
    dev = task_file(other, "sentiment", "dev")
    lines = dev.read_text(encoding="utf-8").splitlines(keepends=True)
    dev.write_text("".join([*lines[:-3], *train[1:4]]), encoding="utf-8")
    report = tmp_path / "scores.json"
    assert call("evaluate", "--model", run, "--data", other, "--output", report, *CPU) == 0
    said = json.loads(report.read_text())
    overlap = said["overlap"]
    assert (overlap["sentiment"]["rows_seen"], overlap["sentiment"]["rows"]) == (3, len(lines) - 1)
    assert call("predict", "--model", run, "--data", other, "--output", tmp_path, *CPU) == 0
    _, rows = read_predictions(tmp_path / "sst-dev-output.csv")
    labels = [float(label) for label in column(other, "sentiment", "dev", "sentiment")]
    right = [value == label for (_, value), label in zip(rows, labels, strict=True)]
    assert overlap["sentiment"]["scores"]["accuracy"] == pytest.approx(np.mean(right))
    assert overlap["sentiment"]["clean"]["accuracy"] == pytest.approx(np.mean(right[:-3]))
    assert overlap["paraphrase"]["rows_seen"] == 0
    assert said["unknown"]
    assert "not known: " in capsys.readouterr().out


def test_a_pruned_run_has_the_data_of_the_run_that_it_was_made_from(run, data, tmp_path, caplog):
    where = ["--start", run, "--runs", tmp_path / "runs"]
    assert call("prune", *where, "--score", "magnitude", "--share", 0.25, "--device", "cpu") == 0
    (pruned,) = (tmp_path / "runs").glob("prune-*")
    run.rename(tmp_path / "runs" / run.name)
    caplog.set_level("INFO")
    caplog.clear()
    assert call("evaluate", "--model", pruned, *CPU) == 0
    assert caplog.messages[0] == f"data: {data}"


@pytest.mark.parametrize("command", ["evaluate", "predict"])
@pytest.mark.parametrize("changed", [None, "id\tsentence\tsentiment\n"])
def test_data_that_has_changed_or_gone_is_refused(command, changed, run, data, with_other_data, tmp_path, capsys):
    output = tmp_path / "out"
    assert with_other_data(changed, lambda: call(command, "--model", run, "--output", output, *CPU)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {data}")
    assert "--data" in said
    assert said.count("\n") == 1
    assert not output.exists()


def test_a_file_of_the_run_that_is_gone_is_not_called_changed(run, data, with_other_data, tmp_path, capsys):
    file = task_file(data, "sentiment", "dev")

    def without() -> int:
        file.unlink()
        return call("evaluate", "--model", run, *CPU)

    assert with_other_data("", without) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: no such file, and {run} was trained with it; name the")


@pytest.mark.parametrize("missing", ["sts-dev.csv", "quora-test-student.csv"])
def test_predict_writes_all_files_or_none(missing, run, data, tmp_path, capsys):
    other = shutil.copytree(data, tmp_path / "other")
    (other / missing).unlink()
    assert call("predict", "--model", run, "--data", other, "--output", tmp_path / "output", *CPU) == 2
    assert capsys.readouterr().err == f"error: {other / missing}: no such file\n"
    assert not (tmp_path / "output").exists()


def test_scores_on_other_data_have_a_name_of_their_own(run, data, tmp_path):
    assert call("evaluate", "--model", run, *CPU) == 0
    own = Run(run).model_folder() / "evaluation-dev.json"
    before = own.read_bytes()
    other = shutil.copytree(data, tmp_path / "other")
    dev = task_file(other, "sentiment", "dev")
    dev.write_text("".join(dev.read_text(encoding="utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")
    assert call("evaluate", "--model", run, "--data", other, *CPU) == 0
    assert own.read_bytes() == before
    assert json.loads((own.parent / "evaluation-dev-other.json").read_text())["data"] == str(other)
    # Of a model folder without a run, no data are its own.
    model = shutil.copytree(Run(run).model_folder(), tmp_path / "model")
    assert call("evaluate", "--model", model, "--data", data, "--split", "train", *CPU) == 0
    assert json.loads((model / f"evaluation-train-{data.name}.json").read_text())["split"] == "train"


def test_what_is_replaced_is_named(run, tmp_path, caplog):
    arguments = ["predict", "--model", run, "--output", tmp_path / "out", *CPU]
    assert call(*arguments) == call(*arguments) == 0
    assert "replaced" not in caplog.text  # by the same bytes
    (tmp_path / "out" / "sst-dev-output.csv").write_text("of another model")
    assert call(*arguments) == 0
    assert f"{tmp_path / 'out' / 'sst-dev-output.csv'}: replaced" in caplog.text


def test_a_file_that_is_scored_needs_no_data(run, data, with_other_data, tmp_path, caplog):
    """Its scores do not take the name of those of a split. What it cannot tell is said."""
    header, row, *_ = task_file(data, "sentiment", "dev").read_text(encoding="utf-8").splitlines(keepends=True)
    file = tmp_path / "dev.v2.CSV"
    file.write_text(header + row, encoding="utf-8")
    arguments = ["evaluate", "--model", run, "--task", "sentiment", "--input", file, "--separator", "\t", *CPU]
    assert with_other_data(None, lambda: call(*arguments)) == 0
    (written,) = run.glob("checkpoints/*/evaluation*.json")
    assert written.name == "evaluation-of-dev.v2.json"
    assert f"sentiment: {file}: matthews is undefined for every model, as there is only one row" in caplog.messages
    found = json.loads(written.read_text(), parse_constant=pytest.fail)
    assert found["tasks"]["sentiment"]["matthews"] is None
    assert "split" not in found


@pytest.mark.parametrize(
    ("command", "name", "option", "refused"),
    [
        ("evaluate", "i.csv", "--separator", 'separator is ""; expected one character'),
        ("predict", "i.csv", "--separator", 'separator is ""; expected one character'),
        ("predict", "i.txt", "--separator", 'separator is ""; expected one character'),
        ("evaluate", "i.csv", "--label", 'i.csv: no column ""; the columns are sentence, sentiment'),
    ],
)
def test_an_empty_option_is_not_one_that_is_left_out(run, tmp_path, capsys, command, name, option, refused):
    (tmp_path / name).write_text("sentence,sentiment\nA gem.,4\n")
    output = tmp_path / "o.csv"
    arguments = ["--task", "sentiment", "--input", tmp_path / name, option, "", "--output", output, *CPU]
    assert call(command, "--model", run, *arguments) == 2
    assert refused in capsys.readouterr().err
    assert not output.exists()


def test_a_file_is_scored_on_several_tasks_as_on_each(run, tmp_path, capsys):
    rows = "How old?,What age?,1,4.5\nA cat.,A dog.,0,1.5\nWho?,Which man?,1,4\nWhy?,It rains.,0,0.5\n"
    (tmp_path / "i.csv").write_text(f"sentence1,sentence2,is_duplicate,similarity\n{rows}")
    scores = {}
    for tasks in (["paraphrase", "similarity"], ["paraphrase"], ["similarity"]):
        arguments = ["--input", tmp_path / "i.csv", "--separator", ",", "--output", tmp_path / "o.json", *CPU]
        assert call("evaluate", "--model", run, "--task", *tasks, *arguments) == 0
        scores["+".join(tasks)] = json.loads((tmp_path / "o.json").read_text())["tasks"]
    assert scores["paraphrase+similarity"] == scores["paraphrase"] | scores["similarity"]
    assert call("evaluate", "--model", run, "--input", tmp_path / "i.csv", "--label", "x", *CPU) == 2
    assert "--label and --text need one --task" in capsys.readouterr().err
    assert call("evaluate", "--model", run, "--input", tmp_path / "i.csv", "--data", tmp_path, *CPU) == 2
    assert "--data is for dev and test sets, not for --input" in capsys.readouterr().err


def test_labels_of_a_scored_file_are_written_as_a_tasks_file_says(run, tmp_path, capsys):
    texts = {"sentence1": ["How old?", "A cat.", "Why?"], "sentence2": ["What age?", "A dog.", "Why so?"]}
    task = {
        "kind": "pair_classification",
        "text": [*texts],
        "label": "is_duplicate",
        "aliases.no": "0",
        "aliases.yes": "1",
    }
    declared = tasks_file(tmp_path, texts | {"is_duplicate": ["yes", "no", "1"]}, paraphrase=task)
    arguments = ["--task", "paraphrase", "--input", tmp_path / "rows.csv", "--output", tmp_path / "o.json", *CPU]
    assert call("evaluate", "--model", run, *arguments, "--separator", ",") == 2
    assert 'is_duplicate is "yes"; expected one of 0, 1' in capsys.readouterr().err
    assert call("evaluate", "--model", run, *arguments, "--tasks-file", declared) == 0
    assert sum(map(sum, json.loads((tmp_path / "o.json").read_text())["tasks"]["paraphrase"]["confusion"])) == 3


@pytest.mark.parametrize("declared", ["question", "ask: {question}"])
@pytest.mark.parametrize("text", slow_after(1, [["{w}. {x}"], ["x"], ["note: {x}"], ["w", "x"]]))
def test_columns_of_a_scored_file_are_read_as_those_of_a_predicted_one(declared, text, tiny_encoder, tmp_path):
    model = model_of_every_kind(tiny_encoder)
    model.tasks["topic"] = with_files(model.tasks["topic"], text=(declared,))
    model.save(tmp_path / "model")
    rows = "".join(f"{title},{type_}\n" for title in ("film,a film", "time,two times") for type_ in ("DESC", "ENTY"))
    (tmp_path / "i.csv").write_text(f"w,x,type\n{rows}")
    asked = ["--model", tmp_path / "model", "--input", tmp_path / "i.csv", "--task", "topic", "--text", *text, *CPU]
    assert call("predict", *asked, "--output", tmp_path / "o.csv") == 0
    assert call("evaluate", *asked, "--output", tmp_path / "e.json", "--details", tmp_path) == 0
    predicted = pandas.read_csv(tmp_path / "o.csv")["topic_probability"]
    wrong = pandas.read_csv(tmp_path / "topic-errors.csv")
    assert len(wrong) >= 2
    np.testing.assert_allclose(wrong["confidence"], predicted[wrong["row"] - 2], atol=1e-5)


@pytest.mark.parametrize("tasks", [["paraphrase"], ["similarity", "sentiment"], ["paraphrase", "sentiment"]])
def test_tables_of_classes_are_those_of_the_named_tasks(run, tasks, capsys):
    assert call("evaluate", "--model", run, "--task", *tasks, *CPU) == 0
    with_classes = re.findall(r"^(\w+) +rows", capsys.readouterr().out, re.MULTILINE)
    assert with_classes == [task for task in tasks if task != "similarity"]


def test_evaluate_reports_each_class_and_errors_by_their_line(run, data, tmp_path, capsys):
    details = tmp_path / "details"
    assert call("evaluate", "--model", run, "--task", "sentiment", "--details", details, *CPU) == 0
    assert "precision" in capsys.readouterr().out
    lines = task_file(data, "sentiment", "dev").read_text(encoding="utf-8").splitlines()
    with (details / "sentiment-errors.csv").open(encoding="utf-8", newline="") as file:
        errors = list(csv.DictReader(file))
    assert errors
    assert all(error["sentence"] in lines[int(error["row"]) - 1] for error in errors)


@pytest.mark.parametrize("what", ["tasks", "suite"])
def test_evaluate_has_written_its_files_before_it_prints(run, what, tmp_path, monkeypatch):
    """A reader such as `head` may end the command at its first line."""
    write_retrieval(tmp_path / "own")
    of_tasks = ["--task", "sentiment", "--details", tmp_path / "details"]
    of_suite = ["--suite", "retrieval", "--data", tmp_path / "own"]

    def written() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.is_file()}

    before, at_print = written(), []
    monkeypatch.setattr("builtins.print", lambda *_, **__: at_print.append(written()))
    chosen = of_tasks if what == "tasks" else of_suite
    assert call("evaluate", "--model", run, *chosen, "--output", tmp_path / "scores.json", *CPU) == 0
    assert len(written() - before) > 1
    assert at_print
    assert all(found == written() for found in at_print)


def test_last_is_the_latest_run(trained, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", "--model", "last", *CPU) == 2
    (tmp_path / "runs").symlink_to(trained.parent)
    with caplog.at_level("INFO"):
        assert call("evaluate", "--model", "last", "--output", "scores.json", *CPU) == 0
    assert f"--model last: runs/{trained.name}" in caplog.text
    started: list[Weights] = []
    found = Run(trained)
    for name in ("pretrain", "tune"):  # a module that is first imported below would keep what is replaced
        import_module(f"multitask.stages.{name}")
    monkeypatch.setattr(
        "multitask.stages.run_stage.run_stage", lambda _, weights, *rest: started.extend(weights) or found
    )
    assert call("pretrain", "--start", "last", "--runs", "runs") == 0
    assert started == [Weights(f"runs/{trained.name}")]
    (tmp_path / "space.toml").write_text("epochs = [1, 2]")
    monkeypatch.setattr(
        "multitask.stages.tune.TuneSearch", lambda _, settings_of, *rest: refuse(settings_of({})[0].name)
    )
    capsys.readouterr()
    assert call("tune", "space.toml", "--trials", 1, "--start", "last") == 2
    assert capsys.readouterr().err == f"error: runs/{trained.name}\n"
    monkeypatch.setattr("multitask.cli.serve._load", lambda models, *_, **__: refuse(models[0]))
    capsys.readouterr()
    for command in ("serve", "explore"):
        assert call(command, "--model", "films=last") == 2
        assert capsys.readouterr().err == f"error: films=runs/{trained.name}\n"


def test_a_file_where_a_folder_should_be(training, tmp_path, capsys):
    (tmp_path / "runs").touch()
    assert call(*training, "--runs", tmp_path / "runs") == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'runs' / '.locks'}: Not a directory\n"


def test_the_version(capsys):
    assert call("--version") == 0
    assert capsys.readouterr().out == f"multitask {version('minbert-multitask')}\n"
