"""What trainings measured, drawn over their steps."""

import json
from pathlib import Path

import pytest

from multitask.base.runs import Run
from multitask.experiments.figures import CurvePoints
from multitask.experiments.frames import RunResult
from multitask.experiments.table_results import PresetResults
from multitask.stages.settings import HELD_OUT as IN_LOG
from studies.gradient_paradigm import training_figures
from studies.gradient_paradigm.training_figures import HELD_OUT, component_sweeps, decoupling_section
from tests.studies.gradient_paradigm.published import probed_as_published
from tests.studies.synthetic import write_store

Drawn = list[dict[str, CurvePoints]]


@pytest.fixture
def drawn(monkeypatch) -> Drawn:
    """The lines of each figure, in place of drawing it."""
    found: Drawn = []
    monkeypatch.setattr(training_figures, "lines", lambda panels, *_, **__: found.append(panels[""]))
    return found


def test_statistics_of_the_components_are_those_of_held_out_sentences(tmp_path, drawn, monkeypatch):
    results = PresetResults.read(write_store(tmp_path, ["gradient"], probe=probed_as_published, seeds=1), "sample")
    probed, asked = RunResult.probed, []
    monkeypatch.setattr(RunResult, "probed", lambda run, **what: asked.append(what["place"]) or probed(run, **what))
    assert component_sweeps(results) is not None
    assert set(asked) == {HELD_OUT}
    assert [len(of) for of in drawn] == 3 * [7, 8, 7]  # values of margin, temperature, ratio


def test_decoupled_losses_have_curves_norms_metrics_and_the_gap_to_sts(tmp_path, drawn):
    key = "decoupled"
    runs = write_store(tmp_path, [key], probe=probed_as_published, seeds=3)
    parts = ["dev score", "the alignment part", "the uniformity part", "alignment of two", "uniformity of two"]

    def captions() -> list[str]:
        section = decoupling_section(key, PresetResults.read(runs, "sample"))
        assert section is not None
        return [picture.caption for picture in section.pictures]

    assert all(part in caption for part, caption in zip(parts, captions(), strict=True))
    for seed, aligned in enumerate((0.5, 0.6, 0.8)):
        measure_dev_set(runs / f"pretrain-{key}-infonce-{seed}", aligned)
    parts += ["alignment of the STS dev set", "uniformity of the STS dev set"]
    assert all(part in caption for part, caption in zip(parts, captions(), strict=True))
    gap = drawn[-2]
    assert list(gap) == ["InfoNCE"]
    assert [value for _, value, *_ in gap["InfoNCE"]] == pytest.approx([1 / 3, 31 / 30, 52 / 30])


def measure_dev_set(folder: Path, aligned: float) -> None:
    """Adds the dev set's alignment and uniformity, and alignment of held-out sentences, to a training's history."""
    path = folder / "metrics.jsonl"
    history = [json.loads(line) for line in path.read_text().splitlines()]
    for number, line in enumerate(history):
        line["dev"]["similarity"] |= {"alignment": aligned + number, "uniformity": -2.0 - number / 4}
        line["training"][f"{IN_LOG} alignment"] = 0.3 * (number + 1)
    path.write_text("".join(json.dumps(line) + "\n" for line in history))
    Run(folder).finish()
