"""The store: keys follow what decides a result, notes only complete artefacts, and gc takes what no record needs."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from minbert.errors import InputError
from multitask.cli.main import main
from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.options import RunOptions
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import run_stage
from studies.engine.experiments import experiment
from studies.engine.garbage import collect, entries
from studies.engine.local_engine import InProcess
from studies.engine.plan import make_plan
from studies.engine.presets import Preset
from studies.engine.recipes import Recipes
from studies.engine.run import run_preset
from studies.engine.store import Store
from studies.engine.table import Row


def options(runs: Path) -> RunOptions:
    return RunOptions("cpu", "fp32", runs)


def preset(recipes: Recipes) -> Preset:
    lines = [
        (Row("none", "None"), recipes.finetune(recipes.start)),
        (Row("nli", "NLI"), recipes.finetune(recipes.nli(epochs=1))),
    ]
    return Preset("sample", recipes, (experiment("1", "", "", lines),))


@pytest.fixture(scope="module")
def computed(recipes: Recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("computed") / "runs"
    run_preset(preset(recipes), 1, options(runs), InProcess())
    return runs


@pytest.fixture
def runs(computed: Path, tmp_path: Path) -> Path:
    """A computed store that a test may change."""
    return Path(shutil.copytree(computed, tmp_path / "runs"))


def test_a_key_follows_everything_that_decides_a_result(recipes: Recipes, tmp_path: Path) -> None:
    def key(recipes: Recipes, device_options: RunOptions | None = None) -> str:
        return Store(device_options or options(tmp_path)).key(recipes.finetune(recipes.nli())).digest()

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


def test_the_key_is_that_of_the_command_line(recipes: Recipes, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of the command line is found by a grid, and the other way round."""
    store, config = Store(options(runs)), replace(recipes.multitask, seed=7)
    node = recipes.finetune(recipes.nli(epochs=1), config)
    made = store.find(recipes.finetune(recipes.nli(epochs=1)))
    assert made is not None
    same = ["finetune", "--config", str(made.folder), "--runs", str(runs), "--device", "cpu", "--precision", "fp32"]
    assert main(same) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(made.folder)
    assert main([*same, "--seed", "7"]) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    found = store.find(node)
    assert found is not None
    assert found.folder == folder


def test_only_a_complete_run_is_found(recipes: Recipes, runs: Path) -> None:
    store, node = Store(options(runs)), recipes.finetune(recipes.start)
    found = store.find(node)
    assert found is not None
    assert found.stage == "finetune"
    (found.folder / "DONE").unlink()
    assert store.find(node) is None


@pytest.mark.parametrize("whole", [True, False])
def test_logs_behind_a_link_are_not_added_to(recipes: Recipes, runs: Path, tmp_path: Path, whole: bool) -> None:
    (diary := tmp_path / "diary").mkdir()
    log = Store(options(runs)).log(recipes.finetune(recipes.start), "again")
    path, target = (log.parent, diary) if whole else (log, diary / log.name)
    shutil.rmtree(log.parent)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    with pytest.raises(InputError, match=f"{path}: a link"):
        Store(options(runs)).log(recipes.finetune(recipes.start), "again")


def test_gc_takes_what_no_record_needs_and_what_is_unfinished(recipes: Recipes, runs: Path) -> None:
    kept = {entry.artefact.folder.name for entry in entries(runs)}
    assert not [path for path in collect(runs) if path.suffix != ".log"]
    warmer = replace(recipes, multitask=replace(recipes.multitask, batch_size=16))
    run_preset(preset(warmer), 1, options(runs), InProcess())
    unused = {path.name for path in collect(runs) if path.is_dir()}
    now = {entry.artefact.folder.name for entry in entries(runs) if entry.needed_by}
    assert unused == kept - now
    assert sorted(name.partition("-")[0] for name in unused) == ["evaluate"] * 2 + ["finetune"] * 2  # shares the rest
    victim = next(runs.glob("finetune-*")) / "DONE"
    collect(runs, delete=True)
    assert {entry.artefact.folder.name for entry in entries(runs)} == now
    assert collect(runs) == {}
    assert victim.parent.name in now or not victim.parent.exists()
    assert all(stage.cached for stage in make_plan(preset(warmer), 1, options(runs)))


