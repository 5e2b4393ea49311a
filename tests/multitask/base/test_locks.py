"""Locks of files: one holder at a time, nothing is written through a link, and no lock is said in one line."""

import errno
import os
import threading
from multiprocessing.context import ForkServerContext
from pathlib import Path

import filelock
import pytest

from minbert.errors import InputError
from multitask.base.locks import exclusive


def test_a_lock_changes_no_file_and_is_no_link(tmp_path: Path) -> None:
    (letter := tmp_path / "letter").write_text("dear all")
    (tmp_path / "lock").symlink_to(letter)
    with pytest.raises(InputError, match=f"{tmp_path / 'lock'}: a link"), exclusive(tmp_path / "lock", ""):
        pass
    with exclusive(letter, ""):
        pass
    assert letter.read_text() == "dear all"


def test_who_waits_says_so_once_and_goes_on_when_the_holder_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    order = []

    def second() -> None:
        with exclusive(tmp_path / "lock", "waiting for it"):
            order.append("second")

    with exclusive(tmp_path / "lock", ""):
        (thread := threading.Thread(target=second)).start()
        thread.join(0.5)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert caplog.messages == ["waiting for it"]


def hold_and_die(path: Path) -> None:
    with exclusive(path, ""):
        os._exit(9)


def test_a_process_that_dies_releases_its_locks(
    processes: ForkServerContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = processes.Process(target=hold_and_die, args=(tmp_path / "lock",))
    process.start()
    process.join()
    assert process.exitcode == 9
    with exclusive(tmp_path / "lock", "waiting for it"):
        assert not caplog.messages


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_of_the_file_system_work_goes_on_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(filelock.FileLock, "_acquire", none)
    with exclusive(tmp_path / "lock", ""):
        assert f"{tmp_path / 'lock'}: the file system has no locks" in caplog.text
