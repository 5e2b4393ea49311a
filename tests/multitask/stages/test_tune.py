"""Searches: trials on held-out rows, the same ones by seed however often they are stopped, pruned ones resumable."""

import json
import math
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("optuna", reason="needs the extra tune")

from minbert.errors import InputError
from multitask.base.options import RunOptions
from multitask.base.runs import Run, Weights
from multitask.cli.main import main
from multitask.data.contamination import TrainedOn
from multitask.stages import tune
from multitask.stages.finetune import Finetuning, finetune
from multitask.stages.settings import FinetuneConfig
from multitask.stages.tune import Choices, Range, TuneSearch, dev_scores
from multitask.tasks.declarations import chosen_tasks
from multitask.tasks.read_examples import held_out_sentences, load_training_rows
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Evaluation
from tests.multitask.stages.conftest import weights

CONFIG = FinetuneConfig(("sentiment", "similarity"), batch_size=32, optimizer=OptimizerConfig(1e-3), max_length=40)
SPACE = {"learning_rate": Range(1e-4, 1e-2, True), "epochs": Choices((1, 2))}
RATES = {"learning_rate": Choices((2e-4, 1e-4, 5e-5))}


@pytest.fixture
def search(one_layer, data, tmp_path) -> Callable[..., TuneSearch]:
    """A search on the small data, in a folder of this name."""

    def settings(chosen: Any) -> tuple[Weights, FinetuneConfig]:
        optimizer = replace(CONFIG.optimizer, learning_rate=chosen["learning_rate"])
        return Weights(str(one_layer)), replace(CONFIG, optimizer=optimizer, epochs=chosen.get("epochs", 2))

    def make(folder: str, space: Any = SPACE, seed: int = 0, **defaults: Any) -> TuneSearch:
        options = RunOptions(device="cpu", precision="fp32", runs=tmp_path / folder)
        return TuneSearch(space, settings, defaults, data, 0.25, seed, options)

    return make


def table(search: TuneSearch, *calls: tuple[int | None, float | None]) -> list[dict[str, Any]]:
    """All trials, without their times, after calls of `run`, each with so many trials in all or so much more time."""
    for trials, seconds in calls:
        with search.study("test") as (_, study):
            took = sum(trial.user_attrs.get("seconds", 0.0) for trial in study.trials)
            search.run(study, trials, None if seconds is None else took + seconds)
    return tune.trials_table(study).drop(columns="seconds").to_dict("records")


@pytest.fixture
def scripted(monkeypatch) -> None:
    """Scores equal the learning rate, and a trial is pruned from the second on."""
    monkeypatch.setattr(
        Finetuning, "evaluate", lambda self: Evaluation({}, {"overall": self.config.optimizer.learning_rate})
    )
    monkeypatch.setattr(Finetuning, "metrics_of_start", lambda self: {})
    monkeypatch.setattr(tune, "STARTUP", 1)


def test_a_range_of_whole_numbers_has_two_whole_ends():
    drawn = SimpleNamespace(suggest_int=lambda *_, **__: "whole", suggest_float=lambda *_, **__: "any")
    assert [Range(*ends).suggest(drawn, "x") for ends in ((0, 3), (0, 0.5), (0.5, 3))] == ["whole", "any", "any"]
    assert [Range(0, 1).stored(value) for value in (0, 0.1, 1, 2)] == [0, None, 1, None]  # no default that it lacks


@pytest.mark.slow
def test_trials_follow_from_the_seed_even_if_stopped(search):
    whole = table(search("whole"), (4, None))
    assert [trial["state"] for trial in whole] == ["complete"] * 4
    assert len({trial["learning_rate"] for trial in whole}) == 4
    # Without time, the first trial of two epochs stops after one; the next call finishes it.
    assert table(search("parts"), (1, None), (None, 0.01), (3, None), (4, None)) == whole
    assert table(search("other", seed=1), (1, None)) != whole[:1]


