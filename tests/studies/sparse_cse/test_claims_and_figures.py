"""What pruned models say of SparseCSE: verdicts follow from the scores, and curves show them."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from multitask.evaluation.statistics import resampled_scores
from studies.engine.presets import PRESETS
from studies.engine.record import Record, RecordedRow, RecordedRun, RecordedStage, RecordedTable
from studies.engine.suite_tables import GROUPS, STS, TRANSFER
from studies.engine.tables import all_tables
from studies.gradient_paradigm.simulation_claims import Judged, judge
from studies.gradient_paradigm.training_claims import ON_SUITES, TRAINED_CLAIMS
from studies.report import analysis
from studies.report.analysis import TableAnalysis, analyse
from studies.report.results import Results
from studies.report.study_page import write_study
from studies.sparse_cse.claims_and_figures import OTHERS, OWN, SCORES, SPARSITY_CLAIMS, SPARSITY_SECTIONS, START
from studies.sparse_cse.tables.sparsity import SHARES, WHOLE, label
from tests.studies.report.test_report import Page

EXAMPLES = 30
SEEDS = 4
TABLES = {table.key: table for table in all_tables(PRESETS["sample"])}
Quality = Callable[[str, str], float]  # a row's label and a task -> how good its models are, 0 to 1


def as_claimed(row: str, task: str) -> float:
    """An optimum at a low share by score, at another for TREC; nothing of the kind at random."""
    best = label("by score", 0.2 if task == "TREC" else 0.05)
    return 0.95 if row == best else 0.7 if row == WHOLE else 0.72 if "by score" in row else 0.5


def as_harmless(row: str, task: str) -> float:
    """The more is removed the worse, whatever decides what."""
    return 0.8 if row == WHOLE else 0.8 - 0.4 * int(row.partition("%")[0]) / 100


def answers(quality: float, task: str, generator: np.random.Generator) -> tuple[str, np.ndarray, np.ndarray, float]:
    """A measure, labels, predictions and their score."""
    if task in GROUPS[STS]:
        labels = np.linspace(0, 5, EXAMPLES)
        noise = np.random.default_rng(3).permutation(labels) + 0.2 * generator.normal(size=EXAMPLES)
        predictions = quality * labels + (1 - quality) * noise
        ranks = predictions.argsort().argsort()  # the labels are in order, and neither has ties
        return "spearman", labels, predictions, float(np.corrcoef(np.arange(EXAMPLES), ranks)[0, 1])
    labels = np.arange(EXAMPLES) % 2
    wrong = generator.permutation(EXAMPLES) >= round(quality * EXAMPLES)
    return "accuracy", labels, np.where(wrong, 1 - labels, labels), float(1 - wrong.mean())


def add_run(runs: Path, row: str, seed: int, quality: Quality) -> RecordedRun:
    name = re.sub(r"\W+", "-", row)
    model, evaluation = f"pretrain-{name}-{seed}", f"evaluate-{name}-{seed}"
    scores, measures, arrays = {}, {}, {}
    for task in (*GROUPS[STS], *GROUPS[TRANSFER]):
        generator = np.random.default_rng([seed, *f"{row}{task}".encode()])
        measures[task], labels, predictions, scores[task] = answers(quality(row, task), task, generator)
        arrays |= {f"{task}_labels": labels, f"{task}_predictions": predictions}
    for folder in (model, evaluation):
        (runs / folder).mkdir(parents=True)
    (runs / model / "config.json").write_text(json.dumps({"seed": seed}))
    (runs / model / "inputs.json").write_text("{}")
    said = {"overall": float(np.mean(list(scores.values()))), "scores": scores, "measures": measures, "metrics": {}}
    (runs / evaluation / "config.json").write_text("{}")
    (runs / evaluation / "evaluation.json").write_text(json.dumps(said))
    np.savez(runs / evaluation / "predictions.npz", **arrays)
    chain = (RecordedStage("pretrain", model, 3.0), RecordedStage("evaluate", evaluation, 1.0))
    return RecordedRun(seed, model, evaluation, chain=chain)


def results(folder: Path, quality: Quality, key: str = OWN, without: str = "none") -> Results:
    runs = folder / "runs"
    runs.mkdir()
    of = TABLES[key]
    rows = tuple(
        RecordedRow(
            row.label,
            tuple(add_run(runs, row.label, seed, quality) for seed in range(0 if without in row.label else SEEDS)),
        )
        for row in of.rows
    )
    table = RecordedTable(of.title, of.note, rows, key, None, of.columns, "table", dict(of.groups))
    Record("sample", "some-weights", "data", (), (table,)).write(runs)
    return Results.read(runs, "sample")


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """Resample a fifth as often as in a report: scores here are far apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "resampled_scores", partial(resampled_scores, samples=2000))
        yield


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results(tmp_path_factory.mktemp("claimed"), as_claimed)


