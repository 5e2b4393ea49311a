"""Grids: every stage once, nothing twice, a change recomputes what depends on it, one row's failure is its own."""

import errno
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert.checkpoint import read_tensors
from minbert.errors import DiskFullError, InputError
from multitask.base.errors import Interrupted
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.cli.main import main
from multitask.experiments import engines
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.engines import Engine
from multitask.experiments.grid import Grid, run_preset, write_best_predictions
from multitask.experiments.grid_frames import RANDOM_WEIGHTS
from multitask.experiments.results_file import scores_as_data
from multitask.experiments.show_runs import TRIED
from multitask.experiments.table_definitions import Experiment, Node, Preset, PresetRecord, Row, experiment
from multitask.models.settings import HeadsConfig
from multitask.stages.registry import Stage, stage_named
from multitask.stages.run_stage import run_stage
from multitask.stages.settings import FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import PretrainConfig
from studies.engine import presets
from studies.engine.presets import PRESETS, load_preset
from studies.engine.recipes import Recipes
from studies.gradient_paradigm import condition_tables
from studies.gradient_paradigm.tables import SHORT_EPOCHS
from studies.gradient_paradigm.training_figures import STATISTIC_LABELS
from studies.sparse_cse import tables as sparse_tables
from studies.study import all_experiments
from tests.conftest import ROOT, random_encoder, sample_vocabulary, slow_after
from tests.reliability.faulty_files import FAULTS, FaultyFiles

BROKEN = HeadsConfig(sharing="shared", pairs="joint")  # refused when the heads are built


READ = {"2", "reviews", "simulations", "gradient", "decoupled", "shapes", "objectives"}
"""Tables that a test below reads."""
OF_THE_REPORT = (*map(str, range(1, 11)), "figure2", "negative-pairs")
"""The tables of docs/how-to/reproduce-the-report.md."""


@pytest.fixture(scope="module")
def preset(recipes) -> Preset:
    together = recipes.finetune(recipes.start)
    broken = recipes.finetune(recipes.start, replace(recipes.multitask, heads=BROKEN))
    alone = recipes.finetune(recipes.nli(epochs=1), replace(recipes.multitask, tasks=("sentiment",)))
    reviews = recipes.finetune(recipes.start, recipes.reviews)
    after = recipes.pretrain(broken, recipes.unsupervised)
    return preset_of(
        recipes,
        table("1", {"Together": together, "Broken": broken}),
        table("2", {"All three": together, "Alone": alone, "Reviews": reviews}),
        table("3", {"After the broken one": after}),
    )


def table(key: str, models: dict[str, Node]) -> Experiment:
    """An experiment whose rows have their labels in lower case as keys."""
    return experiment(key, "", "", [(Row(label.lower(), label), model) for label, model in models.items()])


def preset_of(recipes: Recipes, *experiments: Experiment) -> Preset:
    return presets.preset_of("sample", recipes, experiments)


def run(preset: Preset, runs: Path, seeds: int = 1, engine: Engine | None = None) -> PresetRecord:
    return run_preset(preset, seeds, RunOptions("cpu", "fp32", runs), engine or Engine())


def stages(runs: Path) -> dict[str, int]:
    """How many artefacts of each stage are complete."""
    return Counter(path.parent.name.partition("-")[0] for path in runs.glob("*/DONE"))


