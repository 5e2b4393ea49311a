"""A file under its final name is always complete."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors
import torch

import minbert
from minbert.checkpoint import write_tensors
from minbert.errors import DiskFullError, InputError
from minbert.files import atomic_file, atomic_folder, read_arrays, read_json, write_json, write_text


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def fail_within(context, inner, error):
    with context as temporary:
        (temporary / inner).write_text("half")
        raise error


def test_atomic_file_replaces_the_content_only_at_the_end(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(path.parent) == ["file.txt"]


def test_atomic_folder_replaces_the_content_only_at_the_end(tmp_path):
    path = tmp_path / "deep" / "folder"
    for content in ("old", "new"):
        with atomic_folder(path) as temporary:
            (temporary / "inner").mkdir()
            (temporary / "inner" / content).write_text(content)
            assert not path.exists() or names(path / "inner") == ["old"]
    assert names(path.parent) == ["folder"]
    assert names(path / "inner") == ["new"]


@pytest.mark.parametrize("exists_before", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_atomic_file_leaves_everything_as_it_was_on_an_error(tmp_path, exists_before, error):
    path = tmp_path / "file.txt"
    if exists_before:
        path.write_text("old")
    with pytest.raises(error):
        fail_within(atomic_file(path), "", error)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == ([("file.txt", "old")] if exists_before else [])


@pytest.mark.parametrize("exists_before", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_atomic_folder_leaves_everything_as_it_was_on_an_error(tmp_path, exists_before, error):
    path = tmp_path / "folder"
    if exists_before:
        path.mkdir()
        (path / "kept.txt").write_text("old")
    with pytest.raises(error):
        fail_within(atomic_folder(path), "half.txt", error)
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == (
        ["folder", "folder/kept.txt"] if exists_before else []
    )


KILLED_WRITER = """
import sys, time
from pathlib import Path
from minbert.files import atomic_file, atomic_folder
path = Path(sys.argv[1])
with {context}(path) as temporary:
    with ({target}).open("w") as file:
        file.write("half")
        file.flush()
        print("writing", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("exists_before", [True, False])
@pytest.mark.parametrize("context, target", [("atomic_file", "temporary"), ("atomic_folder", 'temporary / "inner"')])
def test_a_kill_leaves_no_half_file_under_the_final_name(tmp_path, context, target, exists_before):
    path = tmp_path / "result"
    if exists_before:
        path.write_text("old")
    code = KILLED_WRITER.format(context=context, target=target)
    environment = os.environ | {"PYTHONPATH": str(Path(minbert.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert (path.read_text() == "old") if exists_before else not path.exists()


def test_permissions_follow_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(previous)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder")] == [0o640, 0o750]


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "x.json", [1])
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", [object()])
    assert read_json(tmp_path / "x.json") == [1]
    assert names(tmp_path) == ["x.json"]


@pytest.mark.parametrize("content", [b'{"a": 1', b"", b'"\xff"', None])
def test_unreadable_json_is_one_line_with_its_path(tmp_path, content):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [dict, str])
def test_json_of_another_shape_is_refused(tmp_path, kind):
    write_json(tmp_path / "x.json", [1])
    with pytest.raises(InputError, match=f"{tmp_path / 'x.json'}: .* was expected"):
        read_json(tmp_path / "x.json", kind)


def test_a_text_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(2**40)  # a sparse file
    with pytest.raises(InputError, match="1,099,511,627,776 bytes; expected at most"):
        read_json(tmp_path / "x.json")


FULL = (
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
)


@pytest.mark.parametrize("error", FULL, ids=repr)
@pytest.mark.parametrize("context", [atomic_file, atomic_folder])
def test_every_full_disk_is_one_error_with_its_folder_and_what_is_free(tmp_path, context, error):
    with (
        pytest.raises(DiskFullError, match=r"no space left to write new: [\d,.]+ MB free") as caught,
        context(tmp_path / "deep" / "new"),
    ):
        raise error
    assert caught.value.filename == str(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_another_error_stays_what_it_is(tmp_path):
    with pytest.raises(PermissionError), atomic_file(tmp_path / "new"):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_weights_that_do_not_fit_on_the_disk_are_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_999_999))
    with pytest.raises(DiskFullError, match=r"write x.safetensors: 4\.0 MB needed, 4\.0 MB free"):
        write_tensors({"a": torch.zeros(1_000_000)}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4_000_000))
    write_tensors({"a": torch.zeros(1_000_000)}, tmp_path / "x.safetensors")


def write_to_a_full_device(path: Path) -> None:
    with atomic_file(path), Path("/dev/full").open("w") as device:
        device.write("a sentence")


def test_a_device_that_is_really_full(tmp_path):
    with pytest.raises(DiskFullError, match="no space left to write new"):
        write_to_a_full_device(tmp_path / "new")
    assert not list(tmp_path.iterdir())


FAILING = (
    (OSError(errno.EIO, "Input/output error"), errno.EIO),
    (safetensors.SafetensorError("Error while serializing: I/O error: Input/output error (os error 5)"), errno.EIO),
    (safetensors.SafetensorError("I/O error: Read-only file system (os error 30)"), errno.EROFS),
)


@pytest.mark.parametrize("error, number", FAILING, ids=repr)
@pytest.mark.parametrize("context", [atomic_file, atomic_folder])
def test_every_error_of_a_disk_has_its_number_and_the_name_of_a_file(tmp_path, context, error, number):
    with pytest.raises(OSError) as caught, context(tmp_path / "new"):
        raise error
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "new"))
    assert not list(tmp_path.iterdir())


def save_to_a_full_device(path: Path) -> None:
    with atomic_file(path), Path("/dev/full").open("wb") as device:
        np.save(device, np.zeros(100_000))


def test_an_array_that_numpy_writes_in_part_is_a_full_disk(tmp_path):
    with pytest.raises(DiskFullError, match="no space left to write new"):
        save_to_a_full_device(tmp_path / "new")


DAMAGES = [lambda b: b[:30], lambda b: b"", lambda b: bytes(len(b)), lambda b: b[:60] + b"x" + b[61:]]


@pytest.mark.parametrize("damage", DAMAGES, ids=["cut", "empty", "zeros", "a byte"])
def test_damaged_arrays_are_one_line(tmp_path, damage):
    path = tmp_path / "predictions.npz"
    np.savez_compressed(path, labels=np.arange(100), other=np.ones(3))
    whole = path.read_bytes()
    assert read_arrays(path)["labels"].tolist() == list(range(100))
    path.write_bytes(damage(whole))
    with pytest.raises(InputError, match=r"predictions\.npz: damaged .*; delete it and run"):
        read_arrays(path)
    path.write_bytes(whole)
    assert list(read_arrays(path, "other")) == ["other"]
    with pytest.raises(InputError, match=r"damaged .*label is not a file"):
        read_arrays(path, "labels", "label")
    with pytest.raises(InputError, match=r"none\.npz: no such file"):
        read_arrays(tmp_path / "none.npz")


def test_a_flipped_bit_of_arrays_is_one_line_or_changes_nothing(tmp_path):
    path = tmp_path / "predictions.npz"
    np.savez(path, labels=np.arange(4))
    whole = path.read_bytes()
    for place in range(0, 8 * len(whole), 7):
        path.write_bytes(whole[: place // 8] + bytes([whole[place // 8] ^ 1 << place % 8]) + whole[place // 8 + 1 :])
        with suppress(InputError):
            assert read_arrays(path, "labels")["labels"].tolist() == [0, 1, 2, 3]