@pytest.fixture(scope="module")
def table(claimed: Results) -> TableAnalysis:
    [table] = analyse(claimed)
    return table


def judged(table: TableAnalysis, key: str) -> list[Judged]:
    """The claims that a table decides; the others have no results."""
    own, start = SPARSITY_CLAIMS[:4], SPARSITY_CLAIMS[4:]
    decided, others = (own, start) if key == OWN else (start, own)
    assert {claim.status for claim in judge(others, {key: table})} == {"not tested here"}
    return judge(decided, {key: table})


@pytest.mark.parametrize("key", [OWN, START])
def test_claims_are_reproduced_where_the_scores_are_as_claimed(table: TableAnalysis, key: str) -> None:
    found = judged(table, key)
    assert [claim.status for claim in found] == ["reproduced"] * 4
    assert "highest in single seeds at 5%, 5%, 5%, 5%" in found[0].evidence
    assert "TREC 20%" in found[-1].evidence


def test_claims_are_not_reproduced_where_removing_only_harms(tmp_path: Path) -> None:
    [table] = analyse(results(tmp_path, as_harmless))
    found = judged(table, OWN)
    assert [claim.status for claim in found] == ["not reproduced"] * 4
    assert "pairs of tasks told apart: none" in found[-1].evidence


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_missing_row_leaves_claims_untested(share: float, recorded: bool, table: TableAnalysis) -> None:
    missing = label("by score", share)
    rows = [replace(row, runs=()) if row.label == missing else row for row in table.table.rows]
    rows = [row for row in rows if recorded or row.runs]
    less = TableAnalysis(replace(table.table, rows=tuple(rows)), table.samples)
    judged = judge(SPARSITY_CLAIMS, {OWN: less})
    assert {claim.status for claim in judged[:2]} == {"not tested here"}
    assert judged[2].status == ("not tested here" if share == 0.05 else "reproduced")


def test_a_half_finished_table_has_its_report(tmp_path: Path) -> None:
    found = results(tmp_path, as_harmless, without="random")
    rows = tuple(replace(row, runs=()) if row.label == WHOLE else row for row in found.tables[0].rows)
    half = replace(found, tables=(replace(found.tables[0], rows=rows),))
    assert write_study(half, analyse(half), [], tmp_path)
    [figure] = Page((tmp_path / "study.html").read_text(encoding="utf-8")).figures
    assert "99% at random –" in str(figure["aria-label"])


@pytest.mark.parametrize(("key", "good"), [(SCORES, "magnitude"), (OTHERS, "InfoNCE, BERT, 4 layers of 256")])
def test_what_is_left_is_compared_with_random_draws(key: str, good: str, tmp_path: Path) -> None:
    quality = lambda row, task: 0.9 if good in row and "random" not in row else 0.6  # noqa: E731
    [table] = analyse(results(tmp_path, quality, key=key))
    [section] = [section for build in SPARSITY_SECTIONS if (section := build({key: table}))]
    assert len(section.figures) == 2 * len(GROUPS)
    for figure in section.figures:
        difference = re.search(rf"{good} \+0\.(\d+) \[\+[^;]*, p ", str(figure.svg))
        assert difference is not None
        other = "signed" if key == SCORES else "alignment and uniformity"
        assert re.search(rf"{other} [^;]*, no significant difference", str(figure.svg))


def test_the_study_has_a_curve_for_every_task(claimed: Results, table: TableAnalysis, tmp_path: Path) -> None:
    assert write_study(claimed, [table], [], tmp_path)
    page = Page((tmp_path / "study.html").read_text(encoding="utf-8"))
    [figure] = page.figures
    for name in (STS, TRANSFER, *GROUPS[STS], *GROUPS[TRANSFER]):
        assert f"{name}: whole by score" in str(figure["aria-label"])
    mean = table.estimates[label("at random", SHARES[-1]), STS].mean
    assert f"{SHARES[-1]:.0%} at random {mean:.3f}" in str(figure["aria-label"])


@pytest.mark.parametrize(("modified", "status"), [(0.8, "reproduced"), (0.6, "not reproduced")])
def test_modified_losses_keep_their_transfer_if_it_is_as_high(modified: float, status: str, tmp_path: Path) -> None:
    [table] = analyse(
        results(tmp_path, lambda row, task: modified if "modified" in row else 0.75, key="objectives-suites")
    )
    [claim] = [claim for claim in judge(TRAINED_CLAIMS, {ON_SUITES: table}) if "transfer" in claim.text]
    assert claim.status == status
    assert "VICReg, modified less VICReg " in claim.evidence


def test_start_weights_have_a_section_of_their_own(table: TableAnalysis) -> None:
    sections = [section for build in SPARSITY_SECTIONS if (section := build({START: table}))]
    assert [section.key for section in sections] == [START]
