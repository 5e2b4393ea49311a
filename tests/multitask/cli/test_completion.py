"""The completion script completes commands, options and choices."""

import subprocess
from contextlib import redirect_stdout
from io import StringIO

import pytest

from multitask.cli.main import main

COMPLETE = """
complete_words() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_multitask; echo "${{COMPREPLY[@]}}"; }}
complete_words multitask {words}
"""


@pytest.fixture(scope="module")
def script() -> str:
    """For bash."""
    with redirect_stdout(StringIO()) as printed:
        assert main(["--print-completion", "bash"]) == 0
    return printed.getvalue()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ('"fi"', "finetune"),
        ('"s"', "search serve simulate"),
        ('data ""', "check sample fetch domains phrases"),
        ('data "f"', "fetch"),
        ('experiments "l"', "list"),
        ('finetune "--task"', "--tasks-file --tasks --task-weights"),
        ('finetune --epochs 3 "--save"', "--save-every --save-config"),
        ('finetune --precision "f"', "fp32"),
        ('data fetch "--f"', "--folder"),
        ('data check "--h"', "--help --help-all"),
        ('experiments run sample --engine ""', "local ray"),
        ('finetune "x"', ""),
    ],
)
def test_bash(words: str, expected: str, script: str) -> None:
    command = script + COMPLETE.format(words=words)
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert ended.stdout.split() == expected.split()
