"""Tables scored on SentEval's tasks: the scores are those of the command, and what was trained on is marked."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import chain
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from scipy.stats import spearmanr

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.data.contamination import TrainedOn
from multitask.evaluation import transfer_scores as transfer
from multitask.evaluation.suite_sets import SETS
from multitask.evaluation.suites import evaluate_suites
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.engines import Engine
from multitask.experiments.grid import Grid, check_preset, run_preset
from multitask.experiments.results_file import scores_as_data
from multitask.experiments.table_definitions import Preset, PresetRecord, Row
from multitask.models.sentence_encoder import load_encoder
from multitask.stages.settings_without_training import SuitesConfig
from studies.engine.presets import preset_of
from studies.engine.recipes import GROUPS, RETRIEVAL, STS, TRANSFER, Recipes, suites_experiment
from studies.report.study_page import write_report
from tests.multitask.evaluation.folder import write, write_sts, write_transfer

STSB, MR = SETS["sts"][5], SETS["transfer"][0]
ROWS = 20  # of a class


@pytest.fixture(scope="module", autouse=True)
def quick_fits() -> Iterator[None]:
    """Few classifiers are fitted."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FOLDS": 3, "GRID": (1.0,), "TRAINING_SET_GRID": (1.0,)}.items():
            patch.setattr(transfer, name, value)
        yield


@pytest.fixture(scope="module")
def with_suites(recipes, tmp_path_factory) -> Recipes:
    """Of three sentences that are scored, some are trained on."""
    folder, data = tmp_path_factory.mktemp("senteval"), tmp_path_factory.mktemp("data")
    write_sts(folder)
    write_transfer(folder, ROWS)
    for path in recipes.data.iterdir():
        (data / path.name).write_bytes(path.read_bytes())
    (folder / "quora-dev.csv").write_bytes((data / "quora-dev.csv").read_bytes())
    first, second = STSB.read(STSB.paths(folder)).columns
    review = MR.read(MR.paths(folder)).columns[0][1]
    write(data / "sentences.txt", [first[0], second[1], review] * 8)
    return replace(recipes, data=data, suites_data=folder, suites=SuitesConfig())


@pytest.fixture(scope="module")
def preset(with_suites) -> Preset:
    """One row."""
    line = Row("row", "Row"), with_suites.pretrain(with_suites.start, with_suites.views)
    return preset_of("sample", with_suites, (suites_experiment(with_suites, "suites", "Suites", "A note.", [line]),))


