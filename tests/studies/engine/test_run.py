"""Grids: every stage once, nothing twice, a change recomputes what depends on it, one row's failure is its own."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.cli.main import main
from multitask.models.config import HeadsConfig
from multitask.objectives.config import ObjectiveConfig
from multitask.runtime.errors import Interrupted
from multitask.runtime.options import RunOptions
from studies.engine import jobs
from studies.engine.jobs import Engine
from studies.engine.local_engine import InProcess, local_engine
from studies.engine.presets import PRESETS, Preset
from studies.engine.recipes import Recipes
from studies.engine.record import Record
from studies.engine.run import run_preset, write_best_predictions
from studies.engine.tables import Row, Table, all_tables
from studies.gradient_paradigm.tables import decoupled, shapes
from studies.gradient_paradigm.training_claims import ALIGNMENT, CLOSER, GAP, PUSH, UNIFORMITY
from studies.report.results import Results
from studies.report.verdicts import probed

BROKEN = HeadsConfig(sharing="shared", pairs="joint")  # refused when the heads are built


@pytest.fixture
def preset(recipes: Recipes) -> Preset:
    together = recipes.finetune(recipes.start)
    broken = recipes.finetune(recipes.start, replace(recipes.multitask, heads=BROKEN))
    alone = recipes.finetune(recipes.nli(epochs=1), replace(recipes.multitask, tasks=("sentiment",)))
    reviews = recipes.finetune(recipes.start, recipes.reviews)
    return tables_of(
        recipes,
        Table("1", "First", "", (Row("Together", together), Row("Broken", broken))),
        Table("2", "Second", "", (Row("All three", together), Row("Alone", alone), Row("Reviews", reviews))),
        Table("3", "Third", "", (Row("After the broken one", recipes.pretrain(broken, recipes.unsupervised)),)),
    )


def tables_of(recipes: Recipes, *tables: Table) -> Preset:
    return Preset("sample", recipes, tables)


def run(preset: Preset, runs: Path, seeds: int = 1, engine: Engine | None = None) -> Record:
    return run_preset(preset, seeds, RunOptions("cpu", "fp32", runs), engine or InProcess())


def stages(runs: Path) -> dict[str, int]:
    """How many artefacts of each stage are complete."""
    return Counter(path.parent.name.partition("-")[0] for path in runs.glob("*/DONE"))


def contents(runs: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file of the artefacts."""
    files = (path for path in runs.glob("*-*-*/**/*") if path.is_file())
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def without(record: Record, labels: Sequence[str]) -> Record:
    tables = (replace(t, rows=tuple(row for row in t.rows if row.label not in labels)) for t in record.tables)
    return replace(record, tables=tuple(tables))


