"""A few cases of `python -m benchmarks.reliability.fuzz`, and what it once found."""

import io
import json
import random

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reliability.fuzz import MEMORY, TARGETS, Found, Hang, fuzz, limited, outcome
from benchmarks.reliability.fuzz_commands import remembered_commands
from benchmarks.reliability.fuzz_readers import Reader
from benchmarks.reliability.fuzz_targets import prepare, targets
from benchmarks.reliability.mutations import (
    mutated,
    mutated_arrays,
    mutated_json,
    mutated_record,
    mutated_tensors,
)
from benchmarks.reliability.world import copy
from minbert.checkpoint import read_tensors, write_tensors
from minbert.errors import InputError
from minbert.files import read_toml
from multitask.cli.main import LONGEST_ERROR, error_line, main
from multitask.cli.settings_file import read_settings
from multitask.evaluation.text_tables import aligned
from multitask.models.multitask_model import MultitaskModel
from multitask.runs.records import read_sealed, write_sealed
from multitask.stages.registry import stage_named
from multitask.tasks.declarations import task_of

RUNS = {
    "inputs.json": ("[]", "1", "{}", '{"stage": "finetune"}', '{"stage": "finetune", "labels": [1]}'),
    "config.json": ("[]", "null", '"text"'),
}
LABELS = '{"stage": "finetune", "labels": {"start": 1}}'


@pytest.mark.parametrize(("file", "content"), [(f, c) for f in RUNS for c in RUNS[f]] + [("inputs.json", LABELS)])
def test_settings_of_a_damaged_run_are_refused_in_one_line(tmp_path, file, content):
    (tmp_path / "inputs.json").write_text('{"stage": "finetune", "labels": {}}')
    (tmp_path / "config.json").write_text("{}")
    read_settings(tmp_path, "multitask finetune", stage_named("finetune"), [])
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=str(tmp_path)):
        read_settings(tmp_path, "multitask finetune", stage_named("finetune"), [])


def test_a_number_that_no_float_holds_is_refused(tmp_path, capsys):
    (tmp_path / "settings.toml").write_text(f"learning_rate = {10**400}")
    assert main(["finetune", "--config", str(tmp_path / "settings.toml")]) == 2
    assert "settings.toml: learning_rate is 1000" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["a = " + "9" * 5000, "a = " + "[" * 5000, "a = \xff", "a = 1\na = 2"])
def test_toml_that_is_none_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "settings.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"settings\.toml: not "):
        read_toml(tmp_path / "settings.toml")
    assert main(["finetune", "--config", str(tmp_path / "settings.toml")]) == 2


@pytest.mark.parametrize("argument", ["\r\n", "\0", "\x1b[31mred", "\udcff", "9" * 70_000, "a\nerror: b"])
def test_an_error_is_one_line_whatever_the_arguments_are(argument, capsys):
    assert main([argument]) == 2
    assert main(["report", argument]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: ") and line.isprintable() and len(line) <= LONGEST_ERROR for line in lines)


def test_a_long_error_keeps_its_beginning_and_its_end():
    line = error_line(InputError(f"a.toml: {'x' * 70_000}; expected a number"))
    assert line.startswith("error: a.toml: xxx")
    assert line.endswith("xxx; expected a number")
    assert len(line) <= LONGEST_ERROR


@pytest.mark.parametrize(
    "arguments", [["x" * 500], ["finetune", "--" + "x" * 500], ["finetune", "--epochs", "x" * 500]]
)
def test_an_argument_of_any_length_leaves_room_for_what_was_expected(arguments, capsys):
    assert main(arguments) == 2
    assert len(capsys.readouterr().err) < 300


def test_text_of_a_declaration_that_is_none_is_refused():
    with pytest.raises(InputError, match=r"tasks\.topic: not a declaration \(Invalid JSON"):
        task_of("topic", {"kind": "classification", "text": ["\ud800"], "label": "topic"})


@pytest.mark.parametrize("length", [33, 10**300, "12", 1.5, True, [], 2, -1])
def test_a_model_with_a_sentence_length_that_is_none_is_refused(world, model, tmp_path, length):
    [kept] = (world / model / "checkpoints").iterdir()
    path = copy(kept, tmp_path / "model") / "multitask.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_length": length}))
    expected = r"max_length is .{,60}; (expected a number of tokens|the encoder takes 3 to 32)"
    with pytest.raises(InputError, match=f"^{path}: {expected}"):
        MultitaskModel.load(path.parent, "cpu")


def test_a_model_with_huge_heads_is_refused_before_they_are_allocated(world, model, tmp_path):
    [kept] = (world / model / "checkpoints").iterdir()
    path = copy(kept, tmp_path / "model") / "multitask.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"heads": stored["heads"] | {"head_hidden_size": 10**9}}))
    with pytest.raises(InputError, match=f"^{path}: head_hidden_size is 1000000000; expected 1 to 65536"):
        MultitaskModel.load(path.parent, "cpu")


