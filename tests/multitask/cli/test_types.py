"""Options of types of our own: an objective with its parameters, and its description."""

from dataclasses import dataclass, field

import pytest
import tyro

from multitask.cli.main import main
from multitask.cli.types import REGISTRY
from multitask.objectives import OBJECTIVES, describe
from multitask.objectives.config import ObjectiveConfig

COMMANDS = ("pretrain", "fuse", "probe")


@dataclass(frozen=True)
class Options:
    objective: ObjectiveConfig = ObjectiveConfig()
    other: ObjectiveConfig = field(default=ObjectiveConfig.of("gradient", dissipation=None, ratio=2))


def parsed(*arguments: str) -> Options:
    return tyro.cli(Options, args=arguments, registry=REGISTRY)


def test_one_option_holds_an_objective_and_its_parameters() -> None:
    assert parsed() == Options()
    given = parsed("--objective", "vicreg:dissipation=0.3,weight=0.05")
    assert given == Options(ObjectiveConfig.of("vicreg", dissipation=0.3, weight=0.05))


def test_help_shows_the_form_and_the_default(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "--objective NAME[:PARAMETER=VALUE,...]" in text
    assert "default: infonce" in text
    assert "default: gradient:dissipation=none,ratio=2" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_a_wrong_objective_in_one_line(command: str, capsys: pytest.CaptureFixture) -> None:
    assert main([command, "--objective", "vicreg:tau=0.3"]) == 2
    error = capsys.readouterr().err
    assert error.startswith('error: vicreg has no parameter "tau"; it takes uniformity_weight: a number at least 0;')
    assert error.count("\n") == 1
    assert main([command, "--objective", "infonce:temperature=0"]) == 2
    assert capsys.readouterr().err == "error: infonce: temperature is 0.0; expected a number above 0\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_describe_an_objective(command: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help-objective", "vicreg"])
    assert not stop.value.code
    assert capsys.readouterr().out == describe("vicreg") + "\n"
    assert main([command, "--help-objective", "infonse"]) == 2
    assert 'error: unknown objective "infonse"; expected one of: align_uniform' in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_objective(command: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    words = capsys.readouterr().out.replace("│", " ").replace(",", " ").replace(".", " ").split()
    assert set(OBJECTIVES) <= set(words)
    assert "--help-objective" in words