def test_a_trial_without_time_stops_at_an_evaluation_and_goes_on(search, monkeypatch):
    space = {"learning_rate": Choices((1e-3,))}
    expected = table(search("whole", space), (1, None))
    cut = search("cut", space)
    assert [(t["epochs run"], t["state"]) for t in table(cut, (None, 0.01))] == [(1, "running")]
    steps = []
    backward = Finetuning.backward
    monkeypatch.setattr(Finetuning, "backward", lambda *args: steps.append(args) or backward(*args))
    assert table(cut, (1, None)) == expected
    assert len(steps) == 2  # of four
    first, second = (
        next(Run(f.parent) for f in s.options.runs.glob("finetune-*/DONE")) for s in (search("whole"), cut)
    )
    assert weights(first) == weights(second)


def test_pruned_trials_can_be_resumed_and_collected(search, scripted, one_layer, data):
    found = search("runs", RATES, learning_rate=2e-4)
    trials = table(found, (8, None))
    best = max(RATES["learning_rate"].values)
    seen: list[float] = []
    for trial in trials:  # the median rule of trials with the same constant scores
        pruned = bool(seen) and trial["learning_rate"] < np.median(seen)
        assert trial["state"] == ("pruned" if pruned else "complete")
        assert trial["held-out score"] == trial["learning_rate"]
        seen += [] if pruned else [trial["learning_rate"]]
    assert {trial["state"] for trial in trials} == {"pruned", "complete"}
    folders = list(found.options.runs.glob("finetune-*"))
    assert len(folders) == len({trial["learning_rate"] for trial in trials})  # nothing is computed twice
    left = [folder for folder in folders if not (folder / "DONE").is_file()]
    assert left
    for folder in left:
        assert (folder / "state" / "state.pt").is_file()
    start, config, key = found.trial_of(
        {"learning_rate": next(t for t in trials if t["state"] == "pruned")["learning_rate"]}
    )
    resumed = finetune(start, data, config, found.options)
    assert resumed.folder in left
    assert resumed.digest == key.digest()
    assert weights(resumed) == weights(
        finetune(start, data, config, replace(found.options, runs=found.options.runs / "new"))
    )
    with found.study("test") as (_, study):
        assert tune.best_choice(study) == {"learning_rate": best}
        assert tune.saved(study).iloc[0]["pruned"] == sum(trial["state"] == "pruned" for trial in trials)


@pytest.mark.parametrize(
    ("tried", "ends"),
    [
        ([0, 1, 2, *[0] * 10], True),
        ([0, 1, 2, *[0] * 9], False),
        ([0, 1, 2, *[0] * 8, 9, 0], False),  # the last one repeats an earlier one, as not all of the last ten do
        ([0] * 10, False),
        ([0] * 11, True),
    ],
)
def test_a_search_ends_after_ten_repetitions(tried, ends):
    trials = [SimpleNamespace(params={"epochs": epochs}) for epochs in tried]
    assert tune._repeats(SimpleNamespace(get_trials=lambda **_: trials)) == ends


@pytest.mark.parametrize("most", [None, 40])
def test_a_search_ends_when_only_settings_are_repeated(most, search, scripted, caplog):
    caplog.set_level("INFO")
    found = search("runs", {"learning_rate": Choices((1e-3, 2e-3))})
    trials = table(found, (most, None))
    assert len(trials) <= 2 * tune.REPEATS + 2
    assert len(list(found.options.runs.glob("finetune-*"))) == 2
    ended = f"{len(trials)} trials" if most is None else f"{len(trials)} of 40 trials"
    assert caplog.messages[-1] == f"the last 10 trials repeated earlier settings: the search ends after {ended}"
    caplog.clear()
    assert table(found, (len(trials), None)) == trials  # all trials that were asked for
    assert not any("repeated" in line for line in caplog.messages)


@pytest.mark.parametrize("epochs", [(1, 0), (0, 1)])
def test_a_search_goes_on_after_values_that_are_refused(epochs, search, scripted):
    """Also after first values that exclude one another."""
    space = {"epochs": Choices(epochs), "learning_rate": Choices((1e-3,))}
    trials = table(search("runs", space, epochs=epochs[0]), (6, None))
    assert len(trials) == 6
    assert {trial["epochs"] for trial in trials} == {0, 1}
    for trial in trials:
        assert (trial["epochs"] == 0) == (trial["state"] == "pruned") == ("at least 1" in str(trial["failed"]))


