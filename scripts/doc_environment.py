"""Where the documentation's commands run: a new folder with the sample data, and the commands of this checkout."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def workplace(folder: Path) -> None:
    """Put into an empty folder what the commands expect in the working directory."""
    (folder / "data").symlink_to(ROOT / "data", target_is_directory=True)


def environment() -> dict[str, str]:
    """The environment of a process that finds this checkout's packages and commands."""
    commands = os.pathsep.join([str(ROOT / ".venv" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": commands, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "TQDM_DISABLE": "1"}
