"""Grids: keys follow what decides a result, only complete runs count; so do stages of other packages."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, bootstrap

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.options import RunOptions
from multitask.base.runs import Run, Weights
from multitask.cli.experiments import RunTables, run_tables
from multitask.cli.main import main
from multitask.cli.train import stage_commands
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.engines import Engine, Failed, Job
from multitask.experiments.grid import Grid, compute_grid, plan, run_preset
from multitask.experiments.show_runs import entries
from multitask.experiments.table_definitions import (
    Experiment,
    Node,
    PresetRecord,
    RecordedRun,
    Row,
    StudyTable,
    experiment,
)
from multitask.stages import registry
from multitask.stages.settings_without_training import EvaluateConfig
from tests.multitask.experiments.conftest import Recipes, options, two_rows


def test_a_key_follows_everything_that_decides_a_result(recipes, tmp_path):
    def key(recipes: Recipes, device_options: RunOptions | None = None) -> str:
        return Grid((), 1, device_options or options(tmp_path)).key(recipes.finetune(recipes.nli())).digest()

    weights, data = tmp_path / "weights", tmp_path / "data"
    shutil.copytree(recipes.start.name, weights)
    shutil.copytree(recipes.data, data)
    moved = replace(recipes, start=Weights(str(weights)), data=data)
    assert key(moved) == key(recipes)  # names and places do not matter
    keys = {key(recipes), key(recipes, RunOptions("cpu", "bf16", tmp_path))}
    keys.add(key(replace(recipes, multitask=replace(recipes.multitask, seed=1))))
    keys.add(key(replace(recipes, supervised=replace(recipes.supervised, seed=1))))
    with (data / "nli_triplets.csv").open("a") as file:
        file.write("one,two,three\n")
    keys.add(key(moved))
    (weights / "1_Pooling").mkdir()
    (weights / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    keys.add(key(moved))
    assert len(keys) == 6


def test_the_key_is_that_of_the_command_line(recipes, runs, capsys):
    """A run of the command line is found by a grid, and the other way round."""
    grid, config = Grid((), 1, options(runs)), replace(recipes.multitask, seed=7)
    made = grid.find(recipes.finetune(recipes.nli(epochs=1)))
    assert made is not None
    same = ["finetune", "--config", str(made.folder), "--runs", str(runs), "--device", "cpu", "--precision", "fp32"]
    assert main(same) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(made.folder)
    assert main([*same, "--seed", "7"]) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    assert grid.find(recipes.finetune(recipes.nli(epochs=1), config)) == Run(folder)


def test_only_a_complete_run_is_found(recipes, runs):
    grid, node = Grid((), 1, options(runs)), recipes.finetune(recipes.start)
    found = grid.find(node)
    assert found is not None
    (found.folder / "DONE").unlink()
    assert grid.find(node) is None


def test_a_state_that_a_kill_left_to_a_complete_run_goes_with_the_next_grid_but_not_with_its_plan(recipes, runs):
    states = [run.parent / "state" for run in runs.glob("*/DONE")]
    for state in states:
        state.mkdir()
        (state / "state.pt").touch()
    plan(Grid(two_rows(recipes).experiments, 1, options(runs)))
    assert all((state / "state.pt").is_file() for state in states)
    run_preset(two_rows(recipes), 1, options(runs), Engine())
    assert len(states) == 5
    assert not any(state.exists() for state in states)


def test_a_grid_leaves_the_state_of_a_run_that_was_begun_anew_meanwhile(recipes, runs):
    evaluated, other = sorted(runs.glob("evaluate-*/DONE"))
    evaluated.unlink()

    def begin_anew(outcomes: object) -> None:
        other.unlink()
        (other.parent / "state").mkdir()

    grid = Grid(two_rows(recipes).experiments, 1, options(runs))
    with Engine() as engine:
        compute_grid(grid, engine, begin_anew)
    assert evaluated.is_file()
    assert (other.parent / "state").is_dir()


def test_a_stage_is_told_with_its_seed(recipes):
    lines = [(Row("fusion", "Fusion"), recipes.fuse(recipes.start))]
    grid = Grid([experiment("ways", "Ways", "", lines)], 2, options(Path("runs")))
    assert [grid.name(node) for node in grid.stages][::2] == ["fuse of Fusion, seed 0", "fuse of Fusion, seed 1"]


@pytest.mark.parametrize("whole", [True, False])
def test_logs_behind_a_link_are_not_added_to(recipes, runs, tmp_path, whole):
    (diary := tmp_path / "diary").mkdir()
    log = Grid((), 1, options(runs)).log(recipes.finetune(recipes.start), "again")
    path, target = (log.parent, diary) if whole else (log, diary / log.name)
    shutil.rmtree(log.parent)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    with pytest.raises(InputError, match=f"{path}: a link"):
        Grid((), 1, options(runs)).log(recipes.finetune(recipes.start), "again")


def test_a_plan_counts_rows_and_what_is_there(recipes, computed):
    planned = two_rows(recipes).experiments
    again = experiment("2", "", "", [(Row("again", "NLI again"), planned[0].models["nli"])])
    assert plan(Grid((*planned, again), 1, options(computed)))[1:] == [
        ["finetune", "None", "1", "cached"],
        ["  evaluate", "None", "1", "cached"],
        ["pretrain", "NLI", "2", "cached"],
        ["  finetune", "NLI", "2", "cached"],
        ["    evaluate", "NLI", "2", "cached"],
        ["to do: 0 of 5 stages"],
    ]
    *stages, [total] = plan(Grid(planned, 2, options(computed)))
    assert {stage[3] for stage in stages[1:]} == {"1 of 2 cached"}
    assert total == "to do: 5 of 10 stages"


def test_a_plan_counts_a_stage_that_no_seed_changes_once_a_row(recipes, tmp_path):
    start = Node("evaluate", EvaluateConfig(), (recipes.start,), recipes.data)
    rows = (Row("start", "Start"), Row("again", "Again"))
    table = StudyTable("1", "", "", rows)
    alone = Experiment(table, {row.key: start for row in rows}, evaluation=lambda model: model)
    seeded = experiment("2", "", "", [(Row("tuned", "Tuned"), recipes.finetune(recipes.start))])
    *stages, _ = plan(Grid([alone, seeded], 3, options(tmp_path)))[1:]
    assert [stage[:3] for stage in stages] == [
        ["evaluate", "Start", "2"],
        ["finetune", "Tuned", "1"],
        ["  evaluate", "Tuned", "1"],
    ]


@pytest.fixture
def show(runs, capsys) -> Callable[..., str]:
    """What `experiments show` prints of runs."""

    def shown(*named: Path | str) -> str:
        assert main(["experiments", "show", *map(str, named), "--runs", str(runs)]) == 0
        return capsys.readouterr().out

    return shown


def test_commands_list_and_show(runs, show, capsys):
    where = ["--runs", str(runs)]
    assert main(["experiments", "list", *where]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("5 runs, ")
    path = next(runs.glob("pretrain-*"))
    output = show(path.name.rsplit("-", 1)[1])
    assert "\nsources  " in output
    assert len(output.splitlines()) < 24
    assert main(["experiments", "show", str(path)]) == 0  # as training prints it
    assert capsys.readouterr().out == output
    assert "complete" in output.splitlines()[-1]
    assert show() == show("last")
    assert main(["experiments", "show", "nothing", *where]) == 2
    capsys.readouterr()
    named = [*runs.glob("finetune-*"), next(runs.glob("evaluate-*"))]
    lines = show(*(path.name for path in named)).splitlines()
    assert lines[:5] == [*(f"{place}  {run}" for place, run in zip("123", named, strict=True)), "", lines[4]]
    assert lines[4].split() == ["1", "2", "3"]
    rows = {line[:30].strip(): line[30:].split() for line in lines[4:]}
    best = [max(line["scores"]["overall"] for line in Run(path).history()) for path in runs.glob("finetune-*")]
    assert rows["best overall"] == [*(f"{score:.4f}" for score in best), "-"]
    assert len(set(rows["start"])) == 3
    assert "seed" in rows  # which evaluations do not have
    assert "epochs" in rows


def test_the_list_has_what_helps_to_delete_runs(runs, capsys):
    needed, unfinished = sorted(runs.glob("finetune-*"))
    (unfinished / "DONE").unlink()
    (unfinished / "large").write_bytes(bytes(9_000_000))
    os.utime(needed / "DONE", (0, datetime(2024, 2, 29, 13, 7).timestamp()))

    def listed() -> dict[str, list[str]]:
        assert main(["experiments", "list", "--runs", str(runs)]) == 0
        return {line[0]: line[1:] for line in map(re.compile("  +").split, capsys.readouterr().out.splitlines())}

    found = listed()
    assert found["run"] == ["state", "needed by", "date", "size"]
    assert found[needed.name][:3] == ["complete", "sample", "2024-02-29 13:07"]
    assert found[unfinished.name][0] == "unfinished"
    assert 9 < float(found[unfinished.name][3].split()[0]) < 11
    (runs / "experiments-sample.json").unlink()
    assert listed()[needed.name][1] == "-"


@pytest.mark.parametrize("lost", ["inputs.json", "config.json"])
def test_a_complete_run_that_lost_a_file_is_still_listed(runs, lost):
    damaged = next(runs.glob("evaluate-*"))
    (damaged / lost).unlink()
    assert damaged in [entry.artefact.folder for entry in entries(runs)]


@pytest.mark.parametrize("damaged", ["[1]", "{}", "[", '"name"', "null"])
def test_a_damaged_record_is_named(runs, damaged):
    (runs / "experiments-sample.json").write_text(damaged)
    with pytest.raises(InputError, match=r"experiments-sample\.json: .*; run `multitask experiments run sample` again"):
        entries(runs)


def test_scores_are_shown_with_the_intervals_of_their_dev_rows(runs, show):
    evaluation = next(runs.glob("evaluate-*"))
    [parent] = read_json(evaluation / "inputs.json")["parents"]
    with np.load(evaluation / "predictions.npz") as arrays:
        right = arrays["sentiment_labels"] == arrays["sentiment_predictions"]
    expected = np.array(binom(len(right), right.mean()).interval(0.95)) / len(
        right
    )  # as resampled rows are distributed

    def scored(run: Path) -> list[list[str]]:
        return [line.split() for line in show(run).splitlines() if " to " in line]

    lines = scored(evaluation)
    assert [line[0] for line in lines] == ["overall", "sentiment", "paraphrase", "similarity"]
    (score, low, _, high) = lines[1][1:]
    assert score == f"{right.mean():.4f}"
    np.testing.assert_allclose([float(low), float(high)], expected, atol=1.01 / len(right))
    [training] = runs.glob(f"finetune-*-{parent}")
    assert scored(training) == lines


def test_runs_are_compared_on_the_same_dev_rows(runs, show):
    """Against scipy's bootstrap of the differences row by row; a run without an evaluation is evaluated for it."""
    trained = sorted(runs.glob("finetune-*"))
    of = {read_json(path / "inputs.json")["parents"][0]: path for path in runs.glob("evaluate-*")}
    right = []
    for run in trained:
        with np.load(of[run.name.rpartition("-")[2]] / "predictions.npz") as arrays:
            right.append((arrays["sentiment_labels"] == arrays["sentiment_predictions"]).astype(float))
    shutil.rmtree(of[trained[1].name.rpartition("-")[2]])
    lines = [line.split() for line in show(*trained).splitlines() if " to " in line]
    assert [line[:4] for line in lines] == [
        [task, "2", "-", "1"] for task in ("overall", "sentiment", "paraphrase", "similarity")
    ]
    difference, low, high = (float(text) for text in lines[1][4:] if text != "to")
    assert difference == pytest.approx((right[1] - right[0]).mean(), abs=5e-5)
    expected = bootstrap((right[1] - right[0],), np.mean, method="percentile", rng=0).confidence_interval
    np.testing.assert_allclose([low, high], expected, atol=1.01 / len(right[0]))


