"""The fast lane, `./run_tests.sh fast`, as a pytest plugin: `-p tests.fast_lane`.

A test is skipped as soon as it starts a process or a server, trains an encoder or draws a figure. The rule looks at
what a test does, so no test needs a mark. Of a parametrised test a few cases run.
"""

import multiprocessing.process
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import matplotlib.figure
import pytest
import uvicorn
from hypothesis import settings
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

CASES = 3  # of a parametrised test, spread evenly over its list
EXAMPLES = 10  # of a property test, unless it sets a number of its own
ENCODER = 10_000  # parameters: more than any toy module of the tests has, fewer than their smallest encoder


def pytest_configure() -> None:
    settings.register_profile("fast", settings.default, max_examples=EXAMPLES)
    settings.load_profile("fast")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    kept = {item for of_test in cases.values() for item in of_test[:: -(-len(of_test) // CASES)]}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.fixture(scope="session", autouse=True)
def fast_lane() -> Iterator[None]:
    """Whatever is slow skips the test that asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", skip("starts a process"))
        patch.setattr(multiprocessing.process.BaseProcess, "start", skip("starts a process"))
        patch.setattr(uvicorn.Server, "__init__", skip("starts a server"))
        patch.setattr(matplotlib.figure.Figure, "__init__", skip("draws a figure"))
        hook = register_optimizer_step_pre_hook(skip_training)
        yield
        hook.remove()


def skip(reason: str) -> Callable[..., None]:
    """A function that skips the running test whatever its arguments."""
    return lambda *_, **__: pytest.skip(f"fast lane: {reason}")


def skip_training(optimizer: Optimizer, *_: object) -> None:
    if sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"]) > ENCODER:
        pytest.skip("fast lane: trains an encoder")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail when every test of a folder was skipped; a part of the suite chosen by path or -k is not judged."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")  # None in the workers of xdist
    if reporter is None or config.option.keyword or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    tested, skipped = (
        {PurePosixPath(report.nodeid.partition("::")[0]).parent for report in reporter.stats.get(outcome, ())}
        for outcome in ("passed", "skipped")
    )
    if untested := skipped - tested:
        reporter.write_line(f"error: the fast lane runs no test of {', '.join(sorted(map(str, untested)))}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
