"""A grid on a Ray cluster of two nodes, one of which is killed meanwhile, ends with the bits of one process."""

import threading
import time
from importlib.util import find_spec

import pytest

from multitask.base.options import RunOptions
from multitask.experiments.engines import Engine
from multitask.experiments.grid import run_preset
from multitask.experiments.table_definitions import Preset, Row, experiment
from tests.multitask.experiments.conftest import files

pytestmark = [pytest.mark.ray, pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")]


def test_a_lost_node_costs_nothing_but_time(recipes, tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    from multitask.experiments.engines import Ray

    lines = [(Row(str(n), f"{n} epochs"), recipes.finetune(recipes.nli(epochs=n))) for n in (1, 2, 3, 4)]
    preset = Preset("sample", recipes.start, recipes.data, (experiment("1", "", "", lines),))
    alone = run_preset(preset, 1, RunOptions("cpu", "fp32", tmp_path / "alone"), Engine())
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    ended: list[int] = []

    def lose_a_node() -> None:
        while not (done := len(list((tmp_path / "cluster").glob("*/DONE")))):
            time.sleep(0.01)
        cluster.remove_node(second, allow_graceful=False)
        ended.append(done)

    thread = threading.Thread(target=lose_a_node)
    thread.start()
    options = RunOptions("cpu", "fp32", tmp_path / "cluster", save_every=0)
    try:
        record = run_preset(preset, 1, options, Ray(options))
    finally:
        thread.join()
        cluster.shutdown()
    assert ended[0] < len(alone.artefacts())
    assert record.failures == []
    assert record.artefacts() == alone.artefacts()
    assert files(tmp_path / "cluster") == files(tmp_path / "alone")
