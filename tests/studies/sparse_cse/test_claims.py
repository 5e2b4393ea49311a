"""What pruned models say of SparseCSE: verdicts follow from the scores, and curves show them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from multitask.evaluation.resampled_scores import resampled_scores
from studies.engine.experiments import GROUPS, STS, TRANSFER
from studies.engine.table import Row
from studies.report import run_results
from studies.report.preset_results import PresetResults
from studies.report.study_page import write_study
from studies.report.table_results import TableResults
from studies.report.verdicts import Verdict, judge
from studies.sparse_cse.claims import CLAIMS, OWN, START
from studies.sparse_cse.figures import SECTIONS
from studies.sparse_cse.tables import ENCODERS, SCORES, SHARES, WHOLE, pruned
from tests.studies.report.test_report import Page
from tests.studies.synthetic import Quality, without_rows, write_store

pytestmark = pytest.mark.usefixtures("few_resamples", "undrawn")


def as_claimed(key: str, row: Row, task: str) -> float:
    """An optimum at a low share by score, at another for TREC; nothing of the kind at random."""
    best = pruned(0.2 if task == "TREC" else 0.05, "score")
    return 0.95 if row.key == best else 0.7 if row.key == WHOLE else 0.72 if row.point["criterion"] == "score" else 0.5


def as_harmless(key: str, row: Row, task: str) -> float:
    """The more is removed the worse, whatever decides what."""
    share = row.point.get("share", 0.0)
    assert isinstance(share, float)
    return 0.8 - 0.4 * share


def results(runs: Path, quality: Quality, key: str = OWN, seeds: int = 4) -> PresetResults:
    return PresetResults.read(write_store(runs, [key], quality, seeds=seeds), "sample")


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> PresetResults:
    return results(tmp_path_factory.mktemp("claimed"), as_claimed)


@pytest.fixture(scope="module")
def table(claimed: PresetResults) -> TableResults:
    return claimed.finished_tables[OWN]


def judged(table: TableResults, key: str) -> list[Verdict]:
    """The claims that a table decides; the others have no results."""
    own, start = CLAIMS[:4], CLAIMS[4:]
    decided, others = (own, start) if key == OWN else (start, own)
    assert {one.verdict.status for one in judge(others, {key: table})} == {"not tested here"}
    return [one.verdict for one in judge(decided, {key: table})]


@pytest.mark.parametrize("key", [OWN, START])
def test_claims_are_reproduced_where_the_scores_are_as_claimed(table: TableResults, key: str) -> None:
    found = judged(table, key)
    assert [verdict.status for verdict in found] == ["reproduced"] * 4
    assert "the highest of each seed at 5%, 5%, 5%, 5%" in found[0].evidence
    assert "TREC 20%" in found[-1].evidence


def better_than_random_only(key: str, row: Row, task: str) -> float:
    """Pruning harms, at random more."""
    return 0.9 if row.key == WHOLE else 0.8 if row.point["criterion"] == "score" else 0.6


def test_a_score_that_only_beats_chance_does_not_tell_what_is_harmful(tmp_path: Path) -> None:
    found = judged(results(tmp_path, better_than_random_only).finished_tables[OWN], OWN)
    assert found[2].status == "not reproduced"
    assert "less the whole −0.1" in found[2].evidence


def test_claims_are_not_reproduced_where_removing_only_harms(tmp_path: Path) -> None:
    found = judged(results(tmp_path, as_harmless).finished_tables[OWN], OWN)
    assert {verdict.status for verdict in found} <= {"not reproduced", "undecided"}
    assert found[0].status == "not reproduced"
    assert "pairs of tasks told apart: none" in found[-1].evidence


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_missing_row_leaves_claims_untested(share: float, recorded: bool, table: TableResults) -> None:
    missing = pruned(share, "score")
    less = without_rows(table, missing)
    if not recorded:
        less = replace(less, table=replace(less.table, rows=tuple(r for r in less.table.rows if r.key != missing)))
    found = [one.verdict for one in judge(CLAIMS, {OWN: less})]
    assert {verdict.status for verdict in found[:2]} == {"not tested here"}
    assert found[2].status == ("not tested here" if share == 0.05 else "reproduced")


def test_a_half_finished_table_has_its_report(tmp_path: Path) -> None:
    runs = write_store(
        tmp_path / "runs",
        [OWN],
        as_harmless,
        seeds=4,
        without=lambda row: row.key == WHOLE or row.point["criterion"] == "random",
    )
    assert write_study(PresetResults.read(runs, "sample"), [], tmp_path)
    [figure] = Page((tmp_path / "study.html").read_text(encoding="utf-8")).figures
    assert "99% at random –" in str(figure["aria-label"])


@pytest.mark.parametrize(
    ("key", "good", "other"),
    [
        ("sparsity-scores", SCORES["magnitude"][0], "signed"),
        ("sparsity-encoders", ENCODERS["infonce-4x256"].name, ENCODERS["align_uniform"].name),
    ],
)
def test_what_is_left_is_compared_with_random_draws(
    key: str, good: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few resamples, no p could stay below 5% when corrected for 90 differences."""
    monkeypatch.setattr(run_results, "resampled_scores", resampled_scores)

    def quality(key: str, row: Row, task: str) -> float:
        best = {"magnitude", "infonce-4x256"} & set(row.point.values())
        return 0.9 if best and row.point.get("criterion") != "random" else 0.6

    found = results(tmp_path, quality, key, seeds=5)
    [section] = [section for build in SECTIONS if (section := build(found))]
    assert len(section.figures) == 2 * len(GROUPS)
    for figure in section.figures:
        difference = re.search(rf"{good} \+0\.(\d+) \[\+[^;]*, p ", str(figure.svg))
        assert difference is not None
        assert re.search(rf"{other} [^;]*, no significant difference", str(figure.svg))
        sure = figure.caption.partition("differences of these figures: ")[2]
        assert good in sure
        assert other not in sure


def test_the_study_has_a_curve_for_every_task(claimed: PresetResults, table: TableResults, tmp_path: Path) -> None:
    assert write_study(claimed, [], tmp_path)
    page = Page((tmp_path / "study.html").read_text(encoding="utf-8"))
    [figure] = page.figures
    for name in (STS, TRANSFER, *GROUPS[STS], *GROUPS[TRANSFER]):
        assert f"{name}: whole by score" in str(figure["aria-label"])
    mean = table.estimates[pruned(SHARES[-1], "random"), STS].mean
    assert f"{SHARES[-1]:.0%} at random {mean:.3f}" in str(figure["aria-label"])


def test_start_weights_have_a_section_of_their_own(table: TableResults, claimed: PresetResults) -> None:
    start = replace(claimed, tables=(replace(table, table=replace(table.table, key=START)),))
    assert [section.key for build in SECTIONS if (section := build(start))] == [START]