def contents(runs: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file of the artefacts."""
    files = (path for path in runs.glob("*-*-*/**/*") if path.is_file())
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def artefacts(record: PresetRecord, table: str, row: str) -> list[tuple[object, ...]]:
    return [(run.seed, run.model, run.evaluation, run.chain) for run in record.of_row(table, row)]


def test_a_stage_of_several_rows_is_computed_once_and_a_second_run_computes_nothing(
    recipes, preset, tmp_path, monkeypatch
):
    first = run(preset, tmp_path)
    assert artefacts(first, "1", "together") == artefacts(first, "2", "all three")
    assert stages(tmp_path) == {"finetune": 3, "pretrain": 1, "evaluate": 3}
    before = contents(tmp_path)
    monkeypatch.setattr(engines, "run_stage", lambda stage, *_: pytest.fail(f"{stage.name} again"))
    again = run(preset_of(recipes, preset.experiments[1]), tmp_path)
    assert again.tables == first.tables[1:2]
    assert again.runs == tuple(run for run in first.runs if run.table == "2")
    assert contents(tmp_path) == before


@pytest.fixture(scope="module")
def done(preset, tmp_path_factory) -> tuple[PresetRecord, Path]:
    """The preset, computed; no test changes the runs."""
    runs = tmp_path_factory.mktemp("done")
    return run(preset, runs), runs


def test_a_failing_row_is_recorded_with_its_log_and_does_not_stop_the_others(done):
    record, runs = done
    assert [label for label, _ in record.failures] == ["Broken", "After the broken one"]
    for _, failed in record.failures:
        assert failed.model is None
        assert failed.error is not None
        assert "sharing=shared needs pairs=embeddings" in failed.error
        assert failed.log is not None
        assert "sharing=shared needs pairs=embeddings" in (runs / failed.log).read_text()
    assert all(run.error is None for run in record.runs if run.table == "2")
    assert PresetRecord.read(runs, "sample") == record


def test_what_is_computed_of_an_unfinished_row_is_recorded(recipes, tmp_path, monkeypatch):
    def stop_after_pretraining(stage: Stage, *rest: Any) -> Run:
        if stage.name == "finetune":
            raise Interrupted(15)
        return run_stage(stage, *rest)

    monkeypatch.setattr(engines, "run_stage", stop_after_pretraining)
    with pytest.raises(Interrupted):
        run(preset_of(recipes, table("1", {"NLI": recipes.finetune(recipes.nli(epochs=1))})), tmp_path)
    [unfinished] = PresetRecord.read(tmp_path, "sample").runs
    assert [name.partition("-")[0] for name in unfinished.chain] == ["pretrain"]
    assert (unfinished.model, unfinished.evaluation, unfinished.error) == (None, None, None)


def test_the_record_keeps_the_tables_of_earlier_runs(recipes, preset, tmp_path):
    first, second, _ = preset.experiments
    alone = table("2", {"Alone": second.models["alone"]})
    later = run(preset_of(recipes, alone), tmp_path)
    earlier = run(preset_of(recipes, first), tmp_path)
    assert [table.key for table in earlier.tables] == ["1"]  # of this run alone: what failed earlier is not said again
    united = PresetRecord.read(tmp_path, "sample")
    assert (united.tables, united.runs) == ((*earlier.tables, *later.tables), (*earlier.runs, *later.runs))
    again = run(preset_of(recipes, alone), tmp_path, seeds=2)
    assert PresetRecord.read(tmp_path, "sample").runs == (*earlier.runs, *again.runs)

    other = replace(recipes, data=shutil.copytree(recipes.data, tmp_path / "data"))
    spelled = replace(earlier, data=f"{earlier.data}/../{recipes.data.name}")
    assert spelled.with_tables_of(united, tmp_path, ["1", "2"]).tables == united.tables
    for elsewhere in (replace(earlier, start="other-weights"), replace(earlier, notes=("fewer epochs",))):
        assert elsewhere.with_tables_of(united, tmp_path, ["1", "2"]) == elsewhere
    assert run(preset_of(other, first), tmp_path) == PresetRecord.read(tmp_path, "sample")
    both = run(preset_of(recipes, first, alone), tmp_path)
    (tmp_path / both.of_row("2", "alone")[0].chain[0] / "DONE").unlink()
    assert run(preset_of(recipes, first), tmp_path) == PresetRecord.read(tmp_path, "sample")


def test_a_changed_file_begins_a_new_record(recipes, tmp_path):
    other = replace(recipes, data=shutil.copytree(recipes.data, tmp_path / "data"))
    models = {"1": {"Alone": other.finetune(other.start)}, "2": {"Alike": other.pretrain(other.start, other.views)}}
    presets = [preset_of(other, table(key, rows)) for key, rows in models.items()]
    for preset in presets:
        run(preset, tmp_path)
    united = PresetRecord.read(tmp_path, "sample")
    assert [found.key for found in united.tables] == ["1", "2"]
    assert {"start", "dev similarity", "training paraphrase"} <= united.inputs.keys()
    file = other.data / "sts-dev.csv"
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    run(presets[1], tmp_path)
    assert [found.key for found in PresetRecord.read(tmp_path, "sample").tables] == ["2"]


def test_an_evaluation_repeats_the_best_epochs_scores_and_keeps_its_predictions(done):
    record, runs = done
    [together] = record.of_row("1", "together")
    assert together.model is not None
    assert together.evaluation is not None
    history = [json.loads(line) for line in (runs / together.model / "metrics.jsonl").read_text().splitlines()]
    evaluation = json.loads((runs / together.evaluation / "evaluation.json").read_text())
    np.testing.assert_equal(evaluation["metrics"], max(history, key=lambda line: line["scores"]["overall"])["dev"])
    assert evaluation["overall"] == pytest.approx(np.mean(list(evaluation["scores"].values())))
    with np.load(runs / together.evaluation / "predictions.npz") as arrays:
        right = arrays["sentiment_predictions"] == arrays["sentiment_labels"]
        pearson = np.corrcoef(arrays["similarity_predictions"], arrays["similarity_labels"])[0, 1]
    assert evaluation["scores"]["sentiment"] == pytest.approx(right.mean())
    assert evaluation["scores"]["similarity"] == pytest.approx(pearson, abs=1e-5)


@pytest.fixture(scope="module")
def whole(recipes, tmp_path_factory) -> tuple[Preset, PresetRecord, Path]:
    """Some tables, shortened, computed; the slow test of the papers' preset has every row of every table."""
    runs = tmp_path_factory.mktemp("whole") / "runs"
    with small_shapes():
        preset = preset_of(recipes, *shortened(e for e in all_experiments(recipes) if e.table.key in READ))
    return preset, run(preset, runs), runs


@contextmanager
def small_shapes() -> Iterator[None]:
    """As they are, the encoders from scratch would take half of all the time."""
    small = {
        name: replace(shape, hidden_size=24, num_hidden_layers=1, intermediate_size=32)
        for name, shape in condition_tables.SHAPES.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(condition_tables, "SHAPES", small)
        patch.setattr(sparse_tables, "SHAPES", small)
        yield


def shortened(experiments: Iterable[Experiment]) -> Iterator[Experiment]:
    """Of every table the first row, and the first of each chain of stages; the rows of a table differ in a setting."""
    chains: set[tuple[str, ...]] = set()
    for whole in experiments:
        table, models = whole.table, whole.models
        if "ensemble-dev" not in models and table.kind == "table":
            kept = []
            for row in table.rows:
                stages = tuple(node.stage for node in models[row.key].chain())
                if not kept or stages not in chains:
                    kept.append(row)
                chains.add(stages)
            models = {row.key: models[row.key] for row in kept}
            reference = table.reference if table.reference in models else None
            table = replace(table, rows=tuple(kept), reference=reference)
        yield replace(whole, table=table, models=models)


def test_rows_of_all_kinds_of_tables_are_computed(whole):
    preset, record, runs = whole
    assert [(name, run.error) for name, run in record.failures] == []
    assert record.tables == tuple(planned.table for planned in preset.experiments)
    for planned in preset.experiments:
        for row in planned.table.rows:
            found, table = record.of_row(planned.table.key, row.key), planned.table
            if row.key not in planned.models:
                assert found == ()
                continue
            [result] = found
            if table.kind == "simulations":
                assert (runs / result.chain[-1] / "DONE").is_file()
                continue
            evaluation = json.loads((runs / str(result.evaluation) / "evaluation.json").read_text())
            assert set(table.columns) <= set(evaluation["scores"])
    assert {path.name for path in runs.glob("*-*-*") if path.is_dir()} == record.artefacts()


def test_runs_leave_what_the_study_reads(whole):
    results = PresetResults.read(whole[2], "sample")
    assert results.last_stage("simulations") is not None
    for _, runs in results.finished_tables["gradient"].rows:
        for statistic in (*STATISTIC_LABELS, "alignment gradient", "uniformity gradient"):
            assert [step for step, _ in runs[0].probed(statistic)] == [2]
    for _, runs in results.finished_tables["decoupled"].rows:
        assert [len(run.curve("similarity")) for run in runs] == [SHORT_EPOCHS]


def test_rows_that_begin_from_scratch_are_not_labelled_with_the_start_weights(whole):
    preset, _, runs = whole
    tables = {of.description.table: of for of in scores_as_data(PresetResults.read(runs, "sample")).tables}
    assert set(tables["shapes"].rows.start) == {RANDOM_WEIGHTS}
    assert set(tables["objectives"].rows.start) == {tables["shapes"].description.start} == {preset.start.name}


@pytest.mark.slow
def test_every_architecture_begins_with_random_weights_of_its_seed(recipes, tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5")
    with small_shapes():
        [whole] = (e for e in all_experiments(recipes) if e.table.key == "architectures")
    rows = tuple(row for row in whole.table.rows if "loss" in row.point)
    models = {row.key: whole.models[row.key] for row in rows}
    record = run(preset_of(recipes, replace(whole, table=replace(whole.table, rows=rows), models=models)), tmp_path)
    assert [of.error for _, of in record.failures] == []
    [found] = scores_as_data(PresetResults.read(tmp_path, "sample")).tables
    assert set(found.rows.start) == {RANDOM_WEIGHTS}
    options, begun = RunOptions("cpu", "fp32", tmp_path / "again"), {}
    for row in rows:
        [of] = record.of_row("architectures", row.key)
        folder = Run(tmp_path / of.chain[0]).model_folder()
        made = transformers.AutoConfig.from_pretrained(folder)
        named = {"prenorm": "roberta-prelayernorm"}.get(name := row.point["architecture"], name)
        assert (made.model_type, made.hidden_size, made.num_hidden_layers) == (named, 24, 1)
        for seed in (0, 1):
            [start] = models[row.key].seeded(seed).needs
            again = run_stage(stage_named(start.stage), [recipes.start], recipes.data, start.config, options)
            weights = [path / "model.safetensors" for path in (again.model_folder(), folder)]
            assert (weights[0].read_bytes() == weights[1].read_bytes()) == (seed == 0)
        begun[name] = {n: of.numpy() for n, of in read_tensors(weights[1]).items() if "LayerNorm" not in n}
    np.testing.assert_equal(begun["roberta"], begun["prenorm"])  # as the table's note says


@pytest.fixture(scope="module")
def narrow_base(sample_data, tmp_path_factory) -> Path:
    """A random encoder with bert-base's 12 layers of 12 heads, 24 wide in place of 768."""
    folder = tmp_path_factory.mktemp("narrow-base")
    return random_encoder(sample_vocabulary(sample_data), 12, folder, hidden_size=24, num_attention_heads=12)


def paper(recipes: Recipes, start: Path, data: Path, tables: Sequence[str] | None) -> Preset:
    """The report's preset at the least size that the command line can give it."""
    changes = {"epochs": 1, "epoch_size": 8}
    return load_preset("paper", str(start), data, tables, recipes.suites_data, changes)


ROWS = {"sentiment": 8544, "paraphrase": 283_000, "similarity": 6040, "nli": 275_601, "quora": 283_000}


def steps_and_sentences(config: Any) -> tuple[int, int]:
    """Optimizer steps of a training at real size, and the sentences that it encodes, as the page says."""

    def contrastive(sources: Iterable[str], epochs: int, share: float, positives: float = 1) -> list[tuple[int, int]]:
        rows = {name: ROWS[name] * (2 if name in ("similarity", "paraphrase") else 1) for name in sources}
        rows |= {name: round(positives * n) for name, n in rows.items() if name == "quora"}
        rows |= {name: round(share * n) for name, n in rows.items() if name in ("quora", "paraphrase")}
        return [(epochs * ceil(n / 16), epochs * n * (3 if name == "nli" else 2)) for name, n in rows.items()]

    if isinstance(config, PretrainConfig):
        positives = 0.37 if config.negative_pairs == "left_out" else 1
        parts = contrastive(config.sources, config.epochs, config.quora_share, positives)
    elif isinstance(config, FuseConfig):  # labels, then two views of the same sentences, with a step for each
        parts = [(2 * 10 * ceil(8544 / 16), 3 * 10 * 8544), *contrastive(config.unlabelled, 10, 0.06)]
    elif isinstance(config, FinetuneConfig):
        scheduler, tasks = config.scheduler.name, config.tasks or TRIED
        smallest, together = min(ROWS[task] for task in tasks), not scheduler.endswith("round_robin")
        rows = {task: ROWS[task] if scheduler == "epoch_round_robin" else smallest for task in tasks}
        steps = [10 * ceil(n / 16) for n in rows.values()]
        sentences = sum(10 * n * len(TRIED[task]) for task, n in rows.items())
        parts = [(max(steps) if together else sum(steps), sentences)]
    else:
        parts = []
    return sum(steps for steps, _ in parts), sum(sentences for _, sentences in parts)


def test_the_page_about_the_report_has_its_stages_steps_and_sentences(tiny_encoder, tmp_path):
    preset = load_preset("paper", str(tiny_encoder), tmp_path, OF_THE_REPORT)
    nodes = list(Grid(preset.experiments, 1, RunOptions("cpu", "fp32", tmp_path)).stages)
    lines = {"pre-training": ("pretrain",), "fine-tuning": ("finetune",), "fusion": ("fuse",)}
    lines["all"] = ("pretrain", "finetune", "fuse", "evaluate", "ensemble")
    page = (ROOT / "docs" / "how-to" / "reproduce-the-report.md").read_text(encoding="utf-8")
    for name, stages in lines.items():
        found = [steps_and_sentences(node.config) for node in nodes if node.stage in stages]
        steps, sentences = (sum(of) for of in zip(*found, strict=True))
        assert f"| {name} | {len(found)} | {round(steps, -3):,} | {sentences / 1e6:.1f} million |" in page


@pytest.mark.slow
def test_the_preset_of_the_papers_runs_to_its_end_on_small_data(recipes, narrow_base, grid_data, tmp_path):
    preset = paper(recipes, narrow_base, grid_data, [*OF_THE_REPORT, "pairs", "reviews", "simulations"])
    record = run(preset, tmp_path)
    assert [run_.error for _, run_ in record.failures] == []
    assert {run_.table for run_ in record.runs} == {of.table.key for of in preset.experiments}
    assert len(record.runs) == sum(len(of.models) for of in preset.experiments)


def test_prediction_files_of_the_best_models_are_whole_or_absent_and_a_full_disk_names_one(whole, tmp_path):
    preset, _, runs = whole
    options, results = RunOptions("cpu", "fp32", runs), PresetResults.read(runs, "sample")
    expected = {
        path.name: path.read_bytes() for path in write_best_predictions(preset, results, options, tmp_path / "x")
    }
    names = {f"{stem}-{split}-output.csv" for stem in ("sst", "para", "sts", "cfimdb") for split in ("dev", "test")}
    assert set(expected) == {path.name for path in (tmp_path / "x").iterdir()} == names
    fault = FAULTS["full disk, after half of a write"]
    for at in range(len(expected)):  # one write each
        layer = FaultyFiles(output := tmp_path / str(at), fault, at)
        with layer.installed(), pytest.raises(DiskFullError, match=list(expected)[at]):
            write_best_predictions(preset, results, options, output)
        assert {path.name: path.read_bytes() for path in output.glob("*")} == dict(list(expected.items())[:at])


def test_missing_data_and_weights_are_one_error_before_anything_runs(preset, tmp_path):
    with pytest.raises(InputError, match="--data"):
        run(replace(preset, data=tmp_path / "none"), tmp_path)
    start = replace(preset.start, name=str(tmp_path))
    with pytest.raises(InputError, match=r"config\.json"):
        run(replace(preset, start=start), tmp_path)
    assert not list(tmp_path.iterdir())


def test_command_line_runs_plans_reports_and_says_what_failed(recipes, tmp_path, monkeypatch, capsys):
    explodes = replace(recipes.reviews.optimizer, learning_rate=1e39)
    monkeypatch.setitem(PRESETS, "sample", replace(recipes, reviews=replace(recipes.reviews, optimizer=explodes)))
    places = ["--runs", str(tmp_path / "runs"), "--report", str(tmp_path / "report")]
    computing = ["--tables", "3,reviews", "--device", "cpu", "--precision", "fp32"]
    arguments = ["experiments", "run", "sample", *places, *computing]
    monkeypatch.chdir(tmp_path)
    (mine := tmp_path / "predictions" / "sst-dev-output.csv").parent.mkdir()
    mine.write_text("what `predict` wrote")
    plan = ["experiments", "plan", "sample", *places[:2], *computing]
    assert main(plan) == 0
    assert "to do: 8 of 8 stages" in capsys.readouterr().out
    assert main(arguments) == 1
    output = capsys.readouterr()
    page = tmp_path / "report" / "index.html"
    said, best, *predicted, tried, real = output.out.splitlines()[-7:]
    assert said == f"report: {page}"
    assert (tmp_path / "runs" / best.rpartition("/")[2] / "best.json").is_file()
    assert tried == f"try it: multitask explore --model {best.rpartition(', ')[2]}"
    assert f"**{best.removeprefix('best model: ').partition(',')[0]}**" in page.with_name("report.md").read_text()
    sample = "".join(path.read_text() for path in (ROOT / "data" / "sample").iterdir())
    for (task, texts), line in zip(TRIED.items(), predicted, strict=True):
        assert line.startswith(f"{task} ")
        assert all(text in line and text not in sample for text in texts)
    assert "data fetch" in real
    assert str(tmp_path / "report" / "predictions" / mine.name) in output.out.splitlines()
    assert [path.read_text() for path in mine.parent.iterdir()] == ["what `predict` wrote"]
    assert "error: Reviews, seed 0:" in output.err
    assert main(plan) == 0
    assert "to do: 2 of 8 stages" in capsys.readouterr().out
    assert main(["report", "sample", *places]) == 0
    assert page.is_file()
    assert main(["report", "paper", *places]) == 2


@pytest.mark.parametrize("number", slow_after(1, [errno.ENOSPC, errno.EROFS]))
def test_a_full_disk_stops_the_grid_and_the_same_call_goes_on(preset, tmp_path, monkeypatch, number):
    computed: list[str] = []

    def full(stage: Stage, *rest: Any) -> Run:
        computed.append(stage.name)
        if len(computed) == 2:
            raise OSError(number, "no space left to write x: 0.0 MB free", str(tmp_path))
        return run_stage(stage, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(engines, "run_stage", full)
        with pytest.raises(OSError, match="no space left to write x") as caught:
            run(preset, tmp_path)
    assert caught.value.filename == str(tmp_path)
    assert len(computed) == 2  # no row was tried after that
    assert PresetRecord.read(tmp_path, "sample").failures == []  # and none has failed
    assert not [log for log in (tmp_path / "logs").iterdir() if "Traceback" in log.read_text()]
    assert len(run(preset, tmp_path).failures) == 2  # the two broken rows


def test_a_log_that_cannot_be_written_hides_no_outcome(tmp_path, capsys):
    (tmp_path / "log").symlink_to("/dev/full")
    with engines._logged_to(tmp_path / "log"):
        logging.getLogger("multitask").warning("said")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said", "traceback"),
    [
        (MemoryError("out of memory"), "MemoryError: out of memory", True),
        (OSError(errno.EIO, "what is wrong", "some/file"), "some/file: what is wrong", False),
        (OSError(errno.ENOENT, "what is wrong", "some/file"), "some/file: what is wrong", True),  # a file of the code
    ],
    ids=str,
)
def test_an_error_is_one_line_of_each_row_and_has_its_traceback_in_the_log_unless_a_disk_failed(
    preset, tmp_path, monkeypatch, error, said, traceback
):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(engines, "run_stage", fail)
    record = run(preset, tmp_path)
    assert [run.error for _, run in record.failures] == [said] * 6
    assert {"Traceback" in log.read_text() for log in (tmp_path / "logs").iterdir()} == {traceback}