def test_folders_that_differ_above_their_last_part_are_named(runs, show):
    first, second = sorted(runs.glob("finetune-*"))
    for run, folder in ((first, "/srv/old/data"), (second, "/srv/new/data")):
        inputs = read_json(run / "inputs.json")
        inputs["labels"] = {"start": f"/models/{folder[5:8]}", "data": folder}
        (run / "inputs.json").write_text(json.dumps(inputs))
        Run(run).finish()
    lines = [line.split() for line in show(first, second).splitlines()]
    assert ["data", "/srv/old/data", "/srv/new/data"] in lines
    assert ["start", "old", "new"] in lines


def test_of_several_evaluations_the_latest_is_shown_and_those_on_one_dev_set_are_compared(runs, show):
    trained = sorted(runs.glob("finetune-*"))
    key = trained[1].name.rpartition("-")[2]
    [first] = (path for path in runs.glob("evaluate-*") if read_json(path / "inputs.json")["parents"] == [key])
    other = Path(shutil.copytree(first, runs / "evaluate-a-0123456789abcdef"))  # the first by its name
    with np.load(other / "predictions.npz") as arrays:
        changed = {**arrays, "sentiment_labels": 1 - arrays["sentiment_labels"]}
    np.savez(other / "predictions.npz", **changed)
    Run(other).finish()
    assert "\nsentiment   2 - 1 " in show(*trained)
    for latest, earlier in ((other, first), (first, other)):
        os.utime(latest / "DONE", (1, 1))
        os.utime(earlier / "DONE", (0, 0))
        assert f"(of {latest.name}, the latest of 2 evaluations)" in show(trained[1])


