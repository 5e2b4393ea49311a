"""Prunings in the grid: one parent to score, and where asked for another to rewind to."""

from pathlib import Path

import numpy as np
import torch

from minbert.model import BertModel
from minbert.remove_heads_and_neurons import Units, without_units
from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from multitask.stages.settings.prune import PruneConfig
from studies.engine.experiments import experiment
from studies.engine.local_engine import InProcess
from studies.engine.plan import make_plan
from studies.engine.presets import Preset
from studies.engine.recipes import Recipes
from studies.engine.run import run_preset
from studies.engine.table import Row
from studies.report.report import write_report

HALF = PruneConfig(share=0.5, batch_size=16)


def encoder(run: Artefact) -> BertModel:
    return BertModel.from_pretrained(str(run.model_folder()))


def test_a_pruning_has_its_place_in_the_grid(recipes: Recipes, tmp_path: Path) -> None:
    tuned = recipes.finetune(recipes.start)
    again = recipes.finetune(recipes.prune(tuned, HALF, recipes.start))
    lines = [
        (Row("pruned", "Pruned"), recipes.prune(tuned, HALF)),
        (Row("again", "Rewound to the start, tuned again"), again),
        (Row("rewound", "Rewound to a run"), recipes.prune(recipes.nli(epochs=2), HALF, recipes.nli(epochs=1))),
    ]
    preset = Preset("sample", recipes, (experiment("1", "Pruning", "", lines),))
    options = RunOptions("cpu", "fp32", tmp_path)
    record = run_preset(preset, 2, options, InProcess())
    assert not record.failures
    for row, _ in lines:
        runs = record.of_row("1", row.key)
        assert [found.seed for found in runs] == [0, 1]
        assert len({found.model for found in runs}) == 2
    first = record.of_row("1", "rewound")[0]
    rewound = Artefact(tmp_path / first.model)
    parents = [name for name in first.chain if name.startswith("pretrain-")]
    assert len(parents) == 2
    arrays = np.load(rewound.folder / "scores.npz", allow_pickle=False)
    kept = Units(*(tuple(torch.from_numpy(arrays[f"{name}_kept"])) for name in ("heads", "neurons")))
    expected = without_units(encoder(Artefact(tmp_path / parents[1])), kept).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in encoder(rewound).state_dict().items())
    plan = make_plan(preset, 2, options)
    assert {stage.stage for stage in plan} == {"pretrain", "finetune", "prune", "evaluate"}
    assert not any(stage.missing for stage in plan)
    page = write_report(tmp_path, "sample", tmp_path / "report")
    assert "Rewound to the start, tuned again" in page.read_text(encoding="utf-8")
