"""The stage and its command: computed once, the same bits, claims printed, figures that are files of their own."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from multitask.base.options import RunOptions
from multitask.cli.main import main
from studies.gradient_paradigm.simulate import SimulationConfig, simulate
from studies.gradient_paradigm.simulation_figures import write_figures
from studies.gradient_paradigm.simulation_outcomes import Simulations

SMALL = SimulationConfig(grid=10, batches=20, batch_size=16, trials=20)
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in vars(SMALL).items()]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    simulate(SMALL, RunOptions(runs=folder))
    return folder


def test_another_folder_gets_the_same_bits(runs, tmp_path):
    first, second = (simulate(SMALL, RunOptions(runs=folder)).folder for folder in (runs, tmp_path))
    assert first.name == second.name
    ours, theirs = Simulations.load(first), Simulations.load(second)
    np.testing.assert_equal(ours.above_infonce, theirs.above_infonce)
    np.testing.assert_array_equal(ours.weights, theirs.weights)
    for name, values in ours.dissipation.items():
        np.testing.assert_array_equal(values, theirs.dissipation[name])


def test_the_command_prints_claims_and_draws_the_same_figures_every_time(runs, capsys):
    assert main(["simulate", "--runs", str(runs), *OPTIONS]) == 0
    lines = capsys.readouterr().out.splitlines()
    statuses = [line.partition(":")[0] for line in lines if not line.startswith("  ")][:-4]
    assert set(statuses) <= {"SHOWN", "EQUIVALENT OR OPPOSITE", "OPEN", "NOT TESTED HERE", "THEOREM"}
    assert len(statuses) == 7
    folder = Path(lines[-1])
    assert folder.parent == runs
    for path in map(Path, lines[-4:-1]):
        assert path.parent == folder
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == f"{SVG}svg"
        assert root.get("aria-label") == root.find(f"{SVG}title").text
        assert "currentColor" in path.read_text(encoding="utf-8")
        assert not re.search(r"\bnan\b|\binf\b|#010203", path.read_text(encoding="utf-8"))
    drawn = {path: path.read_bytes() for path in map(Path, lines[-4:-1])}
    assert {path: path.read_bytes() for path in write_figures(folder)} == drawn