@pytest.fixture(scope="module")
def runs(preset, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    record = run_preset(preset, 1, RunOptions("cpu", "fp32", folder), Engine())
    assert not record.failures
    return folder


@pytest.fixture(scope="module")
def results(runs) -> TableResults:
    [results] = PresetResults.read(runs, "sample").tables
    return results


def test_scores_are_those_of_the_command(with_suites, runs):
    run, *_ = PresetRecord.read(runs, "sample").of_row("suites", "row")
    evaluation = read_json(runs / str(run.evaluation) / "evaluation.json")
    encoder = load_encoder(runs / str(run.model), device="cpu", precision="fp32")
    of_suites = [evaluate_suites([suite], encoder, "", with_suites.suites_data)[suite] for suite in SETS]
    expected = {task: of.main(found.scores) for of in of_suites for task, found in of.tasks.items()}
    for name in (*GROUPS[STS], *GROUPS[RETRIEVAL]):
        assert evaluation["scores"][name] == pytest.approx(expected[name], abs=1e-6)
    for name in GROUPS[TRANSFER]:  # embedded together with other sentences, one row may fall differently
        assert evaluation["scores"][name] == pytest.approx(expected[name], abs=1.5 / (2 * ROWS))
    assert evaluation["overall"] == pytest.approx(np.mean(list(evaluation["scores"].values())))
    with np.load(runs / str(run.evaluation) / "predictions.npz") as arrays:
        for name in GROUPS[STS]:
            kept = [arrays[f"{name}_{part}"] for part in ("labels", "predictions")]
            assert spearmanr(*kept).statistic == pytest.approx(evaluation["scores"][name], abs=1e-9)
        for name in GROUPS[TRANSFER]:
            right = arrays[f"{name}_labels"] == arrays[f"{name}_predictions"]
            assert right.mean() == pytest.approx(evaluation["scores"][name], abs=1e-9)
        for name in GROUPS[RETRIEVAL]:
            assert arrays[f"{name}_predictions"].mean() == pytest.approx(evaluation["scores"][name], abs=1e-9)


def test_columns_are_the_means_of_the_suites_and_their_tasks(results):
    assert results.table.score_columns == (*GROUPS, *chain(*GROUPS.values()))
    means = {column: results.mean("row", column) for column in results.table.score_columns}
    for group, names in GROUPS.items():
        assert means[group] == pytest.approx(np.mean([means[name] for name in names]))
    intervals = {column: results.interval("row", column) for column in means}
    assert all(low <= means[column] <= high for column, (low, high) in intervals.items())
    headings = [results.heading(name) for name in ("STSBenchmark", "MR", STS)]
    assert headings == ["STSBenchmark Spearman correlation", "MR accuracy", "STS"]


def test_scores_on_what_was_trained_on_are_marked(with_suites, runs, results):
    first = PresetRecord.read(runs, "sample").of_row("suites", "row")[0]
    seen = TrainedOn.of_folder(runs / str(first.model), "model")
    data = STSB.read(STSB.paths(with_suites.suites_data))
    counts = [int(seen.sentences_seen(column).sum()) for column in data.columns]
    evaluation = read_json(runs / str(first.evaluation) / "evaluation.json")
    assert min(counts) >= 1
    assert evaluation["overlap"]["STSBenchmark"]["rows_seen"] == 0  # sentences were read, no pair as a pair
    assert evaluation["overlap"]["STSBenchmark"]["sentences_seen"] == 2
    assert evaluation["overlap"]["STSBenchmark"]["untouched"] != evaluation["scores"]["STSBenchmark"]
    assert ("row", "STSBenchmark") not in results.overlaps.index
    overlap = results.overlaps.loc["row", "MR"]
    marked = evaluation["overlap"]["MR"]
    assert overlap.seen == marked["rows_seen"] == 1
    assert marked["clean"] != pytest.approx(evaluation["scores"]["MR"], abs=1e-12)
    (table,) = scores_as_data(PresetResults.read(runs, "sample")).tables
    assert table.lines.groupby("task").seen.first()[["MR", TRANSFER, STS]].tolist() == [True, True, False]


def test_a_limit_is_another_evaluation(with_suites, tmp_path):
    limited = replace(with_suites, suites=SuitesConfig(("sts",), limit=100))
    line = Row("row", "Row"), limited.pretrain(limited.start, limited.views)
    suites = suites_experiment(limited, "suites", "Suites", "A note.", [line])
    record = run_preset(preset_of("sample", limited, (suites,)), 1, RunOptions("cpu", "fp32", tmp_path), Engine())
    [run] = record.runs
    assert any(name.startswith("files STS/") for name in record.inputs)
    evaluation = read_json(tmp_path / str(run.evaluation) / "evaluation.json")
    assert set(evaluation["scores"]) == set(GROUPS[STS])
    assert evaluation["overlap"]["STS12"]["rows"] == 100
    assert evaluation["overlap"]["STSBenchmark"]["rows"] == 24
    assert Run(tmp_path / str(run.evaluation)).done
    page = unescape(write_report(tmp_path, "sample", tmp_path / "report").read_text(encoding="utf-8"))
    assert all(line in page for line in evaluation["unknown"])
    assert "At most about 100 rows of each task are used." in page
    assert evaluation["unknown"]  # nobody recorded what the start weights were trained on


def test_a_missing_folder_is_found_before_anything_runs(with_suites, preset, tmp_path):
    elsewhere = replace(with_suites, suites_data=tmp_path / "nowhere")
    experiments = tuple(replace(e, evaluation=elsewhere.on_suites) for e in preset.experiments)
    missing = replace(preset, experiments=experiments)
    with pytest.raises(InputError, match=r"nowhere: has no data set of sts; .*--suites-data"):
        run_preset(missing, 1, RunOptions("cpu", "fp32", tmp_path), Engine())


def test_a_missing_file_is_told_once_before_anything_runs(with_suites, preset, tmp_path, caplog):
    folder = tmp_path / "senteval"
    copytree(with_suites.suites_data, folder)
    (folder / "quora-dev.csv").unlink()
    partial = replace(with_suites, suites_data=folder)
    models = [partial.pretrain(partial.start, replace(partial.views, seed=seed)) for seed in (3, 4)]
    lines = [(Row(f"{place}", f"Row {place}"), model) for place, model in enumerate(models)]
    table = suites_experiment(partial, "suites", "Suites", "A note.", lines)
    with caplog.at_level(logging.WARNING, "multitask"):
        check_preset(replace(preset, experiments=(table,)))
        Grid((table,), 1, RunOptions("cpu", "fp32", tmp_path)).found()
    assert caplog.messages == [f"{folder / 'quora-dev.csv'}: no such file; QuoraRetrieval is left out"]