def test_a_stage_of_several_rows_is_computed_once_and_a_second_run_computes_nothing(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(preset, tmp_path)
    together, all_three = first.tables[0].rows[0].runs, first.tables[1].rows[0].runs
    assert together == all_three
    assert stages(tmp_path) == {"finetune": 3, "pretrain": 1, "evaluate": 3}
    before = contents(tmp_path)
    monkeypatch.setattr(jobs, "compute", lambda job: pytest.fail(f"{job.node.stage} again") if job else None)
    again = run(tables_of(preset.recipes, preset.tables[1]), tmp_path)
    assert again.tables == first.tables[1:2]
    assert contents(tmp_path) == before


def test_without_its_notes_the_store_finds_what_it_has_all_the_same(preset: Preset, tmp_path: Path) -> None:
    [second] = run(tables_of(preset.recipes, preset.tables[1]), tmp_path).tables
    before = contents(tmp_path)
    for note in (tmp_path / ".nodes").iterdir():
        note.unlink()
    [again] = run(tables_of(preset.recipes, preset.tables[1]), tmp_path).tables
    assert [r.evaluation for row in again.rows for r in row.runs] == [
        r.evaluation for row in second.rows for r in row.runs
    ]
    assert contents(tmp_path) == before


def test_a_changed_setting_recomputes_only_what_depends_on_it(recipes: Recipes, tmp_path: Path) -> None:
    def preset(recipes: Recipes) -> Preset:
        rows = (Row("None", recipes.finetune(recipes.start)), Row("NLI", recipes.finetune(recipes.nli(epochs=1))))
        return tables_of(recipes, Table("1", "", "", rows))

    first = run(preset(recipes), tmp_path)
    warmer = replace(recipes.supervised, objective=ObjectiveConfig.of("infonce", temperature=0.1))
    second = run(preset(replace(recipes, supervised=warmer)), tmp_path)
    assert first.tables[0].rows[0] == second.tables[0].rows[0]
    assert stages(tmp_path) == {"finetune": 3, "pretrain": 2, "evaluate": 3}
    smaller = replace(recipes.multitask, batch_size=16)
    run(preset(replace(recipes, multitask=smaller)), tmp_path)
    assert stages(tmp_path) == {"finetune": 5, "pretrain": 2, "evaluate": 5}


def test_a_failing_row_is_recorded_with_its_log_and_does_not_stop_the_others(preset: Preset, tmp_path: Path) -> None:
    record = run(preset, tmp_path)
    assert [label for label, _ in record.failures] == ["Broken", "After the broken one"]
    for _, failed in record.failures:
        assert failed.model is None
        assert failed.error is not None
        assert "sharing=shared needs pairs=embeddings" in failed.error
        assert failed.log is not None
        assert "sharing=shared needs pairs=embeddings" in (tmp_path / failed.log).read_text()
    assert all(run.error is None for row in record.tables[1].rows for run in row.runs)
    assert Record.read(tmp_path, "sample") == record


def test_an_unexpected_error_of_a_stage_is_logged_with_its_traceback(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(job: jobs.Job) -> None:
        raise MemoryError("out of memory")

    monkeypatch.setattr(jobs, "compute", explode)
    with caplog.at_level(logging.ERROR):
        record = run(preset, tmp_path)
    assert {run.error for _, run in record.failures} == {"MemoryError: out of memory"}
    assert len(record.failures) == 6
    assert "Traceback" in caplog.text
    assert "Traceback" in (tmp_path / str(record.failures[0][1].log)).read_text()


def test_a_stop_signal_stops_all_rows(preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(job: jobs.Job) -> None:
        raise Interrupted(15)

    monkeypatch.setattr(jobs, "compute", stop)
    with pytest.raises(Interrupted):
        run(preset, tmp_path)


def test_what_is_computed_of_an_unfinished_row_is_recorded(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_after_pretraining(job: jobs.Job) -> object:
        if job.node.stage == "finetune":
            raise Interrupted(15)
        return compute(job)

    compute = jobs.compute
    monkeypatch.setattr(jobs, "compute", stop_after_pretraining)
    table = Table("1", "", "", (Row("NLI", recipes.finetune(recipes.nli(epochs=1))),))
    with pytest.raises(Interrupted):
        run(tables_of(recipes, table), tmp_path)
    [[unfinished]] = [row.runs for row in Record.read(tmp_path, "sample").tables[0].rows]
    assert [stage.stage for stage in unfinished.chain] == ["pretrain"]
    assert (unfinished.model, unfinished.evaluation, unfinished.error) == (None, None, None)


def test_the_record_keeps_the_tables_of_earlier_runs(preset: Preset, tmp_path: Path) -> None:
    first, second, _ = preset.tables
    alone = replace(second, rows=second.rows[1:2])
    later = run(tables_of(preset.recipes, alone), tmp_path)
    earlier = run(tables_of(preset.recipes, first), tmp_path)
    assert [table.key for table in earlier.tables] == ["1"]  # of this run alone: what failed earlier is not said again
    united = Record.read(tmp_path, "sample")
    assert united.tables == (*earlier.tables, *later.tables)
    again = run(tables_of(preset.recipes, alone), tmp_path, seeds=2)
    assert Record.read(tmp_path, "sample").tables == (*earlier.tables, *again.tables)

    other = replace(preset.recipes, data=shutil.copytree(preset.recipes.data, tmp_path / "data"))
    elsewhere = replace(earlier, start="other-weights")
    assert elsewhere.with_tables_of(united, tmp_path, ["1", "2"]) == elsewhere
    assert run(tables_of(other, first), tmp_path) == Record.read(tmp_path, "sample")
    both = run(tables_of(preset.recipes, first, alone), tmp_path)
    (tmp_path / both.tables[1].rows[0].runs[0].chain[0].artefact / "DONE").unlink()
    assert run(tables_of(preset.recipes, first), tmp_path) == Record.read(tmp_path, "sample")


def test_a_record_of_another_version_is_neither_read_nor_kept(recipes: Recipes, tmp_path: Path) -> None:
    table = Table("1", "", "", (Row("Together", recipes.finetune(recipes.start)),))
    record = run(tables_of(recipes, table), tmp_path)
    replace(record, format_version=record.format_version - 1).write(tmp_path)
    with pytest.raises(InputError, match=r"written by another version; run `multitask experiments run sample` again"):
        Record.read(tmp_path, "sample")
    assert run(tables_of(recipes, replace(table, key="2")), tmp_path) == Record.read(tmp_path, "sample")


def test_seeds_are_separate_runs_and_more_seeds_keep_the_old_ones(recipes: Recipes, tmp_path: Path) -> None:
    preset = tables_of(recipes, Table("1", "Only", "", (Row("NLI", recipes.finetune(recipes.nli(epochs=1))),)))
    [one] = run(preset, tmp_path).tables[0].rows[0].runs
    two = run(preset, tmp_path, seeds=2).tables[0].rows[0].runs
    assert [result.seed for result in two] == [0, 1]
    assert two[0] == one
    assert not {stage.artefact for stage in one.chain} & {stage.artefact for stage in two[1].chain}
    for seed, result in enumerate(two):
        configs = [json.loads((tmp_path / s.artefact / "config.json").read_text()) for s in result.chain[:2]]
        assert [config["seed"] for config in configs] == [seed, seed]


def test_an_evaluation_repeats_the_best_epochs_scores_and_keeps_its_predictions(preset: Preset, tmp_path: Path) -> None:
    [together] = run(tables_of(preset.recipes, preset.tables[0]), tmp_path).tables[0].rows[0].runs
    assert together.model is not None
    assert together.evaluation is not None
    history = [json.loads(line) for line in (tmp_path / together.model / "metrics.jsonl").read_text().splitlines()]
    evaluation = json.loads((tmp_path / together.evaluation / "evaluation.json").read_text())
    assert evaluation["metrics"] == max(history, key=lambda line: line["scores"]["overall"])["dev"]
    assert evaluation["overall"] == pytest.approx(np.mean(list(evaluation["scores"].values())))
    with np.load(tmp_path / together.evaluation / "predictions.npz") as arrays:
        right = arrays["sentiment_predictions"] == arrays["sentiment_labels"]
        pearson = np.corrcoef(arrays["similarity_predictions"], arrays["similarity_labels"])[0, 1]
    assert evaluation["scores"]["sentiment"] == pytest.approx(right.mean())
    assert evaluation["scores"]["similarity"] == pytest.approx(pearson, abs=1e-5)


@pytest.fixture(scope="module")
def whole(recipes: Recipes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Preset, Record, Path]:
    """All tables, computed."""
    runs = tmp_path_factory.mktemp("whole") / "runs"
    # As they are, these encoders would take half of all the time.
    small = {
        name: replace(shape, hidden_size=24, num_hidden_layers=1, intermediate_size=32)
        for name, shape in shapes.SHAPES.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SHAPES", small)
        tables = all_tables(recipes)
    # The rows of a long table on request differ in one setting: some of them will do.
    tables = tuple(replace(t, rows=t.rows[::5]) if t.on_request and len(t.rows) > 9 else t for t in tables)
    preset = tables_of(recipes, *tables)
    return preset, run(preset, runs), runs


def test_every_row_of_every_table_is_computed(whole: tuple[Preset, Record, Path]) -> None:
    preset, record, runs = whole
    assert record.failures == []
    for table, planned in zip(record.tables, preset.tables, strict=True):
        for row, expected in zip(table.rows, planned.rows, strict=True):
            assert row.published == expected.published
            if expected.model is None:
                assert row.runs == ()
                continue
            [result] = row.runs
            if table.kind == "simulations":
                assert (runs / str(result.model) / "DONE").is_file()
                continue
            evaluation = json.loads((runs / str(result.evaluation) / "evaluation.json").read_text())
            assert set(table.columns) <= set(evaluation["scores"])
    assert {path.name for path in runs.glob("*-*-*") if path.is_dir()} == record.artefacts()


def test_runs_leave_what_the_study_reads(whole: tuple[Preset, Record, Path]) -> None:
    results = Results.read(whole[2], "sample")
    assert results.simulation is not None
    [table] = [table for table in results.tables if table.name == "gradient"]
    for row in table.rows:
        for statistic in (GAP, PUSH, CLOSER, ALIGNMENT, UNIFORMITY):
            assert [step for step, _ in probed(row.runs[0], statistic)] == [2]
    [table] = [table for table in results.tables if table.name == "decoupled"]
    assert all(len(curve) == decoupled.EPOCHS for row in table.rows for curve in row.curves("similarity"))
    assert all(row.curves("similarity") for row in table.rows)


def test_an_ensemble_takes_the_best_of_each_task(whole: tuple[Preset, Record, Path]) -> None:
    _, record, runs = whole
    *members, single, ensemble, _ = record.tables[1].rows
    scores = {
        row.label: json.loads((runs / str(row.runs[0].evaluation) / "evaluation.json").read_text())["scores"]
        for row in (*members, single, ensemble)
    }
    best = {task: max(scores[row.label][task] for row in (*members, single)) for task in scores[ensemble.label]}
    assert scores[ensemble.label] == pytest.approx(best)


def test_prediction_files_of_the_best_models(whole: tuple[Preset, Record, Path], tmp_path: Path) -> None:
    preset, record, runs = whole
    paths = write_best_predictions(preset, record, RunOptions("cpu", "fp32", runs), tmp_path)
    stems = ("sst", "para", "sts", "cfimdb")
    names = {f"{stem}-{split}-output.csv" for stem in stems for split in ("dev", "test")}
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()} == names


def test_missing_data_and_weights_are_one_error_before_anything_runs(preset: Preset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data"):
        run(replace(preset, recipes=replace(preset.recipes, data=tmp_path / "none")), tmp_path)
    start = replace(preset.recipes.start, name=str(tmp_path))
    with pytest.raises(InputError, match=r"config\.json"):
        run(replace(preset, recipes=replace(preset.recipes, start=start)), tmp_path)
    with pytest.raises(InputError, match="at least 1"):
        run(preset, tmp_path, seeds=0)
    with pytest.raises(InputError, match="--workers 0"):
        local_engine(0, "cpu")
    assert not list(tmp_path.iterdir())


def test_command_line_runs_plans_reports_and_says_what_failed(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PRESETS, "sample", replace(recipes, reviews=replace(recipes.reviews, heads=BROKEN)))
    places = ["--runs", str(tmp_path / "runs"), "--report", str(tmp_path / "report")]
    computing = ["--tables", "3,reviews", "--device", "cpu", "--precision", "fp32"]
    arguments = ["experiments", "run", "sample", *places, "--predictions", str(tmp_path / "predictions"), *computing]
    plan = ["experiments", "plan", "sample", *places[:2], *computing]
    assert main(plan) == 0
    assert "to do: 8 of 8 stages" in capsys.readouterr().out
    assert main(arguments) == 1
    output = capsys.readouterr()
    page = tmp_path / "report" / "index.html"
    assert output.out.splitlines()[-1] == f"report: {page}"
    assert "error: Reviews, seed 0:" in output.err
    assert main(plan) == 0
    assert "to do: 2 of 8 stages" in capsys.readouterr().out
    assert main(["report", "sample", *places]) == 0
    assert page.is_file()
    assert main(["report", "paper", *places]) == 2
