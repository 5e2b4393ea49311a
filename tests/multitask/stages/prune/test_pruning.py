"""The prune stage: an artefact that every other stage starts from, rewinding, the command."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.errors import InputError
from minbert.files import read_json
from minbert.model import BertModel
from minbert.remove_heads_and_neurons import Units, masked, without_units
from multitask.cli.main import main
from multitask.data.contamination import TrainedOn
from multitask.data.shuffle_and_batch import drawn_rows
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from multitask.stages.evaluate import evaluate_on_dev
from multitask.stages.finetune import finetune
from multitask.stages.pretrain import pretrain
from multitask.stages.prune import prune
from multitask.stages.settings.evaluate import EvaluateConfig
from multitask.stages.settings.finetune import FinetuneConfig
from multitask.stages.settings.pretrain import PretrainConfig
from multitask.stages.settings.prune import PruneConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from multitask.training.checkpoints_and_resume import RunState
from multitask.training.config import OptimizerConfig

HALF = PruneConfig(share=0.5, batch_size=16)
TUNED = FinetuneConfig(
    tasks=("sentiment", "similarity"), epochs=1, pooling="mean", optimizer=OptimizerConfig(learning_rate=1e-3)
)
SENTENCES = ["A man is playing a guitar.", "Two dogs run.", "word " * 40]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def options(runs: Path) -> RunOptions:
    return RunOptions(device="cpu", precision="fp32", runs=runs)


@pytest.fixture(scope="module")
def tuned(tiny_encoder: Path, small_data: Path, options: RunOptions) -> Artefact:
    return finetune(str(tiny_encoder), small_data, TUNED, options)


Run = Callable[..., Artefact]


@pytest.fixture(scope="module")
def run(tiny_encoder: Path, small_data: Path, options: RunOptions) -> Run:
    def call(config: PruneConfig = HALF, start: object = tiny_encoder, **rewind: str) -> Artefact:
        return prune(str(start), small_data, config, options, **rewind)

    return call


def encoder(run: Artefact | Path) -> BertModel:
    return BertModel.from_pretrained(str(run.model_folder() if isinstance(run, Artefact) else run))


def kept_units(run: Artefact) -> Units:
    arrays = np.load(run.folder / "scores.npz", allow_pickle=False)
    return Units(*(tuple(torch.from_numpy(arrays[f"{name}_kept"])) for name in ("heads", "neurons")))


def equal_weights(first: BertModel, second: BertModel) -> bool:
    return first.config == second.config and all(
        torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items()
    )


# The artefact.


def test_the_artefact_holds_the_smaller_encoder_and_says_what_is_left(run: Run, tiny_encoder: Path) -> None:
    pruned, whole = run(), encoder(tiny_encoder)
    smaller, kept = encoder(pruned), kept_units(pruned)
    assert equal_weights(smaller, without_units(whole, kept))
    assert sum(int(layer.sum()) for layer in kept.heads) == 4
    assert sum(int(layer.sum()) for layer in kept.neurons) == 64
    pruning = read_json(pruned.folder / "pruning.json")
    for layer, (heads, neurons) in zip(pruning["layers"], smaller.config.layer_sizes, strict=True):
        assert layer == {"heads": [4, heads], "neurons": [64, neurons]}
    assert pruning["parameters"] == [sum(p.numel() for p in model.parameters()) for model in (whole, smaller)]
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tiny_encoder, pruned.model_folder())]
    assert pruning["bytes"] == sizes
    assert sizes[1] < sizes[0]


def test_removed_units_have_the_lowest_scores(run: Run) -> None:
    arrays = np.load(run().folder / "scores.npz", allow_pickle=False)
    assert arrays["head_scores"].shape == (2, 4)
    scores, kept = arrays["neuron_scores"], arrays["neurons_kept"]
    assert scores.shape == (2, 64)
    assert scores[~kept].max() <= scores[kept].min()


def test_embeddings_are_those_of_the_masked_encoder(run: Run, tiny_encoder: Path) -> None:
    pruned = run()
    whole = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32", pooling="mean")
    with masked(whole.model, kept_units(pruned).map(torch.Tensor.float)):
        expected = whole.encode(SENTENCES)
    found = SentenceEncoder.load(pruned.folder, device="cpu", precision="fp32", pooling="mean").encode(SENTENCES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_the_same_again_computes_nothing_and_other_settings_are_other_artefacts(run: Run, options: RunOptions) -> None:
    first = run()
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    assert run() == first
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")} == before
    others = [replace(HALF, share=0.25), replace(HALF, score="random"), replace(HALF, score="random", seed=1)]
    folders = {run(config).folder for config in (HALF, *others)}
    assert len(folders) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"score": "magnitude"},
        {"score": "task"},
        {"signed": True},
        {"uniformity_weight": 0.0},
        {"rounds": 3},
        {"scope": "layer", "normalize_scores": True},
        {"what": "neurons", "share": 0.99},
        {"train_limit": 20, "max_length": 8},
    ],
    ids=str,
)
def test_every_setting_gives_an_encoder_that_works(run: Run, change: dict) -> None:
    pruned = run(replace(HALF, **change))
    embeddings = SentenceEncoder.load(pruned.folder, device="cpu", precision="fp32").encode(SENTENCES)
    assert np.isfinite(embeddings).all()
    assert encoder(pruned).config.pruned


def test_magnitude_and_random_scores_need_no_data(tiny_encoder: Path, tmp_path: Path) -> None:
    for score in ("magnitude", "random"):
        config = replace(HALF, score=score)
        prune(str(tiny_encoder), tmp_path / "nothing", config, RunOptions("cpu", "fp32", tmp_path))


def test_without_pairs_to_align_only_uniformity_scores(
    tiny_encoder: Path, small_data: Path, options: RunOptions, tmp_path: Path
) -> None:
    header, *lines = (small_data / "sts-train.csv").read_text(encoding="utf-8").splitlines()
    number = header.split("\t").index("similarity")
    different = [line for line in lines if float(line.split("\t")[number]) < 4]
    (tmp_path / "sts-train.csv").write_text("\n".join([header, *different]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"sts-train.csv: no scored pair has a similarity of 4 or more"):
        prune(str(tiny_encoder), tmp_path, HALF, options)
    prune(str(tiny_encoder), tmp_path, replace(HALF, uniformity_weight=1.0), options)


# Other stages.


def test_other_stages_start_from_it(run: Run, small_data: Path, options: RunOptions) -> None:
    pruned = run()
    sizes = encoder(pruned).config.layer_sizes
    trained = finetune(str(pruned.folder), small_data, TUNED, options)
    viewed = pretrain(
        str(pruned.folder),
        small_data,
        PretrainConfig(sources=("similarity",), train_limit=32, optimizer=OptimizerConfig(learning_rate=1e-3)),
        options,
    )
    for after in (trained, viewed):
        assert encoder(after).config.layer_sizes == sizes
        assert not equal_weights(encoder(after), encoder(pruned))
    for model in (pruned, trained, viewed):
        scores = read_json(
            evaluate_on_dev(str(model.folder), small_data, EvaluateConfig(), options).folder / "evaluation.json"
        )["scores"]
        assert np.isfinite(scores["similarity"])


def test_a_pruned_run_can_be_pruned_again(run: Run) -> None:
    once = run()
    twice = run(start=once.folder)
    kept = kept_units(twice)
    assert sum(int(layer.sum()) for layer in kept.neurons) == 32
    arrays = np.load(twice.folder / "scores.npz", allow_pickle=False)
    for layer, (heads, neurons) in enumerate(encoder(once).config.layer_sizes):
        for name, size in (("head", heads), ("neuron", neurons)):
            present = ~np.isnan(arrays[f"{name}_scores"][layer])
            assert present.sum() == size
            assert not arrays[f"{name}s_kept"][layer][~present].any()


def test_heads_of_tasks_stay_with_the_weights_that_they_were_trained_with(
    run: Run, tuned: Artefact, small_data: Path, options: RunOptions, tiny_encoder: Path
) -> None:
    kept = run(start=tuned.folder)
    assert tuple(MultitaskModel.load(kept.model_folder()).tasks) == TUNED.tasks
    scores = read_json(
        evaluate_on_dev(str(kept.folder), small_data, EvaluateConfig(), options).folder / "evaluation.json"
    )["scores"]
    assert set(scores) == set(TUNED.tasks)
    rewound = run(start=tuned.folder, rewind_to=str(tiny_encoder))
    assert not (rewound.model_folder() / "multitask.json").exists()


def test_sentiment_scores_need_a_head_for_it(run: Run, tuned: Artefact) -> None:
    config = replace(HALF, score="task", task="sentiment")
    with pytest.raises(InputError, match="no head for 'sentiment', only for paraphrase, similarity"):
        run(config)
    by_task, by_geometry = (kept_units(run(c, start=tuned.folder)) for c in (config, HALF))
    assert any(not torch.equal(a, b) for a, b in zip(by_task.tensors, by_geometry.tensors, strict=True))


def test_what_it_was_scored_on_counts_as_training_data(run: Run, small_data: Path, tuned: Artefact) -> None:
    scored = load_rows(load_tasks(small_data)["similarity"], "train")
    limited = TrainedOn.read(run(replace(HALF, train_limit=20)).folder)
    seen = limited.pairs_seen(*scored.sentences)
    assert np.flatnonzero(seen).tolist() == drawn_rows(len(scored), 20).tolist()
    assert not TrainedOn.read(run(replace(HALF, score="random")).folder).pairs_seen(*scored.sentences).any()
    sentiment = load_rows(load_tasks(small_data)["sentiment"], "train")
    assert TrainedOn.read(run(start=tuned.folder).folder).sentences_seen(sentiment.sentences[0]).any()


# Rewinding.


def test_rewinding_takes_the_same_units_of_earlier_weights(run: Run, tuned: Artefact, tiny_encoder: Path) -> None:
    stayed, rewound = run(start=tuned.folder), run(start=tuned.folder, rewind_to=str(tiny_encoder))
    for one, other in zip(kept_units(stayed).tensors, kept_units(rewound).tensors, strict=True):
        assert torch.equal(one, other)
    assert equal_weights(encoder(rewound), without_units(encoder(tiny_encoder), kept_units(stayed)))
    assert equal_weights(encoder(stayed), without_units(encoder(tuned), kept_units(stayed)))


def test_a_state_early_in_a_training_is_a_shorter_run(
    tiny_encoder: Path, small_data: Path, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PretrainConfig(sources=("similarity",), select="last", optimizer=OptimizerConfig(learning_rate=1e-3))
    shorter = pretrain(str(tiny_encoder), small_data, config, options)
    monkeypatch.setattr(RunState, "drop_leftovers", lambda self: None)
    longer = pretrain(str(tiny_encoder), small_data, replace(config, epochs=2), options)
    early, late = sorted((longer.folder / "checkpoints").iterdir())
    assert equal_weights(encoder(shorter), encoder(early))
    assert not equal_weights(encoder(shorter), encoder(late))


def test_weights_of_another_shape_are_refused(run: Run, tiny_encoder: Path) -> None:
    with pytest.raises(InputError, match="not of the shape and vocabulary of"):
        run(rewind_to=str(run().folder))


# The command.


def test_the_command_prints_what_is_left(tiny_encoder, small_data, tmp_path, capsys) -> None:
    arguments = ["prune", "--start", str(tiny_encoder), "--data", str(small_data), "--runs", str(tmp_path)]
    assert main([*arguments, "--share", "0.5", "--score", "random", "--device", "cpu"]) == 0
    header, *layers, sizes, folder = capsys.readouterr().out.splitlines()
    assert header.split() == ["layer", "heads", "neurons"]
    config = encoder(Artefact(Path(folder))).config
    assert [line.split() for line in layers] == [
        [str(i), str(heads), "of", "4", str(neurons), "of", "64"]
        for i, (heads, neurons) in enumerate(config.layer_sizes)
    ]
    before, after = read_json(Path(folder) / "pruning.json")["parameters"]
    assert sizes.startswith(f"parameters: {before:,} to {after:,} (-")
    assert main(["export", "--model", folder, "--output", str(tmp_path / "exported")]) == 2
    assert "pruned, and transformers cannot represent that" in capsys.readouterr().err
    assert main([*arguments, "--share", "1"]) == 2
    assert "share is 1.0" in capsys.readouterr().err
