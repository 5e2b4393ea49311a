"""A file under its final name is always complete; what cannot be read or written ends in one line."""

import errno
import json
import math
import os
import shutil
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors
import torch

from minbert import errors
from minbert.checkpoint import write_tensors
from minbert.errors import DiskFullError, InputError, install_with
from minbert.files import (
    atomic_file,
    atomic_folder,
    file_size,
    json_text,
    nan_for_null,
    read_arrays,
    read_json,
    write_json,
    write_text,
)

CONTEXTS = pytest.mark.parametrize("context", [atomic_file, atomic_folder])


def put(context, temporary: Path, content: str) -> None:
    (temporary if context is atomic_file else temporary / content).write_text(content)


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def writing(context, path: Path, content: str, error: BaseException | None = None) -> None:
    with context(path) as temporary:
        put(context, temporary, content)
        if error is not None:
            raise error


@CONTEXTS
def test_the_content_is_replaced_only_at_the_end(tmp_path, context):
    path = tmp_path / "deep" / "result"
    writing(context, path, "old")
    old = tree(path.parent)
    with context(path) as temporary:
        put(context, temporary, "new")
        found = {name: text for name, text in tree(path.parent).items() if ".tmp" not in name}
        assert found == old
    assert tree(path.parent) == ({"result": "new"} if context is atomic_file else {"result/new": "new"})
    assert [p.name for p in path.parent.iterdir()] == ["result"]


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "folder", "")
    assert (tmp_path / "folder").is_dir()


@CONTEXTS
@pytest.mark.parametrize("exists_before", [True, False])
@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), PermissionError(errno.EACCES, "no", "x")])
def test_an_error_stays_what_it_is_and_leaves_everything_as_it_was(tmp_path, context, exists_before, error):
    path = tmp_path / "new" / "folder" / "result"
    if exists_before:
        writing(context, path, "old")
    before = tree(tmp_path)
    with pytest.raises(type(error)):
        writing(context, path, "half", error)
    assert tree(tmp_path) == before
    assert [p.name for p in (path.parent if exists_before else tmp_path).iterdir()] == ["result"] * exists_before


def test_permissions_follow_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
        write_tensors(
            {"a": torch.zeros(1)}, tmp_path / "tensors"
        )  # safetensors makes files that only the user may read
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(previous)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "tensors", "folder")] == [0o640, 0o640, 0o750]


def test_numbers_that_are_not_finite_are_null_in_json_and_nan_again(tmp_path):
    value = {"a": math.nan, "b": [1.5, -math.inf, {"c": (math.inf, None)}], "d": "NaN", "e": True}
    for text in (json_text(value), json_text(value, indent=2)):
        assert json.loads(text, parse_constant=pytest.fail) == {
            "a": None,
            "b": [1.5, None, {"c": [None, None]}],
            "d": "NaN",
            "e": True,
        }
    write_json(tmp_path / "x.json", {"a": {"b": math.nan, "c": 2.0}})
    back = nan_for_null(read_json(tmp_path / "x.json"))
    assert math.isnan(back["a"].pop("b"))
    assert back == {"a": {"c": 2.0}}
    assert json_text({"a\u2028": "é"}).isascii()  # a line of metrics.jsonl: `splitlines` would cut it


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "x.json", [1])
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", [object()])
    assert read_json(tmp_path / "x.json") == [1]


@pytest.mark.parametrize("content", [b'{"a": 1', b"", b'"\xff"', b"[" * 100_000, b"9" * 5000, b"[1]", None])
def test_json_that_cannot_be_read_or_is_something_else_is_one_line_with_its_path(tmp_path, content):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: .*$"):
        read_json(path, dict)


# Disks.


FULL = (
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
)
FAILING = (
    (OSError(errno.EIO, "Input/output error"), errno.EIO),
    (safetensors.SafetensorError("I/O error: Read-only file system (os error 30)"), errno.EROFS),
)


@CONTEXTS
@pytest.mark.parametrize("error", FULL, ids=repr)
def test_every_full_disk_is_one_error_with_its_folder_and_what_is_free(tmp_path, context, error):
    with pytest.raises(DiskFullError, match=r"no space left to write new: [\d,.]+ MB free") as caught:
        writing(context, tmp_path / "deep" / "new", "half", error)
    assert caught.value.filename == str(tmp_path)
    assert not tree(tmp_path)


