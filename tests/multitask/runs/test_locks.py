"""Locks of files: nothing is written through a link, and what cannot be locked is said in one line."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from minbert.errors import InputError
from multitask.runs.locks import exclusive, held_now, shared


@pytest.mark.parametrize("lock", [exclusive, shared, held_now])
def test_a_lock_changes_no_file_and_is_no_link(tmp_path: Path, lock) -> None:
    (letter := tmp_path / "letter").write_text("dear all")
    (tmp_path / "lock").symlink_to(letter)
    with pytest.raises(InputError, match=f"{tmp_path / 'lock'}: a link"), lock(tmp_path / "lock"):
        pass
    with lock(letter):
        pass
    assert letter.read_text() == "dear all"


def test_a_lock_that_others_hold_is_not_held_now(tmp_path: Path) -> None:
    with shared(tmp_path / "lock"), held_now(tmp_path / "lock") as held:
        assert not held
    with held_now(tmp_path / "lock") as held, held_now(tmp_path / "lock") as twice:
        assert held
        assert not twice


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_of_the_file_system_work_goes_on_with_a_warning_and_nothing_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", none)
    for lock in (exclusive, shared):
        caplog.clear()
        with lock(tmp_path / "lock"):
            assert f"{tmp_path / 'lock'}: the file system has no locks" in caplog.text
    with pytest.raises(OSError, match=os.strerror(number)) as caught, held_now(tmp_path / "lock"):
        pass
    assert caught.value.filename == str(tmp_path / "lock")


def test_a_lock_that_may_only_be_read_locks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's, for example. The tests may run as root, who may write anything."""
    (tmp_path / "lock").touch()
    whole = os.open

    def only_to_read(path: Path, flags: int, *mode: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "not yours", str(path))
        return whole(path, flags, *mode)

    monkeypatch.setattr(os, "open", only_to_read)
    with exclusive(tmp_path / "lock"), held_now(tmp_path / "lock") as twice:
        assert not twice
