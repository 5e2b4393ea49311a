"""Experiments: every row once, nothing twice, one row's failure is its own; the report says what the runs say."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.cli import main
from multitask.config import FinetuneConfig, HeadsConfig, RunOptions
from multitask.errors import Interrupted
from multitask.experiments import run as run_module
from multitask.experiments.presets import PRESETS, Preset
from multitask.experiments.record import Record
from multitask.experiments.run import run_preset, write_best_predictions
from multitask.experiments.tables import Row, Table

TINY = FinetuneConfig(epochs=1, batch_size=32)
ALONE = replace(TINY, tasks=("sentiment",))
BROKEN = replace(TINY, heads=HeadsConfig(sharing="shared", pairs="joint"))  # refused when the heads are built
REVIEWS = replace(TINY, tasks=("reviews",))


@pytest.fixture
def preset(tiny_encoder: Path, small_data: Path) -> Preset:
    tables = (
        Table("First", "", (Row("Together", TINY), Row("Broken", BROKEN))),
        Table("Second", "", (Row("All three", TINY), Row("Alone", ALONE), Row("Reviews", REVIEWS))),
    )
    return Preset("sample", str(tiny_encoder), small_data, tables)


def run(preset: Preset, runs: Path, seeds: int = 1) -> Record:
    return run_preset(preset, seeds, RunOptions(device="cpu", precision="fp32", runs=runs))


def modification_times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_each_row_is_computed_once_and_a_second_run_computes_nothing(preset: Preset, tmp_path: Path) -> None:
    first = run(preset, tmp_path)
    together, all_three = first.tables[0].rows[0].runs, first.tables[1].rows[0].runs
    assert together == all_three  # equal rows of two tables share their runs
    done = [path.parent.name for path in tmp_path.glob("*/DONE")]
    assert sorted(name.split("-")[0] for name in done) == ["evaluate"] * 3 + ["finetune"] * 3
    before = modification_times(tmp_path)
    assert run(preset, tmp_path) == first
    after = modification_times(tmp_path)
    assert [
        path
        for path in after
        if after[path] != before.get(path) and path.parent != tmp_path and path.parent.name != ".locks"
    ] == []


def test_a_failing_row_is_recorded_and_does_not_stop_the_others(preset: Preset, tmp_path: Path) -> None:
    record = run(preset, tmp_path)
    [(label, failed)] = record.failures
    assert label == "Broken"
    assert failed.training is None
    assert failed.error is not None
    assert "sharing=shared needs pairs=embeddings" in failed.error
    assert all(run.error is None for row in record.tables[1].rows for run in row.runs)
    assert Record.read(tmp_path, "sample") == record


def test_an_unexpected_error_of_a_row_is_logged_with_its_traceback(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*arguments: object) -> None:
        raise MemoryError("out of memory")

    monkeypatch.setattr(run_module, "finetune", explode)
    with caplog.at_level(logging.ERROR):
        record = run(preset, tmp_path)
    assert [run.error for _, run in record.failures] == ["MemoryError: out of memory"] * 5
    assert "Traceback" in caplog.text


def test_a_stop_signal_stops_all_rows(preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object) -> None:
        raise Interrupted(15)

    monkeypatch.setattr(run_module, "finetune", stop)
    with pytest.raises(Interrupted):
        run(preset, tmp_path)


def test_seeds_are_separate_runs_and_more_seeds_keep_the_old_ones(preset: Preset, tmp_path: Path) -> None:
    table = Table("Only", "", (Row("Alone", ALONE),))
    [one] = run(replace(preset, tables=(table,)), tmp_path).tables[0].rows[0].runs
    two = run(replace(preset, tables=(table,)), tmp_path, seeds=2).tables[0].rows[0].runs
    assert [result.seed for result in two] == [0, 1]
    assert two[0] == one
    assert two[1].training != one.training


def test_an_evaluation_repeats_the_best_epochs_scores_and_keeps_its_predictions(preset: Preset, tmp_path: Path) -> None:
    [together] = run(preset, tmp_path).tables[0].rows[0].runs
    assert together.training is not None
    assert together.evaluation is not None
    history = [json.loads(line) for line in (tmp_path / together.training / "metrics.jsonl").read_text().splitlines()]
    evaluation = json.loads((tmp_path / together.evaluation / "evaluation.json").read_text())
    assert evaluation["metrics"] == max(history, key=lambda line: line["scores"]["overall"])["dev"]
    assert evaluation["overall"] == pytest.approx(np.mean(list(evaluation["scores"].values())))
    with np.load(tmp_path / together.evaluation / "predictions.npz") as arrays:
        right = arrays["sentiment_predictions"] == arrays["sentiment_labels"]
        pearson = np.corrcoef(arrays["similarity_predictions"], arrays["similarity_labels"])[0, 1]
    assert evaluation["scores"]["sentiment"] == pytest.approx(right.mean())
    assert evaluation["scores"]["similarity"] == pytest.approx(pearson, abs=1e-5)


def test_prediction_files_of_the_best_models(preset: Preset, tmp_path: Path) -> None:
    record = run(preset, tmp_path / "runs")
    options = RunOptions(device="cpu", precision="fp32", runs=tmp_path / "runs")
    paths = write_best_predictions(preset, record, options, tmp_path / "predictions")
    stems = ("sst", "para", "sts", "cfimdb")
    assert {path.name for path in paths} == {
        f"{stem}-{split}-output.csv" for stem in stems for split in ("dev", "test")
    }


@pytest.mark.parametrize("name", PRESETS)
def test_presets_rows_are_distinct_within_a_table(name: str) -> None:
    for table in PRESETS[name].tables:
        assert len({row.label for row in table.rows}) == len({row.finetune for row in table.rows}) == len(table.rows)


def test_missing_data_and_weights_are_one_error_before_anything_runs(preset: Preset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="multitask data fetch"):
        run(replace(PRESETS["paper"], data=tmp_path / "none"), tmp_path)
    with pytest.raises(InputError, match=r"config\.json"):
        run(replace(preset, start=str(tmp_path)), tmp_path)
    with pytest.raises(InputError, match="at least 1"):
        run(preset, tmp_path, seeds=0)
    assert not list(tmp_path.iterdir())


def test_command_line_runs_reports_and_says_what_failed(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PRESETS, "sample", preset)
    places = ["--runs", str(tmp_path / "runs"), "--report", str(tmp_path / "report")]
    arguments = ["experiments", "sample", *places, "--predictions", str(tmp_path / "predictions")]
    assert main([*arguments, "--device", "cpu", "--precision", "fp32"]) == 1
    output = capsys.readouterr()
    page = tmp_path / "report" / "index.html"
    assert output.out.splitlines()[-1] == f"report: {page}"
    assert "error: Broken, seed 0:" in output.err
    before = page.read_bytes()
    assert main(["report", "sample", *places]) == 0
    assert page.read_bytes() == before
    assert main(["report", "paper", *places]) == 2
