"""An artefact's place follows from what determines it, and its state outlives it only when it is done."""

import errno
import json
import math
import os
import re
import shutil
import threading
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from minbert.errors import InputError
from minbert.files import write_json
from multitask.base import runs as artefacts
from multitask.base.keys import RunKey, changed_settings
from multitask.base.runs import LOCKS, Run, last_run, refuse_file_of_run, run_of
from multitask.cli.main import main
from multitask.stages.settings import FinetuneConfig
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.settings import ObjectiveConfig


@dataclass(frozen=True)
class Heads:
    sharing: str = "none"


@dataclass(frozen=True)
class Config:
    epochs: int = 1
    heads: Heads = Heads()
    tasks: tuple[str, ...] = ("a", "b")


INPUTS = {"start": "1f", "data": {"a": "2f"}}


def test_the_run_of_a_checkpoint_is_found_through_a_link(tmp_path):
    checkpoint = tmp_path.resolve() / "run" / "checkpoints" / "step-0000008"
    checkpoint.mkdir(parents=True)
    (tmp_path / "best").symlink_to(checkpoint)
    assert run_of(checkpoint) == run_of(tmp_path / "best") == tmp_path.resolve() / "run"
    assert run_of("someone/tiny") == Path("someone/tiny")


def building(runs: Path, stage="finetune", version=1, name="run", config=Config(), inputs=INPUTS, labels=None, **more):
    return Run.building(runs, RunKey(stage, version, config, inputs), name, labels or {}, **more)


def place(runs: Path, **changes) -> Run:
    with building(runs, **changes) as artefact:
        return artefact


def test_equal_identities_share_a_folder_whatever_they_are_called(tmp_path):
    first = place(tmp_path)
    assert place(tmp_path, name="other", labels={"data": "elsewhere"}) == first
    assert place(tmp_path, inputs=dict(reversed(INPUTS.items()))) == first
    assert place(tmp_path / "there").folder.name == first.folder.name
    assert first.folder.name == f"finetune-run-{first.digest}"


@pytest.mark.parametrize(
    "changes",
    [
        *({"stage": "other"}, {"version": 2}, {"config": Config(epochs=2)}),
        *({"config": Config(heads=Heads("shared"))}, {"config": Config(tasks=("b", "a"))}),
        *({"inputs": INPUTS | {"start": "2f"}}, {"inputs": INPUTS | {"precision": "bf16"}}),
    ],
    ids=str,
)
def test_a_different_identity_has_a_different_folder(tmp_path, changes):
    assert place(tmp_path, **changes).digest != place(tmp_path).digest


def test_a_new_option_with_a_default_finds_the_old_run_done(tmp_path):
    """Also in a nested configuration, and whatever else was set."""

    @dataclass(frozen=True)
    class NewHeads(Heads):
        width: int | None = None

    @dataclass(frozen=True)
    class NewConfig(Config):
        heads: Heads = NewHeads()
        warmup: float = 0.1

    settings = {"epochs": 3, "tasks": ("b", "a")}
    old = place(tmp_path, config=Config(heads=Heads("shared"), **settings))
    old.finish()
    assert place(tmp_path, config=NewConfig(heads=NewHeads("shared"), **settings)).done
    assert not place(tmp_path, config=NewConfig(heads=NewHeads("shared", width=5), **settings)).done
    assert not place(tmp_path, config=NewConfig(heads=NewHeads("shared"), warmup=0.2, **settings)).done


def test_an_objectives_default_may_be_given_or_left_out():
    def digest(*objective) -> str:
        return RunKey("pretrain", 1, PretrainConfig(objective=ObjectiveConfig.parse(*objective)), {}).digest()

    assert digest("infonce") == digest("infonce:temperature=0.05")
    assert digest("vicreg:ratio=none") == digest("vicreg")
    found = [digest(text) for text in ("infonce", "infonce:temperature=0.1", "mnrl", "vicreg", "vicreg:ratio=1.5")]
    assert len(set(found)) == 5