@pytest.mark.parametrize(
    ("heads", "told"),
    [
        ({"dropout": None}, "dropout: Input should be a valid number"),
        ({"residual": "no"}, "residual: Input should be a valid boolean"),
        ({"sharing": "some"}, "sharing: Input should be 'separate'"),
        ({"depth": 2}, "depth: "),
        (["dropout"], "not a description of a multitask model"),
    ],
)
def test_a_model_whose_heads_have_settings_of_another_type_is_refused(world, model, tmp_path, heads, told):
    [kept] = (world / model / "checkpoints").iterdir()
    path = copy(kept, tmp_path / "model") / "multitask.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"heads": stored["heads"] | heads if isinstance(heads, dict) else heads}))
    with pytest.raises(InputError, match=f"^{path}: {told}"):
        MultitaskModel.load(path.parent, "cpu")


def test_outputs_beyond_all_numbers_name_the_model(world, model, tmp_path):
    [kept] = (world / model / "checkpoints").iterdir()
    folder = copy(kept, tmp_path / "model")
    path = folder / "heads.safetensors"
    write_tensors({name: torch.full_like(tensor, 3e38) for name, tensor in read_tensors(path).items()}, path)
    found = MultitaskModel.load(folder, "cpu", "fp32")
    with pytest.raises(InputError, match=f"^{folder}: the model's outputs for .* are not finite"):
        found.predict(next(iter(found.tasks)), ["a"])


def test_cells_of_a_table_give_a_terminal_no_orders():
    assert aligned([["a\x1b[31m", "b"], ["c\n\x9b", "d"]]) == "a [31m  b\nc       d"


def test_cases_are_counted_and_repeat_and_problems_are_kept(tmp_path, capsys):
    def read(content: bytes) -> None:
        raise (KeyError, InputError, Hang, OSError)[len(content) % 4]("a.csv: no")

    readers = {"tables": [Reader(b"abc", read, names="b.csv"), Reader(b"d", lambda _: None, names="c.csv")]}
    first, second = (fuzz(readers, tmp_path / name, 3, 60, most=1) for name in ("a", "b"))
    assert first == second
    assert first.cases == {"tables": 100}
    kinds = {problem.partition(": ")[2].partition(" in ")[0] for problem in first.problems}
    assert kinds == {"KeyError", "an error that names no file", "Hang", "OSError without a file"}
    assert first.problems.total() < 100
    for name, content in first.inputs.values():
        assert (tmp_path / "a" / name).read_bytes() == content
        again = Found()
        again.try_case("tables", int(name.partition("-")[2]), readers["tables"])
        assert again.problems.keys() <= first.problems.keys()
        assert again.problems
    assert "--first 4" in capsys.readouterr().out


def test_too_much_time_and_too_much_memory_are_problems(monkeypatch):
    def endless(_: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr("benchmarks.reliability.fuzz.SECONDS", 0.05)
    with limited(MEMORY):
        assert outcome(Reader(b"", endless), b"")[1].startswith("Hang in test_fuzz.py")
        assert outcome(Reader(b"", lambda _: bytearray(2 * MEMORY)), b"")[1].startswith("MemoryError in test_fuzz.py")
        assert outcome(Reader(b"", len), b"") == (False, None)


def test_commands_are_remembered_and_still_read_other_values(tmp_path, capsys):
    with remembered_commands():
        for value in ("x", "y"):
            assert main(["finetune", "--epochs", value]) == 2
            assert value in capsys.readouterr().err


@pytest.mark.slow
def test_every_reader_takes_its_original_and_a_round_finds_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTITASK_CACHE", "cache")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(prepare(tmp_path))
    with remembered_commands():
        readers = targets(tmp_path / "world")
        assert readers.keys() == set(TARGETS)
        for name, of_target in readers.items():
            for number, reader in enumerate(of_target):
                assert outcome(reader, reader.original) == (False, None), f"{name} {number}"
        assert not fuzz(readers, tmp_path / "found", 0, 600, most=1).problems


def test_a_record_that_is_changed_has_the_hash_that_fits_it(tmp_path):
    path = tmp_path / "note.json"
    write_sealed(path, {"a": [1, "b"]})
    path.write_bytes(mutated_record("note.json", path.read_bytes(), random.Random(0)))
    assert read_sealed(path, object) != {"a": [1, "b"]}


def test_a_changed_header_of_tensors_and_a_changed_array_are_whole_files():
    content = safetensors.numpy.save({"a": np.arange(3)})
    found = mutated_tensors(content, random.Random(0))
    size = int.from_bytes(found[:8], "little")
    assert json.loads(found[8 : 8 + size]) != json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert found.endswith(np.arange(3).tobytes())
    written = io.BytesIO()
    np.savez(written, a=np.arange(3))
    changed = np.load(io.BytesIO(mutated_arrays(written.getvalue(), random.Random(1))), allow_pickle=False)
    assert not np.array_equal(changed["a"], np.arange(3))


@given(st.text())
def test_an_error_of_any_text_is_printable(text):
    line = error_line(InputError(text))
    assert line.isprintable()
    assert len(line) <= LONGEST_ERROR


@given(st.integers(0, 10**6), st.binary(max_size=200))
def test_equal_draws_give_equal_changes(number, content):
    assert mutated(content, random.Random(number)) == mutated(content, random.Random(number))


def test_changes_reach_every_part_of_a_value():
    value = {"a": [1, {"b": 2}], "c": "d"}
    found = {json.dumps(mutated_json(value, random.Random(number))) for number in range(500)}
    assert len(found) > 100
    assert json.dumps(value) not in found or len(found) > 1
    parts = [json.loads(text) for text in found]
    assert any(isinstance(part, dict) and part.get("a") == [1, {"b": None}] for part in parts)
