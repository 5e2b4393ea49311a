"""Runs are removed only where no record needs them and no person asked for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from minbert.errors import InputError
from multitask.runs.artefact import DONE, Artefact, lock_file
from multitask.runs.locks import held_now, shared
from multitask.runs.run_hash import RunKey
from studies.engine import garbage
from studies.engine.garbage import collect, entries, find_entry, remove
from studies.engine.grid import GRIDS
from studies.engine.record import Record, RecordedRun
from studies.engine.table import Row, Table


@dataclass(frozen=True)
class Config:
    seed: int = 0


def make(runs: Path, seed: int, keep: bool = False, done: bool = True) -> Artefact:
    with Artefact.building(runs, RunKey("finetune", 1, Config(seed), {}), "run", {}, keep) as artefact:
        if done:
            artefact.finish()
    return artefact


def record(runs: Path, *needed: Artefact) -> None:
    found = tuple(RecordedRun("1", "row", seed, (run.folder.name,)) for seed, run in enumerate(needed))
    Record("sample", "", "", (), (Table("1", "", "", (Row("row", "Row"),)),), found).write(runs)


def listed(runs: Path, named: Sequence[str] = ()) -> list[Path]:
    return list(collect(runs, named))


def test_a_run_goes_unless_a_record_or_a_person_wants_it(tmp_path):
    needed, by_hand, unused = make(tmp_path, 0), make(tmp_path, 1, keep=True), make(tmp_path, 2)
    unfinished = make(tmp_path, 3, done=False)
    record(tmp_path, needed)
    assert listed(tmp_path) == sorted([unfinished.folder, unused.folder])
    assert listed(tmp_path, [by_hand.digest]) == sorted([by_hand.folder, unfinished.folder, unused.folder])
    assert find_entry(tmp_path, needed.digest).needed_by == ("sample",)
    assert [entry.state for entry in entries(tmp_path) if entry.artefact == unfinished] == ["unfinished"]
    record(tmp_path, unused)  # in place of what it named before
    assert listed(tmp_path) == sorted([needed.folder, unfinished.folder])


def test_a_named_run_that_a_record_needs_stays(tmp_path):
    needed = make(tmp_path, 0, keep=True)
    record(tmp_path, needed)
    with pytest.raises(InputError, match="needed by sample"):
        listed(tmp_path, [needed.folder.name])
    with pytest.raises(InputError, match="no such run"):
        listed(tmp_path, ["finetune-run-0"])


@pytest.mark.parametrize("damaged", ["[1]", "{}", "[", '"name"', "null"])
def test_a_damaged_record_stops_everything(tmp_path, damaged):
    make(tmp_path, 0)
    Record.path(tmp_path, "sample").write_text(damaged)
    with pytest.raises(InputError, match=r"experiments-sample\.json: .*; run `multitask experiments run sample` again"):
        listed(tmp_path)


def test_a_run_that_is_being_built_stays(tmp_path):
    with Artefact.building(tmp_path, RunKey("finetune", 1, Config(), {}), "run", {}, keep=False) as artefact:
        assert collect(tmp_path, delete=True) == {}
    assert list(collect(tmp_path, delete=True)) == [artefact.folder]
    assert not artefact.folder.exists()


def test_nothing_is_removed_while_experiments_run(tmp_path):
    unused = make(tmp_path, 0)
    with shared(lock_file(tmp_path, GRIDS)):
        assert listed(tmp_path) == [unused.folder]
        with pytest.raises(InputError, match="experiments are running"):
            collect(tmp_path, delete=True)
    assert unused.done


def test_what_is_removed_cannot_become_needed_meanwhile(tmp_path, monkeypatch):
    """From the first look to the last removal no grid begins, and nobody finds the run complete."""
    unused, removed = make(tmp_path, 0), []

    def looked_at(path: Path) -> None:
        for lock in (lock_file(tmp_path, GRIDS), unused.lock):
            with held_now(lock) as free:
                removed.append((path, free))

    monkeypatch.setattr(garbage, "remove", looked_at)
    collect(tmp_path, delete=True)
    assert removed == [(unused.folder, False)] * 2


def test_a_run_that_a_person_asks_for_during_the_look_stays(tmp_path, monkeypatch):
    unused = make(tmp_path, 0)
    whole = entries(tmp_path)

    def then_asked_for(_: Path) -> list[garbage.Entry]:
        make(tmp_path, 0, keep=True)
        return whole

    monkeypatch.setattr(garbage, "entries", then_asked_for)
    assert collect(tmp_path, delete=True) == {}
    assert unused.done


@pytest.mark.parametrize("link", [f".locks/{GRIDS}", ".locks", "logs"])
def test_what_lies_behind_a_link_is_neither_emptied_nor_removed(tmp_path, link):
    runs, home = tmp_path / "runs", tmp_path / "home"
    home.mkdir()
    (home / "diary.log").write_text("today")
    (runs / link).parent.mkdir(parents=True)
    (runs / link).symlink_to(home / "diary.log" if link.endswith(GRIDS) else home)
    for delete in (False, True):
        with pytest.raises(InputError, match=f"{runs / link}: a link"):
            collect(runs, delete=delete)
    assert {path.name: path.read_text() for path in home.iterdir()} == {"diary.log": "today"}


def test_what_is_removed_is_never_complete_and_half_there(tmp_path, monkeypatch):
    artefact = make(tmp_path, 0)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("studies.engine.garbage.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(artefact.folder)
    assert artefact.folder.is_dir()
    assert not (artefact.folder / DONE).exists()
    remove(artefact.folder)
    assert not artefact.folder.exists()


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    outside = make(tmp_path / "outside", 0).folder
    (tmp_path / "runs").mkdir()
    (link := tmp_path / "runs" / outside.name).symlink_to(outside)
    remove(link)
    assert not link.is_symlink()
    assert Artefact(outside).done


@pytest.mark.parametrize("lost", ["inputs.json", "config.json"])
def test_a_complete_run_that_lost_a_file_is_still_a_run(tmp_path, lost):
    damaged, whole = make(tmp_path, 0), make(tmp_path, 1)
    (damaged.folder / lost).unlink()
    assert {entry.artefact.folder for entry in entries(tmp_path)} == {damaged.folder, whole.folder}
