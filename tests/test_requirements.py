"""The lock file has what requirements.txt pins, and hashes of it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pinned(text: str) -> dict[str, str]:
    """Versions by normalised name."""
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_lock_file_has_every_pinned_version_but_torch():
    expected = pinned((ROOT / "requirements.txt").read_text())
    assert expected.pop("torch")
    assert pinned((ROOT / "requirements.lock").read_text()) == expected, "run scripts/lock_requirements.sh"


def test_every_package_of_the_lock_file_has_a_hash():
    entries = (ROOT / "requirements.lock").read_text().replace("\\\n", "").splitlines()
    assert [entry for entry in entries if not re.fullmatch(r"\S+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", entry)] == []
