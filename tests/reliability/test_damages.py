"""A small part of `python -m benchmarks.reliability.damages`, and that it sees what is accepted in silence."""

import random
from contextlib import suppress
from functools import partial

import pytest

from benchmarks.reliability import damages
from benchmarks.reliability.damages import CHANGES, damage, kinds
from benchmarks.reliability.world import copy
from minbert.errors import InputError
from multitask.runs.artefact import Artefact
from multitask.runs.records import read_sealed, write_sealed


@pytest.mark.parametrize("seed", range(40))
def test_a_damage_to_a_run_is_noticed(world, model, tmp_path, seed):
    here = copy(world, tmp_path / "store")
    run = here / model
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    what, path = damage(here, random.Random(seed))
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert before != after
    if path.name == "DONE":  # another time of a file in it changes no result
        return
    with pytest.raises(InputError, match=path.name):
        Artefact(run).check(whole=True)
    if "same size and time" not in what:
        with pytest.raises(InputError, match=path.name):
            Artefact(run).model_folder()


def test_damages_reach_every_kind_of_file_and_are_the_same_for_a_seed(world, tmp_path):
    names = {path.name for paths in kinds(world).values() for path in paths}
    assert names >= {"DONE", "config.json", "inputs.json", "best.json", "metrics.jsonl", "model.safetensors"}
    first, second = (damage(copy(world, tmp_path / name), random.Random(3)) for name in ("a", "b"))
    assert first[0] == second[0]
    assert first[1].relative_to(tmp_path / "a") == second[1].relative_to(tmp_path / "b")
    for change in CHANGES:
        assert change(bytes(range(1, 200)), random.Random(1)) != bytes(range(1, 200))


def test_an_accepted_damage_is_a_problem(world, model, tmp_path, monkeypatch):
    monkeypatch.setattr(damages, "make_world", lambda folder: (copy(world, folder), model)[1])
    monkeypatch.setattr(damages, "uses", lambda _: {name: (name,) for name in ("verify", "evaluate", "predict")})
    results = iter("aaabbb")

    def use(arguments: tuple[str]) -> tuple[int, str, str]:
        with open("scores.json" if arguments[0] == "evaluate" else "answers.csv", "w") as file:  # noqa: PTH123
            file.write(next(results))
        return 0, "", ""

    monkeypatch.setattr(damages, "in_child", lambda work, folder: in_place(work, folder))

    def in_place(work: partial[object], folder: object) -> damages.Ended:
        monkeypatch.chdir(str(folder))
        return damages.Ended(*use(work.args[0]))

    def of_the_model(store, draw):
        path = store / model / "best.json"
        path.write_text("{}")
        return "flip", path

    monkeypatch.setattr(damages, "damage", of_the_model)
    what, ending, problems = damages.Trials(tmp_path).judge(0)
    assert (what, ending) == ("flip", "silent")
    assert ["accepted in silence by evaluate, predict" in problem for problem in problems] == [True]


def test_a_sealed_record_is_read_as_it_was_written_or_not_at_all(tmp_path):
    path = tmp_path / "record.json"
    write_sealed(path, {"b": [1, 2.5, None], "a": "ü"})
    assert read_sealed(path, dict) == {"b": [1, 2.5, None], "a": "ü"}
    other = path.rename(path.with_name("other.json"))
    with pytest.raises(InputError, match=r"other\.json: damaged; its hash does not fit its content and name"):
        read_sealed(other, dict)
    other.rename(path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with suppress(InputError):
            assert read_sealed(path, dict) == {"b": [1, 2.5, None], "a": "ü"}  # a changed space between two parts
