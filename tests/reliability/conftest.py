"""A small world (see `benchmarks/reliability/world.py`), made once for all tests here."""

from pathlib import Path

import pytest

from benchmarks.reliability.world import make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a grid; its model is the only run."""
    folder = tmp_path_factory.mktemp("reliability") / "world"
    make_world(folder, with_grid=False)
    return folder


@pytest.fixture(scope="session")
def model(world: Path) -> Path:
    """The fine-tuned model, relative to the world."""
    [folder] = (world / "runs").glob("finetune-*")
    return folder.relative_to(world)
