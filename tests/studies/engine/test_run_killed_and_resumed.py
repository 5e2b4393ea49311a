"""A grid that is killed at any moment and started again ends with the same bits as one that is left alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT


def kill_runs(tiny_encoder: Path, data: Path, folder: Path, tables: str, kills: int, workers: int) -> dict[str, Any]:
    arguments = [tiny_encoder, data, folder, tables, kills, workers]
    command = [sys.executable, "-m", "tests.studies.engine.killing", *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return dict(json.loads(result.stdout))


def timeless(value: Any) -> Any:
    """JSON without measured seconds."""
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name != "seconds"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def results(folder: Path) -> dict[str, Any]:
    """Every artefact's files, and the record: bytes, or parsed where there are times within."""
    runs = folder / "runs"
    found: dict[str, Any] = {}
    for path in [*runs.glob("*-*-*/**/*"), runs / "experiments-sample.json"]:
        if path.is_file():
            name = str(path.relative_to(runs))
            if path.suffix == ".jsonl":
                found[name] = [timeless(json.loads(line)) for line in path.read_text().splitlines()]
            elif path.name == "DONE":  # it has times of files, and the hash of one that has times within
                vouched = json.loads(path.read_text()).items()
                found[name] = {file: of["sha256"] for file, of in vouched if file != "metrics.jsonl"}
            elif path.parent == runs:
                found[name] = timeless(json.loads(path.read_text())["record"])
            else:
                found[name] = path.read_bytes()
    return found


def check(tiny_encoder: Path, data: Path, folder: Path, tables: str, kills: int, workers: int) -> None:
    told = kill_runs(tiny_encoder, data, folder, tables, kills, workers)
    assert sum(told["killed"].values()) >= kills
    assert len(told["killed"]) == 3
    reference = results(folder / "reference")
    assert sum(name.endswith("DONE") for name in reference) >= 9
    for number in range(told["complete"]):
        found = results(folder / f"killed-{number}")
        assert found.keys() == reference.keys()
        assert [name for name in found if found[name] != reference[name]] == []


def test_killed_at_many_moments_ends_with_the_same_bits(tiny_encoder: Path, grid_data: Path, tmp_path: Path) -> None:
    check(tiny_encoder, grid_data, tmp_path, tables="1", kills=8, workers=1)


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "workers"), [(500, 1), (20, 2)])
def test_killed_at_very_many_moments(
    tiny_encoder: Path, grid_data: Path, tmp_path: Path, kills: int, workers: int
) -> None:
    check(tiny_encoder, grid_data, tmp_path, "1,2", kills, workers)