def test_a_scheduler_without_parameters_is_its_name_in_the_key():
    assert [changed_settings(FinetuneConfig(scheduler=text)) for text in ("average", "pcgrad", "cagrad:c=0.4")] == [
        {},
        {"scheduler": "pcgrad"},  # as in published runs
        {"scheduler": {"name": "cagrad", "c": 0.4}},
    ]
    assert changed_settings(FinetuneConfig(scheduler="cagrad:c=0.5")) == {"scheduler": "cagrad"}


def test_a_copy_of_an_unfinished_run_does_not_hide_the_complete_one(tmp_path):
    run = place(tmp_path)
    shutil.copytree(run.folder, tmp_path / f"finetune-copy-{run.digest}")  # comes first by its name
    run.finish()
    assert place(tmp_path) == run


@pytest.mark.parametrize("name", ["", "a/b", "..\\x", "a b", "a*", "[a]", "line\n"])
def test_names_that_no_folder_can_have(tmp_path, name):
    with pytest.raises(InputError, match="expected letters, digits"):
        place(tmp_path, name=name)
    assert not list(tmp_path.iterdir())


def test_the_state_goes_only_when_the_run_is_marked_as_done(tmp_path, monkeypatch):
    artefact = place(tmp_path)
    state = artefact.folder / "state" / "state.pt"
    state.parent.mkdir()
    state.touch()

    def failing(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(artefacts, "write_json", failing)
        with pytest.raises(KeyboardInterrupt):
            artefact.finish()
    assert state.exists()
    assert not artefact.done
    artefact.finish()
    assert artefact.done
    assert not state.parent.exists()


def test_the_lock_is_held_by_one_at_a_time(tmp_path):
    inside, seen = [], []

    def work(name: str) -> None:
        for _ in range(20):
            with building(tmp_path, name=name):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work, args=[name]) for name in ("a", "b", "c", "d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 80
    assert len(list(tmp_path.glob("finetune-*"))) == 1  # whatever each of them calls it


@pytest.mark.parametrize("name", ["state", ".left.tmp"])
def test_a_pipe_in_place_of_a_folder_does_not_hold_up_a_run(tmp_path, name):
    os.mkfifo(place(tmp_path).folder / name)
    run = threading.Thread(target=lambda: place(tmp_path).finish(), daemon=True)
    run.start()
    run.join(timeout=20)
    assert not run.is_alive()


@pytest.mark.parametrize("complete", [False, True])
def test_outputs_do_not_replace_files_of_a_run(tmp_path, monkeypatch, capsys, complete):
    artefact = place(tmp_path)
    run = artefact.folder
    (run / "result.txt").touch()
    (run / "checkpoints").mkdir()
    if complete:
        artefact.finish()
    monkeypatch.chdir(run / "checkpoints")
    names = ("config.json", "inputs.json", "DONE", "result.txt")
    for flag, name in product(("--output", "--save-config"), names):
        before = (run / name).read_bytes() if (run / name).exists() else None
        assert main(["probe", "--model", "nothing", flag, f"../{name}"]) == 2
        assert capsys.readouterr().err == f"error: {flag} ../{name}: a file of the run {run}; expected another name\n"
        assert ((run / name).read_bytes() if (run / name).exists() else None) == before
    refuse_file_of_run(run / "checkpoints" / "evaluation-dev.json")


def test_a_suite_is_not_scored_for_a_table_over_a_file_of_a_run(tmp_path, capsys):
    """OUTPUT stands for three files."""
    artefact = place(tmp_path)
    (artefact.folder / "card.md").write_text("# A card")
    artefact.finish()
    options = ["--suite", "sts", "--data", "nothing", "--output", str(artefact.folder / "card.json")]
    assert main(["evaluate", "--model", "nothing", *options]) == 2
    path, run = artefact.folder / "card.md", artefact.folder
    assert capsys.readouterr().err == f"error: --output {path}: a file of the run {run}; expected another name\n"


def test_a_state_that_a_kill_left_behind_a_done_run_is_removed(tmp_path):
    with pytest.raises(KeyError), building(tmp_path):
        raise KeyError  # frees the lock
    artefact = place(tmp_path)
    artefact.finish()
    (artefact.folder / "state").mkdir()
    assert place(tmp_path) == artefact
    assert not (artefact.folder / "state").exists()


# Links, and files that go while a run is computed.


def tree(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", [".", "checkpoints", "state", "config.json", "events/now", f"../{LOCKS}"])
@pytest.mark.parametrize("done", [False, True])
def test_a_link_in_place_of_what_is_a_runs_own_is_refused_and_its_target_stays(tmp_path, name, done):
    artefact = complete(tmp_path / "runs") if done else place(tmp_path / "runs")
    path = Path(os.path.normpath(artefact.folder / name))
    path.parent.mkdir(exist_ok=True)
    home = tmp_path / "home"
    path.rename(home) if path.exists() else home.mkdir()
    path.symlink_to(home)
    before = tree(home)
    with pytest.raises(InputError, match=f"{path}: a link"):
        place(tmp_path / "runs")
    assert tree(home) == before


@pytest.mark.parametrize("lost", ["inputs.json", "config.json", "checkpoints", "checkpoints/step-0000001", "."])
def test_a_run_that_lost_files_meanwhile_is_not_complete_and_begins_anew(tmp_path, lost):
    artefact = place(tmp_path)
    for name in ("state/state.pt", "checkpoints/step-0000001/model.safetensors"):
        (artefact.folder / name).parent.mkdir(parents=True)
        (artefact.folder / name).touch()
    write_json(artefact.folder / "best.json", {"overall": "step-0000001"})
    path = artefact.folder / lost
    path.unlink() if path.is_file() else shutil.rmtree(path)
    with pytest.raises(FileNotFoundError, match=r"removed while the run was computed; run the same command again"):
        artefact.finish()
    assert not artefact.done
    assert not (artefact.folder / "state").exists()


def test_a_complete_run_is_read_where_its_lock_may_not_be_opened(tmp_path, monkeypatch):
    """As in another user's folder of runs. The tests may run as root, who may open anything."""
    artefact = place(tmp_path)

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "not yours", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(artefacts, "exclusive", refuse)
        with pytest.raises(PermissionError):
            place(tmp_path)
    artefact.finish()
    monkeypatch.setattr(artefacts, "exclusive", refuse)
    monkeypatch.setattr(artefacts, "write_json", refuse)  # nor is anything written
    assert place(tmp_path) == artefact


def test_the_last_run_is_the_complete_one_with_a_model_that_ended_last(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}: no complete run with a model"):
        last_run(tmp_path)
    found = [place(tmp_path, config=Config(epochs=epochs)) for epochs in (1, 2, 3, 4)]
    for time, run in enumerate(found):
        if run is not found[2]:  # has no model
            (run.folder / "checkpoints" / "best").mkdir(parents=True)
            (run.folder / "checkpoints" / "best" / "model.safetensors").touch()
            write_json(run.folder / "best.json", {"overall": "best"})
        if run is not found[3]:  # is not complete
            run.finish()
            os.utime(run.folder / "DONE", (time, time))
    assert last_run(tmp_path) == found[1].folder


# Damage to complete runs.


def complete(runs: Path) -> Run:
    """A run with two files, one of them in a folder, and the mark of a person."""
    artefact = place(runs)
    (artefact.folder / "checkpoints" / "step-0000001").mkdir(parents=True)
    (artefact.folder / "checkpoints" / "step-0000001" / "model.safetensors").write_bytes(bytes(range(256)))
    write_json(artefact.folder / "best.json", {"overall": "step-0000001"})
    artefact.finish()
    return artefact


FILES = ["checkpoints/step-0000001/model.safetensors", "best.json", "config.json", "inputs.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["flipped", "flipped at the old time", "longer", "empty", "missing"])
def test_damage_to_any_file_of_a_complete_run_is_refused_wherever_it_is_used(tmp_path, file, damage):
    artefact = complete(tmp_path)
    path = artefact.folder / file
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        flipped = bytes([content[0] ^ 1]) + content[1:]
        path.write_bytes({"longer": content + b" ", "empty": b""}.get(damage, flipped))
    what = f"{path}: {'missing' if damage == 'missing' else 'changed'} since the run was complete; delete"
    for use in (artefact.check, artefact.model_folder, lambda: place(tmp_path)):
        with pytest.raises(InputError, match=re.escape(what)):
            use()


def test_a_state_that_the_process_that_ended_the_run_is_removing_is_no_damage(tmp_path, monkeypatch):
    run = complete(tmp_path)
    (run.folder / "state").mkdir()
    scan = os.scandir

    def removed_meanwhile(path="."):
        if Path(path).name == "state":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", removed_meanwhile)
    run.check()


def test_a_copy_with_new_times_and_what_is_added_later_are_nobodys_damage(tmp_path):
    artefact = complete(tmp_path)
    write_json(artefact.folder / "checkpoints" / "step-0000001" / "evaluation-dev.json", {})
    copied = Run(Path(shutil.copytree(artefact.folder, tmp_path / "copy", copy_function=shutil.copy)))
    assert copied.model_folder().name == "step-0000001"
    copied.check()


OUTSIDE = '{"seconds": 1.0, "files": {"%s": {"sha256": "", "size": 0, "modified": 0}}}'
DAMAGED = ["", "[]", "{", '{"best.json": 1}', '{"best.json": {}}', "\0", OUTSIDE % "/etc/passwd", OUTSIDE % "a/../../b"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_list_of_hashes_that_is_none_is_refused(tmp_path, content):
    artefact = complete(tmp_path)
    (artefact.folder / "DONE").write_text(content)
    with pytest.raises(InputError, match=r"^[^\n]*DONE: [^\n]*; delete[^\n]*$"):
        artefact.model_folder()


NO_NAMES = ["../../outside/evil", "..", ".", "/etc", "a/b", "", "a\nb", 1, ["step-1"]]


@pytest.mark.parametrize("content", [*({"overall": name} for name in NO_NAMES), [], "step-1"])
def test_the_best_checkpoints_are_names_of_the_runs_own(tmp_path, content):
    artefact = place(tmp_path)
    write_json(artefact.folder / "best.json", content)
    with pytest.raises(InputError, match=r"best\.json: "):
        artefact.kept_models()


LINE = {"step": 1, "epoch": 1, "training": {"a": 1.5}, "dev": {}, "scores": {"a": 1}, "tokens": 1, "seconds": 0.5}


def test_history_is_the_lines_of_the_metrics(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(LINE) + "\n" + json.dumps(LINE | {"step": 2}) + "\n")
    assert Run(tmp_path).history() == [LINE, LINE | {"step": 2}]


@pytest.mark.parametrize("undefined", ["null", "NaN"])
def test_undefined_scores_are_nan_again_also_of_older_files(tmp_path, undefined):
    line = json.dumps(LINE | {"dev": {"a": {"r": "?", "n": [1]}}, "scores": {"a": "?"}}).replace('"?"', undefined)
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    [found] = Run(tmp_path).history()
    assert math.isnan(found["scores"]["a"])
    assert math.isnan(found["dev"]["a"]["r"])
    scores = '{"overall": ?, "scores": {"a": ?}, "metrics": {"a": {"r": ?}}, "overlap": {"a": {"clean": null}}}'
    (tmp_path / "evaluation.json").write_text(scores.replace("?", undefined))
    found = Run(tmp_path).evaluation()
    assert all(map(math.isnan, (found["overall"], found["scores"]["a"], found["metrics"]["a"]["r"])))
    assert found["overlap"]["a"]["clean"] is None


OTHER_SCORES = f"{json.dumps(LINE)}\n{json.dumps(LINE | {'scores': {'b': 1}})}\n"
DAMAGED = ["", "1", "[]", "{}", json.dumps(LINE)[:-2], json.dumps(LINE | {"step": "1"}), OTHER_SCORES]


@pytest.mark.parametrize("content", DAMAGED)
def test_metrics_that_are_damaged_are_refused(tmp_path, content):
    (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"^[^\n]*metrics\.jsonl:([12]:)? [^\n]*$"):
        Run(tmp_path).history()
