"""Every reader takes any bytes: it gives what it reads, or one line that names the file; never another exception."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.checkpoint import read_tensors
from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import read_arrays, read_toml, write_json
from minbert.tokenizer import load_tokenizer
from multitask.data.read_tables import open_table
from multitask.data.tables import RowsFrom
from multitask.evaluation.suite_sets import SETS, DataSet
from multitask.models.model_folder import stored_max_length
from multitask.tasks.declarations import load_tasks
from multitask.tasks.sources import Lines, Pairs, Triplets, read_texts
from tests.conftest import ROOT, SPECIALS
from tests.multitask.data.test_tables import NAMES, contents
from tests.multitask.evaluation.folder import write_sts, write_transfer


def read_set(entry: DataSet, path: Path) -> object:
    folder = path.parents[len(Path(entry.files[0]).parts) - 1]
    return entry.read(entry.paths(folder))


def read_rows(path: Path) -> None:
    rows = list(open_table(RowsFrom(str(path))).rows)
    json.dumps([row for _, row in rows], ensure_ascii=False, default=str).encode()  # all text is text


READ = {(entry.reader, str(entry.table)): entry for entry in (*SETS["sts"], *SETS["transfer"])}
"""One of the data sets that each reader reads, and every table."""
ROWS = [{"text": 'a "b" 😀', "label": 1}, {"text": ", \t", "label": -2}]
TABLES = {f"table{name}": contents(name, ROWS) for name in NAMES}
MASK = {"content": "[MASK]", "lstrip": True, "normalized": False}
OLDER = {
    "tokenizer_config.json": {"do_lower_case": False, "additional_special_tokens": ["a"], "pad_token": "[PAD]"},
    "special_tokens_map.json": {"mask_token": MASK, "cls_token": "[CLS]", "additional_special_tokens": ["b"]},
    "added_tokens.json": {"a": 5, "[MASK]": 4},
    "vocab.txt": None,
}
"""Files of a tokenizer without tokenizer.json."""
READERS: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(TABLES, read_rows),
    "captions.txt": partial(read_texts, columns=Lines.columns),
    "nli_triplets.csv": partial(read_texts, columns=Triplets.columns),
    "pairs.tsv": partial(read_texts, columns=Pairs.columns),
    "tasks.toml": load_tasks,
    "settings.toml": read_toml,
    "arrays.npz": read_arrays,
    "encoder/model.safetensors": read_tensors,
    "encoder/config.json": BertConfig.from_file,
    "encoder/model.safetensors.index.json": read_tensors,
    **dict.fromkeys(
        ("encoder/tokenizer.json", "encoder/tokenizer_config.json", *(f"older/{name}" for name in OLDER)),
        lambda path: load_tokenizer(str(path.parent)),
    ),
    "encoder/sentence_bert_config.json": lambda path: stored_max_length(path.parent),
    **{entry.files[0]: partial(read_set, entry) for entry in READ.values()},
}
AWKWARD: list[Any] = [None, True, -1, 10**400, 1e308, float("nan"), "", "\0\ud800", "x" * 999, [], {}, [[]], {"a": 1}]


@pytest.fixture(scope="module")
def case(tiny_encoder, tmp_path_factory) -> Path:
    """A folder with a file for each reader."""
    folder = tmp_path_factory.mktemp("case")
    write_sts(folder, pairs=4)
    write_transfer(folder, rows=2)
    for name in ("sample/captions.txt", "sample/nli_triplets.csv", "sample/sts-dev.csv", "own/tasks.toml"):
        lines = (ROOT / "data" / name).read_bytes().splitlines(keepends=True)
        (folder / Path(name).name).write_bytes(b"".join(lines[: None if name.endswith("toml") else 7]))
    (folder / "sts-dev.csv").rename(folder / "pairs.tsv")
    for name, content in TABLES.items():
        (folder / name).write_bytes(content)
    (folder / "settings.toml").write_text('seed = 3\nstart = "a"\ntasks = ["b", "c"]\n[optimizer]\nclip = 1.5e-3\n')
    np.savez(folder / "arrays.npz", first=np.arange(3), second=np.array(["a"]))
    (folder / "encoder").mkdir()
    for path in tiny_encoder.iterdir():
        (folder / "encoder" / path.name).write_bytes(path.read_bytes())
    (folder / "encoder" / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    places = dict.fromkeys(read_tensors(folder / "encoder" / "model.safetensors"), "model.safetensors")
    write_json(folder / "encoder" / "model.safetensors.index.json", {"weight_map": places})
    decoder = {"added_tokens_decoder": {"4": MASK}, "extra_special_tokens": {"one": "a"}, "model_max_length": 9}
    write_json(folder / "encoder" / "tokenizer_config.json", decoder)
    for name, content in OLDER.items():
        write_json(folder / "older" / name, content)
    (folder / "older" / "vocab.txt").write_text("\n".join([*SPECIALS, "a", "b"]))
    shutil.copy(tiny_encoder / "config.json", folder / "older")
    return folder


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """The original with some bytes changed, a value of its JSON changed, or any bytes."""
    ways = ["edits", "bytes"]
    if original.startswith(b"{"):
        ways.append("value")
    if (way := draw(st.sampled_from(ways))) == "bytes":
        return draw(st.binary(max_size=200) | st.text('ab01.,"\t\n\r \u2028', max_size=200).map(str.encode))
    if way == "value":
        first = original.partition(b"\n{")[0]  # of JSON lines the first line
        return json.dumps(with_other_value(draw, json.loads(first))).encode() + original[len(first) :]
    content = original
    for edit in draw(st.lists(st.sampled_from(["set", "cut", "insert", "delete", "repeat"]), min_size=1, max_size=3)):
        at, length = draw(st.integers(0, len(content))), draw(st.sampled_from([1, 1, 4, 64]))
        new = draw(st.binary(min_size=1, max_size=4))
        content = {
            "set": content[:at] + new + content[at + len(new) :],
            "cut": content[:at],
            "insert": content[:at] + new + content[at:],
            "delete": content[:at] + content[at + length :],
            "repeat": content[:at] + content[max(0, at - length) :],
        }[edit]
    return content


def with_other_value(draw: st.DrawFn, value: Any) -> Any:
    """JSON with one of its parts replaced by an awkward value."""
    if not value or not isinstance(value, dict | list) or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(AWKWARD))
    changed = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    key = draw(st.sampled_from(list(changed)))
    changed[key] = with_other_value(draw, changed[key])
    return changed if isinstance(value, dict) else list(changed.values())


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_any_bytes_are_read_or_refused_in_one_line(case, name, data):
    path = case / name
    original = path.read_bytes()
    try:
        path.write_bytes(data.draw(damaged(original)))
        READERS[name](path)
    except InputError as error:
        message = str(error)
        assert len(message.splitlines()) == 1
        assert str(path.parent) in message  # of two files that do not fit together, either is named
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_takes_its_example(case, name):
    READERS[name](case / name)