@CONTEXTS
@pytest.mark.parametrize("error, number", FAILING, ids=repr)
def test_every_error_of_a_disk_has_its_number_and_the_name_of_a_file(tmp_path, context, error, number):
    with pytest.raises(OSError) as caught:
        writing(context, tmp_path / "new", "half", error)
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "new"))


def test_weights_that_do_not_fit_on_the_disk_are_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_999_999))
    with pytest.raises(DiskFullError, match=r"write x.safetensors: 4\.0 MB needed, 4\.0 MB free"):
        write_tensors({"a": torch.zeros(1_000_000)}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4_000_000))
    write_tensors({"a": torch.zeros(1_000_000)}, tmp_path / "x.safetensors")


def test_a_device_that_is_really_full(tmp_path):
    """numpy drops the number of the error when it could write a part of an array."""
    full = pytest.raises(DiskFullError, match="no space left to write new")
    with full, atomic_file(tmp_path / "new"), Path("/dev/full").open("wb") as device:
        np.save(device, np.zeros(100_000))
    assert not list(tmp_path.iterdir())


# Arrays.


def test_arrays_that_are_damaged_or_missing_are_one_line(tmp_path):
    path = tmp_path / "predictions.npz"
    np.savez_compressed(path, labels=np.arange(100), other=np.ones(3))
    whole = path.read_bytes()
    assert list(read_arrays(path, "other")) == ["other"]
    with pytest.raises(InputError, match=r"damaged .*label is not a file"):
        read_arrays(path, "labels", "label")
    np.save(array := BytesIO(), np.ones(3))
    others = (np.array([None]).dumps(), array.getvalue())
    for damaged in (whole[:30], b"", bytes(len(whole)), whole[:60] + b"x" + whole[61:], b"PK" + whole[40:], *others):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"predictions\.npz: damaged .*; delete it and run"):
            read_arrays(path)
    with pytest.raises(InputError, match=r"none\.npz: no such file"):
        read_arrays(tmp_path / "none.npz")


def test_a_flipped_bit_of_arrays_is_one_line_or_changes_nothing(tmp_path):
    path = tmp_path / "predictions.npz"
    np.savez(path, labels=np.arange(4))
    whole = path.read_bytes()
    for place in range(0, 8 * len(whole), 13):
        path.write_bytes(whole[: place // 8] + bytes([whole[place // 8] ^ 1 << place % 8]) + whole[place // 8 + 1 :])
        with suppress(InputError):
            assert read_arrays(path, "labels")["labels"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("named", "end"),
    [
        ("data/ids-sst-dev.csv", "; did you mean data/sample/ids-sst-dev.csv?"),
        ("data/sample/ids-sts-dev.csv", ""),  # another file is not the one
        ("dta/sample/ids-sst-dev.csv", "; did you mean data?"),
        ("sample/ids-sst-dev.csv", "; did you mean data/sample?"),
        ("elsewhere/other.txt", ""),
        ("data/other.txt", ""),
    ],
)
def test_a_missing_file_is_answered_with_the_one_that_was_meant(named, end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "sample").mkdir(parents=True)
    (tmp_path / "data" / "sample" / "ids-sst-dev.csv").touch()
    (tmp_path / "data" / "another user's").mkdir()
    (tmp_path / "data" / "link").symlink_to("another user's")
    real_stat = os.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if "another user's/" in str(path) or str(path).endswith("link"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_stat(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(InputError) as error:
        file_size(Path(named))
    assert str(error.value) == f"{named}: no such file{end}"


def test_an_extra_is_installed_by_the_script_in_the_environment_of_a_checkout_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(errors, "CHECKOUT", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert install_with("serve") == 'install with: pip install "minbert-multitask[serve]"'
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "environment.sh").touch()
    assert install_with("serve") == "install with: bash scripts/environment.sh serve"
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert install_with("serve") == 'install with: pip install "minbert-multitask[serve]"'