def test_other_start_weights_under_the_same_name_are_another_search(search, scripted, one_layer, tmp_path):
    copy = shutil.copytree(one_layer, tmp_path / "copy")
    found = search("runs", {"start": Choices((str(one_layer), str(copy))), "learning_rate": Choices((1e-3,))})
    found = replace(found, settings=lambda chosen: (Weights(chosen["start"]), search("runs").settings(chosen)[1]))
    with found.study("test") as (before, _):
        pass
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    with found.study("test") as (after, _):
        assert before != after


def test_what_a_kill_leaves_in_the_journal_is_removed(search, scripted):
    found = search("runs")
    whole = table(found, (2, None))
    with found.study("test") as (folder, _):
        pass
    with (folder / "journal.log").open("a") as journal:
        journal.write('{"op_code":5,"worker')
    (folder / "journal.log.lock").symlink_to(folder / "journal.log")
    assert table(found, (3, None))[:2] == whole


def test_dev_sets_are_not_read_by_trials(run_stage, data, tmp_path):
    """A run with held-out rows does without dev sets, and trains on no sentence that it is scored on."""
    without = tmp_path / "data"
    without.mkdir()
    for path in data.glob("*-train.csv"):
        (without / path.name).write_bytes(path.read_bytes())
    config = replace(CONFIG, epochs=1, held_out=0.25)
    ours = run_stage(finetune, config, folder="without", data=without)
    both = run_stage(finetune, config, folder="with", data=data)
    assert ours.digest == both.digest
    assert weights(ours) == weights(both)
    rows = {name: load_training_rows(task)[1] for name, task in chosen_tasks(data, CONFIG.tasks).items()}
    record = TrainedOn.of_folder(ours.folder, "")
    for name, parts in held_out_sentences(rows, 0.25).items():
        for seen, part in zip((True, False), parts, strict=True):
            assert (record.sentences_seen(rows[name].take(part).sentences[0]) == seen).all()


def test_trials_without_a_score_do_not_ask_for_a_larger_budget(search, scripted, monkeypatch):
    monkeypatch.setattr(Finetuning, "evaluate", lambda self: Evaluation({}, {"overall": math.nan}))
    found = search("runs", RATES)
    trials = table(found, (2, None))
    assert [trial["failed"] for trial in trials] == ["all its held-out scores are undefined"] * 2
    with found.study("test") as (_, study), pytest.raises(InputError) as error:
        tune.best_choice(study)
    assert str(error.value) == "no trial has a score; 2 failed, the last one: all its held-out scores are undefined"


def test_labels_on_which_no_trial_can_have_a_score_are_refused_before_training(search, monkeypatch, tmp_path):
    monkeypatch.setattr(Finetuning, "backward", pytest.fail)
    rows = "".join(f"{i}\tone {i}\ttwo {i}\t3.0\n" for i in range(20))
    (tmp_path / "sts-train.csv").write_text(f"id\tsentence1\tsentence2\tsimilarity\n{rows}")
    whole = search("runs")

    def settings(chosen: Any) -> tuple[Weights, FinetuneConfig]:
        start, config = whole.settings(chosen)
        return start, replace(config, tasks=("similarity",))

    found = replace(whole, data=tmp_path, settings=settings)
    with pytest.raises(InputError, match=r"^similarity: held-out rows of .*: pearson and spearman .* labels are 3; "):
        table(found, (2, None))
    assert not list(found.options.runs.glob("tune-*"))


def test_trials_that_tie_with_the_best_are_named(search, scripted, monkeypatch):
    found = search("runs", RATES)
    table(found, (3, None))
    with found.study("test") as (_, study):
        assert tune.ties(study) == []
    monkeypatch.setattr(Finetuning, "evaluate", lambda self: Evaluation({}, {"overall": 0.5}))
    found = search("tied", RATES)
    trials = table(found, (9, None))
    rates = [trial["learning_rate"] for trial in trials]
    assert {trial["state"] for trial in trials} == {"complete"}
    assert len(rates) > len({*rates}) == 3  # some are tried again, and tie once
    first, *others = sorted(map(rates.index, {*rates}))
    assert first == 0
    with found.study("test") as (_, study):
        [line] = tune.ties(study)
    expected = "2 other choices of settings have the same score as trial 0, which came first: trials "
    assert line.strip() == expected + ", ".join(map(str, others))