def test_gc_leaves_a_run_that_a_person_asked_for_unless_it_is_named(recipes: Recipes, runs: Path) -> None:
    (runs / "experiments-sample.json").unlink()
    node = recipes.finetune(recipes.start)
    store = Store(options(runs))
    made = store.find(node)
    again = run_stage(stage_named("finetune"), [recipes.start], recipes.data, node.config, options(runs))
    assert again == made  # found done, and from now on kept
    assert again.folder not in collect(runs)
    assert again.folder in collect(runs, [again.folder.name])


def test_gc_removes_nothing_on_the_word_of_a_damaged_record(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "experiments-sample.json").write_text("[1]")
    assert main(["experiments", "gc", "--delete", "--runs", str(runs)]) == 2
    assert "run `multitask experiments run sample` again" in capsys.readouterr().err
    assert len(list(runs.glob("*/DONE"))) == 5


def test_commands_list_show_and_collect(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--runs", str(runs)]
    assert main(["experiments", "list", *where]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1].startswith("5 runs, ")
    name = next(runs.glob("pretrain-*")).name
    assert main(["experiments", "show", name.rsplit("-", 1)[1], *where]) == 0
    output = capsys.readouterr().out
    assert '"sources"' in output
    assert "complete" in output.splitlines()[-1]
    assert main(["experiments", "show", "nothing", *where]) == 2
    capsys.readouterr()
    evaluated = next(runs.glob("evaluate-*"))
    assert main(["experiments", "show", *(path.name for path in runs.glob("finetune-*")), evaluated.name, *where]) == 0
    rows = {line[:30].strip(): line[30:].split() for line in capsys.readouterr().out.splitlines()[4:]}
    best = [max(line["scores"]["overall"] for line in Artefact(path).history()) for path in runs.glob("finetune-*")]
    assert rows["best overall"] == [*(f"{score:.4f}" for score in best), "-"]
    assert len(set(rows["start"])) == 3
    assert "seed" in rows  # which evaluations do not have
    assert "epochs" in rows
    (runs / "experiments-sample.json").unlink()
    assert main(["experiments", "gc", *where]) == 0
    assert len(entries(runs)) == 5
    assert main(["experiments", "gc", *where, "--delete"]) == 0
    assert "removed" in capsys.readouterr().out.splitlines()[-1]
    assert entries(runs) == []


def test_a_plan_counts_rows_and_what_is_there(recipes: Recipes, runs: Path) -> None:
    planned = preset(recipes)
    [first] = planned.experiments
    again = experiment("2", "", "", [(Row("again", "NLI again"), first.models["nli"])])
    plan = make_plan(replace(planned, experiments=(first, again)), 1, options(runs))
    assert [(s.depth, s.stage, s.rows, s.cached, s.missing) for s in plan] == [
        (0, "finetune", 1, 1, 0),
        (1, "evaluate", 1, 1, 0),
        (0, "pretrain", 2, 1, 0),
        (1, "finetune", 2, 1, 0),
        (2, "evaluate", 2, 1, 0),
    ]
    two = make_plan(planned, 2, options(runs))
    assert {(s.cached, s.missing, s.seeds) for s in two} == {(1, 1, 2)}


# Damage.


def test_a_damaged_run_is_nobodys_result(recipes: Recipes, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--runs", str(runs)]
    assert main(["experiments", "verify", *where]) == 0
    assert capsys.readouterr().out == "5 complete runs, 0 damaged\n"
    path = next(runs.glob("finetune-*/checkpoints/*/model.safetensors"))
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="changed since the run was complete; delete"):
        run_preset(preset(recipes), 1, options(runs), InProcess())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as no editor would, but a bad disk
    assert main(["experiments", "verify", *where]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: changed since the run was complete; delete {path.parents[2]} and run the command that made it again",
        "5 complete runs, 1 damaged",
    ]


@pytest.mark.parametrize("content", ["", "{", "[1]\n"])
def test_show_refuses_damaged_metrics_in_one_line(runs: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(runs.glob("finetune-*/metrics.jsonl"))
    path.write_text(content)
    assert main(["experiments", "show", path.parent.name, "--runs", str(runs)]) == 2
    assert re.match(rf"error: {re.escape(str(path))}:(1:)? ", capsys.readouterr().err)
