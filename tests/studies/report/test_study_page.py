"""The written study: verdicts follow from what the store holds, and the page stands alone."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from multitask.evaluation.statistics import SAMPLES, Uncertain
from multitask.runtime.options import RunOptions
from multitask.tasks.metrics import correlation_metrics
from studies.engine.presets import PRESETS
from studies.engine.record import Record, RecordedRow, RecordedRun, RecordedStage, RecordedTable
from studies.engine.tables import Table, all_tables
from studies.gradient_paradigm.simulate import SimulationConfig, simulate
from studies.gradient_paradigm.simulation_claims import CONJECTURE_CLAIMS, SIMULATION_CLAIMS, judge
from studies.gradient_paradigm.simulation_report import read_simulations
from studies.gradient_paradigm.tables import components, gradient
from studies.gradient_paradigm.training_claims import DECOUPLED, TRAINED_CLAIMS, _fall
from studies.gradient_paradigm.training_figures import STUDIED, factorial_effects
from studies.report.analysis import TableAnalysis, analyse
from studies.report.report import write_report
from studies.report.results import Results
from studies.report.study_page import write_study
from studies.report.verdicts import each, family, last, measured, probed
from studies.sparse_cse.claims_and_figures import SPARSITY_CLAIMS
from tests.studies.report.test_report import Page

SMALL = SimulationConfig(grid=10, batches=20, batch_size=16, trials=20, training_trials=5, training_steps=2)
EXAMPLES = 150
LABELS = np.linspace(0, 5, EXAMPLES, dtype=np.float32)
NOISE = np.random.default_rng(0).normal(size=EXAMPLES)  # what all models get wrong alike
SEEDS = (0, 1, 2)
TABLES = {table.key: table for table in all_tables(PRESETS["sample"])}

Quality = Callable[[str, str], float]  # a table's key and a row's label -> correlation of its models with the labels
Falls = Callable[[str, int], float]  # a row's label and a seed -> by how much its score falls towards the end


def as_published(key: str, label: str) -> float:
    """What the papers say: contrastive and modified losses good, the others not, optima within the ranges."""
    if key == "objectives":
        plain = label in components.LOSSES
        return 0.4 if plain else 0.9
    if key == "gradient":
        ends = {
            row for name in ("m", "τ", "r") for row in list(gradient.swept(name).values())[:: len(gradient.VARIED) // 3]
        }
        return 0.4 if label in ends else 0.9
    if key == "decoupled":
        return 0.5 if label in DECOUPLED else 0.9
    if key == "components":
        return 0.4 + 0.15 * len(re.findall("dissipation|weight|ratio", label))
    return 0.8


def contrary(key: str, label: str) -> float:
    """The losses that ought to fail are best, those that ought to be as good as InfoNCE worst; ends beat optima."""
    if key == "gradient":
        return 1.3 - as_published(key, label)
    return 0.9 if as_published(key, label) < 0.9 else 0.6 if label == "InfoNCE" else 0.3


def as_published_falls(label: str, seed: int) -> float:
    return 0.2 if label in DECOUPLED else 0.0


def probe_of(label: str) -> dict[str, float]:
    """What the probe would see at the end of training."""
    value = float(label.split()[1]) if re.match("[mτr] ", label) and "," not in label else None
    ratio = value if value is not None and label.startswith("r") else 1.0
    return {
        "distance gap": 0.9 if label == list(gradient.swept("m").values())[-1] else 0.5,
        "dissipated anchors": 0.5,
        "hardest negative push": 0.2 if label == list(gradient.swept("τ").values())[-1] else 0.8,
        "closer to positive": 0.3 + 0.3 * ratio,
        "alignment": 0.2 if label in DECOUPLED else 0.5,
        "uniformity": -2.0,
        "alignment gradient": 0.9 if label in DECOUPLED else 0.1,
        "uniformity gradient": 0.9 if label in DECOUPLED else 0.1,
        "median ratio": 1.0,
    }


def add_run(runs: Path, key: str, label: str, seed: int, quality: float, fall: float) -> RecordedRun:
    name = re.sub(r"\W+", "-", f"{key}-{label}")
    model, evaluation = f"pretrain-{name}-{seed}", f"evaluate-{name}-{seed}"
    generator = np.random.default_rng([seed, *name.encode()])
    noise = (NOISE + 0.1 * generator.normal(size=EXAMPLES)) * LABELS.std()
    predictions = (quality * LABELS + np.sqrt(1 - quality**2) * noise).astype(np.float32)
    metrics = correlation_metrics(predictions, LABELS)
    end = metrics["pearson"]
    history = []
    for number, share in enumerate((0.5, 1.0, 0.0), start=1):
        dev = {"similarity": {**metrics, "pearson": end - 0.1 + (0.1 + fall) * share if number < 3 else end}}
        passed = (number - 1) / 2
        seen = {
            f"unlabelled {name}": (1 - passed) * (name != "dissipated anchors") + passed * last_value + 0.005 * seed
            for name, last_value in probe_of(label).items()
        }
        line = {"step": 8 * number, "epoch": 1, "training": {"unlabelled": 1.0, **seen}, "dev": dev}
        history.append({**line, "scores": {"similarity": end}, "tokens": 100 * number, "seconds": 1.0 * number})
    (runs / model).mkdir(parents=True)
    (runs / model / "config.json").write_text(json.dumps({"seed": seed}))
    (runs / model / "inputs.json").write_text("{}")
    (runs / model / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    (runs / evaluation).mkdir()
    measured = {"overall": end, "scores": {"similarity": end}, "measures": {"similarity": "pearson"}}
    (runs / evaluation / "evaluation.json").write_text(json.dumps({**measured, "metrics": {"similarity": metrics}}))
    np.savez(runs / evaluation / "predictions.npz", similarity_labels=LABELS, similarity_predictions=predictions)
    chain = (RecordedStage("pretrain", model, 3.0), RecordedStage("evaluate", evaluation, 1.0))
    return RecordedRun(seed, model, evaluation, chain=chain)


def recorded(runs: Path, table: Table, quality: Quality, falls: Falls, seeds: tuple[int, ...] = SEEDS) -> RecordedTable:
    rows = tuple(
        RecordedRow(
            row.label,
            tuple(
                add_run(runs, table.key, row.label, s, quality(table.key, row.label), falls(row.label, s))
                for s in seeds
            ),
        )
        for row in table.rows
    )
    return RecordedTable(table.title, table.note, rows, table.key, table.reference, table.columns, table.kind)


def write_store(runs: Path, keys: set[str], simulated: bool, quality: Quality = as_published) -> Path:
    tables = [recorded(runs, TABLES[key], quality, as_published_falls) for key in TABLES if key in keys]
    if simulated:
        name = simulate(SMALL, RunOptions(runs=runs)).folder.name
        run = RecordedRun(0, name, chain=(RecordedStage("simulate", name, 14.0),))
        table = TABLES["simulations"]
        rows = (RecordedRow("Simulations", (run, replace(run, seed=1))),)
        tables.append(RecordedTable(table.title, "", rows, table.key, columns=(), kind="simulations"))
    Record("sample", "some-weights", "data", ("Beware.",), tuple(tables)).write(runs)
    return runs


def analysed(store: Path) -> dict[str, TableAnalysis]:
    return {analysis.table.recorded.key: analysis for analysis in analyse(Results.read(store, "sample"))}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("study") / "runs", STUDIED, simulated=True)


@pytest.fixture(scope="module")
def tables(store: Path) -> dict[str, TableAnalysis]:
    return analysed(store)


@pytest.fixture(scope="module")
def report(store: Path, tables: dict[str, TableAnalysis]) -> Path:
    """The study alone, without the rest of the report."""
    assert write_study(Results.read(store, "sample"), list(tables.values()), ["Beware."], store.parent / "report")
    return store.parent / "report"


def test_the_page_has_every_claim_and_stands_alone(report: Path) -> None:
    html = (report / "study.html").read_text(encoding="utf-8")
    page = Page(html)
    claims = len(SIMULATION_CLAIMS) + len(CONJECTURE_CLAIMS) + len(TRAINED_CLAIMS) + len(SPARSITY_CLAIMS)
    assert html.count('<p class="verdict">') == claims
    counts = [cells for cells in page.rows if len(cells) == 4 and "Claims" not in cells[0]]
    assert sum(int(count) for cells in counts for count in cells[1:]) == claims
    assert "://" not in html
    assert "<script" not in html
    assert len(page.ids) == len(set(page.ids))
    for reference in page.references:
        inside = reference.startswith("data:image/png;base64,") or reference[1:] in page.ids
        assert inside or reference.partition("#")[0] == "index.html"
    assert "Beware." in html
    assert all(figure["role"] == "img" and len(str(figure["aria-label"])) > 50 for figure in page.figures)
    assert page.titles == len(page.figures) > 20
    assert not re.search(r"\bnan\b|#010203", html)


def test_markdown_names_the_figures_that_lie_beside_it(report: Path) -> None:
    markdown = (report / "study.md").read_text(encoding="utf-8")
    figures = re.findall(r"\]\((study/[^)]+\.svg)\)", markdown)
    assert sorted(figures) == sorted(path.relative_to(report).as_posix() for path in (report / "study").iterdir())
    assert all("<svg" in (report / name).read_text(encoding="utf-8") for name in figures)


def test_counter_examples_are_of_the_case_that_held_least_often(store: Path, report: Path) -> None:
    _, estimates = read_simulations(store / Results.read(store, "sample").simulation.artefact)
    page = Page((report / "study.html").read_text(encoding="utf-8"))
    rows = {cells[0]: cells for cells in page.rows if len(cells) == 6}
    failing = {e.statement for e in estimates if e.counter_examples}
    assert {name for name in rows if name != "Statement"} == failing
    assert len(failing) > 3
    for statement in failing:
        lowest = min(e.rate for e in estimates if e.statement == statement and e.counter_examples)
        _, case, pairs, dim, rate, found = rows[statement]
        where = (statement, case, int(pairs), int(dim))
        [estimate] = [e for e in estimates if (e.statement, e.case, e.pairs, e.dim) == where]
        assert estimate.rate == lowest
        assert rate.startswith(f"{lowest:.1%}")
        assert int(found.split(":")[0].removeprefix("number ")) == estimate.counter_examples[0]["trial"]
    markdown = (report / "study.md").read_text(encoding="utf-8")
    assert all(f"| {statement} |" in markdown for statement in failing)
    assert f"with seed {SMALL.seed}." in markdown


def test_without_anything_to_study_there_is_no_page(tmp_path: Path) -> None:
    page = write_report(write_store(tmp_path / "runs", set(), simulated=False), "sample", tmp_path / "report")
    assert "study.html" not in page.read_text(encoding="utf-8")
    assert not (tmp_path / "report" / "study.html").exists()


def test_verdicts_are_those_of_the_papers_where_the_results_are(tables: dict[str, TableAnalysis]) -> None:
    judged = judge(TRAINED_CLAIMS, tables)
    untested = [claim.text for claim in judged if claim.status == "not tested here"]
    assert untested == ["The modified losses keep their performance on transfer tasks."]
    assert [claim.text for claim in judged if claim.status == "not reproduced"] == []


def test_verdicts_turn_when_the_results_do(tmp_path: Path) -> None:
    keys = {"objectives", "gradient", "decoupled"}
    opposite = write_store(tmp_path / "runs", keys, simulated=False, quality=contrary)
    turned = [claim for claim in judge(TRAINED_CLAIMS, analysed(opposite)) if "score" in claim.reading]
    others = ("dev score", "transfer", "sum of both metrics")
    scores = [claim.status for claim in turned if not any(word in claim.reading for word in others)]
    assert len(scores) >= 8
    assert set(scores) == {"not reproduced"}


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_measure_of_training_needs_three_seeds(seeds: tuple[int, ...], tmp_path: Path) -> None:
    table = recorded(tmp_path / "runs", TABLES["decoupled"], as_published, as_published_falls, seeds=seeds)
    Record("sample", "some-weights", "data", (), (table,)).write(tmp_path / "runs")
    judged = judge(TRAINED_CLAIMS, analysed(tmp_path / "runs"))
    status = {claim.text: claim.status for claim in judged}
    assert status["Training with decoupled losses is prone to overfitting."] == "not tested here"
    assert status["Overfitting does not occur with the contrastive loss."] == "not tested here"


def test_rows_whose_measures_vary_do_not_hide_one_that_does_not(tmp_path: Path) -> None:
    falls = lambda label, seed: 0.1 * seed if label in DECOUPLED else 0.001 * seed  # noqa: E731
    table = recorded(tmp_path / "runs", TABLES["decoupled"], as_published, falls, seeds=(0, 1, 2))
    Record("sample", "some-weights", "data", (), (table,)).write(tmp_path / "runs")
    status = {claim.text: claim.status for claim in judge(TRAINED_CLAIMS, analysed(tmp_path / "runs"))}
    assert status["Overfitting does not occur with the contrastive loss."] == "reproduced"
    assert status["Training with decoupled losses is prone to overfitting."] == "not reproduced"  # too uncertain


@pytest.mark.parametrize("exponent", [1.2, 3])
def test_differences_of_measures_are_welchs(exponent: float, tmp_path: Path) -> None:
    falls = lambda label, seed: 0.02 * seed**exponent if label in DECOUPLED else 0.02 * seed  # noqa: E731
    table = recorded(tmp_path / "runs", TABLES["decoupled"], as_published, falls, seeds=(0, 1, 2, 3))
    Record("sample", "some-weights", "data", (), (table,)).write(tmp_path / "runs")
    [analysis] = analysed(tmp_path / "runs").values()
    first, second = DECOUPLED[0], "InfoNCE"
    difference = measured(analysis, _fall, {first: 1, second: -1})
    a, b = (np.array([falls(label, seed) for seed in range(4)]) for label in (first, second))
    expected = ttest_ind(a, b, equal_var=False)
    assert difference.interval() == pytest.approx(tuple(expected.confidence_interval()), rel=0.05)
    assert difference.p_value() == pytest.approx(expected.pvalue, rel=0.05)


def test_rows_that_vary_differently_tell_of_themselves_alone(tables: dict[str, TableAnalysis]) -> None:
    table = tables["gradient"]
    first, second = (row.label for row in table.table.rows[:2])
    alone = TableAnalysis(replace(table.table, rows=table.table.rows[:2]), table.samples)
    own, pooled = (
        [of.contrast({first: 1, second: -1}, "similarity", alike=alike).interval() for of in (table, alone)]
        for alike in (False, True)
    )
    assert own[0] == own[1]
    assert pooled[0] != pooled[1]
    single = [replace(table.table.rows[0], runs=table.table.rows[0].runs[:1]), *table.table.rows[1:]]
    less = TableAnalysis(replace(table.table, rows=tuple(single)), table.samples)
    own_way, pooled_way = (less.contrast({first: 1, second: -1}, "similarity", alike=alike) for alike in (False, True))
    assert own_way.interval() == pooled_way.interval()  # the others tell how much a single seed may be off


def test_all_must_hold_or_any_may() -> None:
    draws = np.random.default_rng(0).normal(size=SAMPLES)
    differences = {name: Uncertain(2.3, 2.3 + draws) for name in ("a", "b", "c")}  # p 0.02 each
    assert all(test.significant for test in each(differences).values())
    assert not any(test.significant for test in family(differences).values())
    assert each({**differences, "d": None}) is family({**differences, "d": None}) is None


@pytest.mark.parametrize("key", ["objectives", "gradient", "decoupled", "components"])
def test_a_record_without_some_rows_has_its_study(key: str, tables: dict[str, TableAnalysis], tmp_path: Path) -> None:
    less = replace(tables[key].table, rows=tables[key].table.rows[:1])
    results = Results.read(tables[key].table.rows[0].runs[0].folder.parent, "sample")
    alone = replace(results, record=replace(results.record, tables=()), tables=(less,))
    assert write_study(alone, [TableAnalysis(less, tables[key].samples)], [], tmp_path)


@pytest.mark.parametrize(
    ("statistic", "value", "claim", "evidence"),
    [
        ("dissipated anchors", 0.0, "Conjecture 1 in training", "the defaults' gate stops: 0.5% at most"),
        ("closer to positive", 0.99, "Conjecture 3 in training", "it holds of nearly all anchors"),
    ],
)
def test_what_could_not_show_is_not_tested(
    statistic: str, value: float, claim: str, evidence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = probe_of
    monkeypatch.setitem(globals(), "probe_of", lambda label: {**usual(label), statistic: value})
    tables = analysed(write_store(tmp_path / "runs", {"gradient"}, simulated=False))
    [found] = [judged for judged in judge(TRAINED_CLAIMS, tables) if claim in judged.text]
    assert found.status == "not tested here"
    assert evidence in found.evidence


@pytest.mark.parametrize(
    ("quality", "alignment", "status"),
    [(0.5, 0.9, "not reproduced"), (0.9, 0.2, "not tested here")],
    ids=["the metric is worse too", "no score is lower"],
)
def test_metrics_hide_what_decoupled_losses_lose(
    quality: float, alignment: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = probe_of
    monkeypatch.setitem(
        globals(),
        "probe_of",
        lambda label: {**usual(label), "alignment": alignment if label in DECOUPLED else 0.5},
    )
    scores: Quality = lambda key, label: quality if label in DECOUPLED else 0.9  # noqa: E731
    tables = analysed(write_store(tmp_path / "runs", {"decoupled"}, simulated=False, quality=scores))
    [found] = [judged for judged in judge(TRAINED_CLAIMS, tables) if "alignment and uniformity metrics" in judged.text]
    assert found.status == status


def test_the_end_of_training_is_its_last_line_or_nothing(tables: dict[str, TableAnalysis]) -> None:
    run = tables["gradient"].table.rows[0].runs[0]
    lines = [{**line, "training": dict(line["training"])} for line in run.history]
    assert last("distance gap")(run) == lines[-1]["training"]["unlabelled distance gap"]
    del lines[-1]["training"]["unlabelled distance gap"]
    dissipated = replace(run)
    dissipated.__dict__["history"] = lines
    assert last("distance gap")(dissipated) is None


def test_effects_are_contrasts_of_the_means_and_cover_what_the_models_were_made_with(
    tables: dict[str, TableAnalysis],
) -> None:
    found = {of.loss: of.effects for of in factorial_effects(tables)}
    assert {loss: len(effects) for loss, effects in found.items()} == {
        loss: 3 if loss == "MHS" else 7 for loss in components.LOSSES
    }
    means = {label: estimate.mean for (label, _), estimate in tables["components"].estimates.items()}
    on = [means[label] for label in means if label.startswith("VICReg") and "weight" in label]
    off = [means[label] for label in means if label.startswith("VICReg") and "weight" not in label]
    weight = found["VICReg"]["weight"]
    assert weight.difference == pytest.approx(np.mean(on) - np.mean(off))
    assert weight.low < weight.difference < weight.high
    assert weight.significant


def test_probed_values_are_found_by_name(tables: dict[str, TableAnalysis]) -> None:
    run = tables["gradient"].table.rows[0].runs[0]
    assert [step for step, _ in probed(run, "distance gap")] == [8, 16, 24]
    assert probed(run, "ratio") == []  # the median is another statistic
    assert probed(run, "none") == []


def test_the_study_is_written_without_torch_and_with_the_same_bytes_from_the_same_store(tmp_path: Path) -> None:
    store = write_store(tmp_path / "runs", set(), simulated=True)
    write_report(store, "sample", tmp_path / "here")
    program = (
        "import sys; from pathlib import Path; from studies.report.report import write_report; "
        f"write_report(Path({str(store)!r}), 'sample', Path({str(tmp_path / 'there')!r})); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]
    for name in ("study.html", "study.md", "index.html"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert 'href="study.html"' in (tmp_path / "here" / "index.html").read_text(encoding="utf-8")
    assert "(study.md)" in (tmp_path / "here" / "report.md").read_text(encoding="utf-8")
    html = (tmp_path / "here" / "study.html").read_text(encoding="utf-8")
    assert html.count('<li class="not-tested-here">') >= len(TRAINED_CLAIMS)  # nothing was trained