def test_a_damaged_run_is_nobodys_result(recipes, runs):
    path = next(runs.glob("finetune-*/checkpoints/*/model.safetensors"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="changed since the run was complete; delete"):
        run_preset(two_rows(recipes), 1, options(runs), Engine())


class Failing(Engine):
    """All trainings fail."""

    def wait(self) -> tuple[Job, Run | Failed]:
        assert self.job is not None
        return self.job, Failed("no memory", self.job.options.runs / "logs" / "a.log")


def test_scores_of_a_deleted_model_that_cannot_be_trained_again_are_no_result(recipes, runs):
    [nli] = runs.glob("finetune-nli-*")
    shutil.rmtree(nli)
    record = run_preset(two_rows(recipes), 1, options(runs), Failing())
    complete, failed = record.runs
    assert (complete.row, complete.error) == ("none", None)
    assert complete.evaluation is not None
    assert (failed.row, failed.error, failed.evaluation) == ("nli", "no memory", None)
    assert [name.partition("-")[0] for name in failed.chain] == ["pretrain"]


def test_while_a_deleted_model_is_trained_again_its_row_has_no_scores(recipes, runs):
    [nli] = runs.glob("finetune-nli-*")
    shutil.rmtree(nli)
    evaluated = []

    class Watched(Engine):
        def wait(self) -> tuple[Job, Run | Failed]:
            evaluated.append(PresetRecord.read(runs, "sample").runs[1].evaluation)
            return super().wait()

    # Reported after another stage, the last of which is that of the row without this model.
    [none] = runs.glob("evaluate-none-*")
    shutil.rmtree(none)
    record = run_preset(two_rows(recipes), 1, options(runs), Watched())
    assert len(evaluated) == 2
    assert evaluated[1] is None
    assert record.runs[1].evaluation is not None


# A stage in one file of another package runs from the command line, in a grid and a plan, with no edit elsewhere.


TOY = '''
from minbert.files import write_json
from minbert.settings import settings
from multitask.stages.registry import Stage, register


@settings
class ToyConfig:
    """A sum."""

    factor: int = 2
    """What the number of models is multiplied by."""
    seed: int = 0
    """Added to the product."""


def compute(models, data, config, run):
    write_json(run.folder / "result.json", config.factor * len(models) + config.seed)


STAGE = register(Stage("toy", ToyConfig, "Multiply.", common=("factor",)))
'''


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Iterator[None]:
    """The package, where Python finds it; a second entry point names a module that it lacks, as a wheel may."""
    (tmp_path / "toy_stage.py").write_text(TOY)
    (package := tmp_path / "toy-1.0.dist-info").mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[multitask.stages]\ntoy = toy_stage\nelsewhere = toy_checkout.stage\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry.stages()))
    caches = registry.stages, stage_commands
    [function.cache_clear() for function in caches]
    yield
    monkeypatch.undo()
    [function.cache_clear() for function in caches]
    sys.modules.pop("toy_stage")


