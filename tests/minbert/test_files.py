"""A file under its final name is always complete."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import minbert
from minbert.errors import InputError
from minbert.files import atomic_file, atomic_folder, read_json, sha256_of_file, write_json, write_text


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


def test_json_round_trip(tmp_path):
    value = {"b": [1, 2.5, None, True], "a": "naïve “text” \n", "c": {}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value == json.loads((tmp_path / "x.json").read_bytes())


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


def test_sha256_of_a_file(tmp_path):
    content = bytes(range(256)) * 5000
    (tmp_path / "x").write_bytes(content)
    assert sha256_of_file(tmp_path / "x") == hashlib.sha256(content).hexdigest()