SPACE_FILE = """
train_limit = 24
learning_rate = { low = 1e-4, high = 1e-2, log = true }
epochs = [1, 2]
tasks = ["sentiment", "similarity"]
ordinal = [["sentiment"], []]
batch_size = 16
clip = [1, 2]
[heads]
dropout = [0.1, 0.3]
"""


def test_the_command(one_layer, data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE_FILE)
    command = ["tune", "space.toml", "--trials", "2", "--seeds", "2", "--start", str(one_layer), "--data", str(data)]
    assert main([*command, "--device", "cpu", "--precision", "bf16", "--fast"]) == 0
    *_, report, best, winner = capsys.readouterr().out.splitlines()
    assert Path(report).read_text().count("| complete |") == 2
    capsys.readouterr()
    # The file has the winner's settings: finetune finds its run.
    computing = {"device": "cpu", "precision": "bf16", "fast": True}
    assert tomllib.loads(Path(best).read_text()).items() >= computing.items()
    assert main(["finetune", "--config", best]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == winner
    assert main(["finetune", "--config", best, "--seed", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] in map(str, Path("runs").glob("finetune-*"))


def test_a_budget_is_in_minutes(one_layer, data, tmp_path, monkeypatch):
    asked = []

    def run(self, study, trials, seconds):
        asked.append((trials, seconds))
        raise InputError("enough")

    monkeypatch.setattr(tune.TuneSearch, "run", run)
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE_FILE)
    command = ["tune", "space.toml", "--budget", "1.5", "--start", str(one_layer), "--data", str(data)]
    assert main([*command, "--device", "cpu"]) == 2
    assert asked == [(None, 90.0)]


@pytest.fixture
def searched(monkeypatch, tmp_path) -> list[TuneSearch]:
    """The searches that commands begin; they end before the first trial."""
    found: list[TuneSearch] = []

    def study(search: TuneSearch, _name: str) -> None:
        found.append(search)
        raise InputError("enough")

    monkeypatch.setattr(TuneSearch, "study", study)
    monkeypatch.chdir(tmp_path)
    return found


def test_start_weights_of_the_command_line_take_the_place_of_the_files(searched, one_layer, tiny_encoder, data, capsys):
    command = ["tune", "space.toml", "--trials", "1", "--data", str(data)]
    Path("space.toml").write_text(f"start = '{one_layer}'\nepochs = [1, 2]")
    for given, start in (([], one_layer), (["--start", str(tiny_encoder)], tiny_encoder)):
        main([*command, *given])
        assert searched[-1].settings({"epochs": 1})[0] == Weights(str(start))
    Path("space.toml").write_text(f"start = ['{one_layer}', '{tiny_encoder}']")
    main([*command, "--start", str(tiny_encoder)])
    assert searched[-1].defaults == {"start": str(tiny_encoder)}
    capsys.readouterr()
    assert main([*command, "--start", str(data)]) == 2
    expected = f"error: --start {data}: space.toml lists other start weights; add it there, or leave it out\n"
    assert capsys.readouterr().err == expected
    assert len(searched) == 3


def test_the_first_trial_has_the_defaults_also_where_they_are_none(searched, one_layer, data):
    Path("space.toml").write_text('patience = [2, "none"]\nfreeze = ["1", "none"]\nwarmup = [0.5, 0.1]')
    main(["tune", "space.toml", "--trials", "1", "--start", str(one_layer), "--data", str(data)])
    search = searched[0]
    tried = {name: json.loads(search.space[name].stored(value)) for name, value in search.defaults.items()}
    config = search.settings(tried)[1]
    usual = FinetuneConfig()
    assert (config.patience, config.freeze, config.optimizer.warmup) == (None, usual.freeze, usual.optimizer.warmup)


def test_a_mean_over_seeds_of_which_one_is_undefined_is_undefined():
    def run(score: float) -> Any:
        lines = [{"step": 1, "scores": {"a": score, "b": 0.5}}]
        return SimpleNamespace(kept_models=lambda: {"a": Path("step-0000001")}, history=lambda: lines)

    found = dev_scores({0: run(0.8), 1: run(math.nan), 2: run(0.6)}).set_index("dev, seed")
    assert found.loc[["mean", "std"], "a"].isna().all()
    assert (found.loc["mean", "b"], found.loc["std", "b"]) == (0.5, 0.0)