@pytest.mark.usefixtures("installed")
def test_a_stage_of_another_package_has_its_place_in_grids_and_plans(tmp_path):
    config, data = registry.stage_named("toy").config, tmp_path / "data"
    data.mkdir()
    child = Node("toy", config(factor=5), (Node("toy", config(), (Weights("all-minilm-l6-v2"),), data),), data)
    table = StudyTable("toy", "Toy", "", (Row("only", "Only"),))
    experiment = Experiment(table, {"only": child}, evaluation=lambda model: model)
    grid = Grid([experiment], 2, RunOptions("cpu", "fp32", Path("runs")))
    plans = [plan(grid)]
    compute_grid(grid, Engine(), lambda results: None)
    plans.append(plan(grid))
    assert [[stage for stage, *_ in found[1:]] for found in plans] == [
        ["toy", "  toy", f"to do: {missing} of 4 stages"] for missing in (4, 0)
    ]
    results = sorted(json.loads(path.read_text()) for path in Path("runs").glob("toy-*/result.json"))
    assert results == [2, 3, 5, 6]  # factors 2 and 5, one model each, seeds 0 and 1


@pytest.mark.usefixtures("installed")
def test_a_stage_that_lacks_a_package_is_an_error(tmp_path):
    (tmp_path / "toy_checkout").mkdir()
    (tmp_path / "toy_checkout" / "stage.py").write_text("import not_installed_anywhere")
    registry.stages.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        registry.stages()


