"""What a release says of itself in several places is the same everywhere."""

import re
import tomllib
from pathlib import Path

import pytest

from minbert.errors import InputError
from multitask.cli.main import main
from multitask.data.fetch import copy_sample
from tests.conftest import ROOT


def pins(file: Path) -> dict[str, str]:
    """Versions by the packages' normalised names."""
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub("[-_.]+", "-", name.lower()): version for name, version in found}


def test_version_is_that_of_changelog_and_citation() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert newest is not None
    assert newest[1] == version
    assert f"\nversion: {version}\ndate-released: {newest[2]}\n" in citation


def test_shared_packages_of_the_docs_environment_have_the_same_versions() -> None:
    docs, project = pins(ROOT / "docs" / "requirements.txt"), pins(ROOT / "requirements.txt")
    shared = docs.keys() & project.keys()
    assert shared  # Jinja2 at least
    assert {name: docs[name] for name in shared} == {name: project[name] for name in shared}


def test_the_lock_file_has_every_pinned_version_but_torch() -> None:
    expected = pins(ROOT / "requirements.txt")
    assert expected.pop("torch")
    assert pins(ROOT / "requirements.lock") == expected, "run scripts/lock_requirements.sh"


def test_every_package_of_the_lock_file_has_a_hash() -> None:
    entries = (ROOT / "requirements.lock").read_text().replace("\\\n", "").splitlines()
    assert [entry for entry in entries if not re.fullmatch(r"\S+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", entry)] == []


def test_sample_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "sample", "--folder", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "data" / name) for name in ("sample", "own")]
    for name in ("sample", "own"):
        copied = {path.name: path.read_bytes() for path in (tmp_path / "data" / name).iterdir()}
        assert copied == {path.name: path.read_bytes() for path in (ROOT / "data" / name).iterdir()}


def test_existing_data_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tasks.toml").write_text("mine")
    with pytest.raises(InputError, match="own: exists already"):
        copy_sample(tmp_path)
    assert (tmp_path / "own" / "tasks.toml").read_text() == "mine"
    assert not (tmp_path / "sample").exists()
