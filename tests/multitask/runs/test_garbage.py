"""Runs are removed only where no keep-list needs them and no person asked for them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from minbert.errors import InputError
from multitask.runs.artefact import DONE, Artefact
from multitask.runs.garbage import entries, find_entry, keep_lists, remove, size_of, unneeded, write_keep_list
from multitask.runs.run_hash import RunKey


@dataclass(frozen=True)
class Config:
    seed: int = 0


def make(runs: Path, seed: int, keep: bool = False, done: bool = True) -> Artefact:
    with Artefact.building(runs, RunKey("finetune", 1, Config(seed), {}), "run", {}, keep) as artefact:
        if done:
            artefact.finish()
    return artefact


def test_a_run_goes_unless_a_list_or_a_person_wants_it(tmp_path):
    listed, by_hand, unused = make(tmp_path, 0), make(tmp_path, 1, keep=True), make(tmp_path, 2)
    unfinished = make(tmp_path, 3, done=False)
    write_keep_list(tmp_path, "tables", [listed.folder.name])
    assert unneeded(tmp_path) == sorted([unfinished, unused], key=lambda artefact: artefact.folder)
    assert unneeded(tmp_path, [by_hand.digest]) == sorted([by_hand, unfinished, unused], key=lambda a: a.folder)
    assert find_entry(tmp_path, listed.digest).needed_by == ("tables",)
    assert [entry.state for entry in entries(tmp_path) if entry.artefact == unfinished] == ["unfinished"]


def test_a_named_run_that_a_list_needs_stays(tmp_path):
    listed = make(tmp_path, 0, keep=True)
    write_keep_list(tmp_path, "tables", [listed.folder.name])
    with pytest.raises(InputError, match="needed by tables"):
        unneeded(tmp_path, [listed.folder.name])
    with pytest.raises(InputError, match="no such run"):
        unneeded(tmp_path, ["finetune-run-0"])


def test_a_list_replaces_its_earlier_self(tmp_path):
    first, second = make(tmp_path, 0), make(tmp_path, 1)
    write_keep_list(tmp_path, "tables", [first.folder.name])
    write_keep_list(tmp_path, "tables", [second.folder.name])
    assert unneeded(tmp_path) == [first]


@pytest.mark.parametrize("damaged", ["[1]", "{}", "[", '"name"', "null"])
def test_a_damaged_list_stops_everything(tmp_path, damaged):
    make(tmp_path, 0)
    write_keep_list(tmp_path, "tables", [])
    (tmp_path / "keep" / "tables.json").write_text(damaged)
    with pytest.raises(InputError, match=r"tables\.json: .*; delete it and run"):
        unneeded(tmp_path)
    with pytest.raises(InputError, match=r"tables\.json: .*; delete it and run"):
        keep_lists(tmp_path)


def test_a_run_that_is_being_built_stays(tmp_path):
    key = RunKey("finetune", 1, Config(), {})
    with Artefact.building(tmp_path, key, "run", {}, keep=False):
        assert unneeded(tmp_path) == []
    assert len(unneeded(tmp_path)) == 1


def test_what_is_removed_is_never_complete_and_half_there(tmp_path, monkeypatch):
    artefact = make(tmp_path, 0)
    assert size_of(artefact.folder) > 0

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("multitask.runs.garbage.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove([artefact.folder])
    assert artefact.folder.is_dir()
    assert not (artefact.folder / DONE).exists()
    remove([artefact.folder])
    assert not artefact.folder.exists()


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    outside = make(tmp_path / "outside", 0).folder
    (tmp_path / "runs").mkdir()
    (link := tmp_path / "runs" / outside.name).symlink_to(outside)
    remove([link])
    assert not link.is_symlink()
    assert Artefact(outside).done


@pytest.mark.parametrize("lost", ["inputs.json", "config.json"])
def test_a_complete_run_that_lost_a_file_is_still_a_run(tmp_path, lost):
    damaged, whole = make(tmp_path, 0), make(tmp_path, 1)
    (damaged.folder / lost).unlink()
    assert {entry.artefact.folder for entry in entries(tmp_path)} == {damaged.folder, whole.folder}