def test_failures_of_rows_with_one_name_are_each_told_and_shared_ones_once(monkeypatch, capsys):
    tables = tuple(StudyTable(key, "", "", (Row("row", "Row"),), columns=("a",)) for key in "abc")
    errors = {"a": ("too small", "logs/x.log"), "b": ("too large", "logs/y.log"), "c": ("too small", "logs/x.log")}
    runs = tuple(RecordedRun(key, "row", 0, error=error, log=log) for key, (error, log) in errors.items())
    record = PresetRecord("tasks", "weights", "data", (), tables, runs)
    monkeypatch.setattr(RunTables, "load", lambda _: SimpleNamespace(name="tasks", predicted=(), next_step=""))
    monkeypatch.setattr("multitask.experiments.grid.run_preset", lambda *_: record)
    monkeypatch.setattr("multitask.experiments.report_page.results_in", lambda *_: PresetResults(record, (), Path()))
    assert run_tables(RunTables(), lambda _, folder: folder) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: Row, seed 0: too small (runs/logs/x.log)", "error: Row, seed 0: too large (runs/logs/y.log)"
    ]  # fmt: skip


def test_the_mean_of_tasks_that_two_runs_share_is_not_called_overall(recipes, runs, show):
    of_three = min(runs.glob("finetune-*"))
    given = ["--start", recipes.start.name, "--data", recipes.data, "--runs", runs, "--name", "two"]
    of_two = ["--tasks", "sentiment", "similarity", "--epochs", 1, "--batch-size", 32, "--device", "cpu"]
    assert main([str(part) for part in ("finetune", *given, *of_two)]) == 0
    [two] = runs.glob("finetune-two-*")
    lines = [re.split("  +", line) for line in show(of_three, two).splitlines() if " to " in line]
    differences = {task: float(difference) for task, _, difference, _ in lines}
    assert [*differences] == ["mean of the shared tasks", "sentiment", "similarity"]
    mean, *parts = differences.values()
    assert mean == pytest.approx(np.mean(parts), abs=1.01e-4)
