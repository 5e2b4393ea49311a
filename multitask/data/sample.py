"""The sample data that comes with the package, copied to where commands look for it."""

import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from minbert.errors import InputError
from minbert.files import atomic_folder

CHECKOUT = Path(__file__).parents[2] / "data"
SHARED = "share/minbert-multitask"
"""Where an installed package keeps the data, below the environment's folder (see `data-files` in pyproject.toml)."""
FOLDERS = ("sample", "own")


def copy_sample(folder: Path) -> list[Path]:
    """Write the course's sample files to `folder/sample` and the example of a tasks file to `folder/own`.

    Raises:
        InputError: one of them exists already, or the package was installed without its data.
        DiskFullError: the disk is full.
    """
    targets = [folder / name for name in FOLDERS]
    if existing := next((target for target in targets if target.exists()), None):
        raise InputError(f"{existing}: exists already; name another folder, or remove it")
    for target in targets:
        with atomic_folder(target) as temporary:
            for path in _bundled(target.name):
                shutil.copyfile(path, temporary / path.name)
    return targets


def _bundled(name: str) -> Iterator[Path]:
    """The files of one of the `FOLDERS`, from the checkout if there is one, else from the installed package."""
    if (CHECKOUT / name).is_dir():
        yield from sorted((CHECKOUT / name).iterdir())
        return
    try:
        installed = files("minbert-multitask") or []
    except PackageNotFoundError:
        installed = []
    found = [Path(str(file.locate())) for file in installed if f"{SHARED}/{name}/" in file.as_posix()]
    if not found:
        raise InputError(
            "the sample data is not installed; install the package from a wheel, or take data/ of a checkout"
        )
    yield from found
