"""The prune stage: an artefact that every other stage starts from, rewinding, the choice against a slow one."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import read_json, write_json
from minbert.masked_language_head import MaskedLanguageHead
from minbert.model import BertModel
from minbert.remove_heads_and_neurons import Units, without_units
from multitask.base.runs import Run
from multitask.data.contamination import TrainedOn
from multitask.data.examples import drawn_rows
from multitask.models.model_folder import write_pooling
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.finetune import finetune
from multitask.stages.pretrain import pretrain
from multitask.stages.prune import choose_units, drop_lowest, prune, random_scores, sensitivity, summary
from multitask.stages.settings import FinetuneConfig
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.stages.settings_without_training import PruneConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from multitask.training.checkpoints_and_resume import RunState
from multitask.training.settings import OptimizerConfig
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import StageRun

HALF = PruneConfig(share=0.5, batch_size=16)
TUNED = FinetuneConfig(
    tasks=("sentiment", "similarity"), epochs=1, pooling="mean", optimizer=OptimizerConfig(learning_rate=1e-3)
)
SHAPE = BertConfig(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, intermediate_size=10)
SENTENCES = ["A man is playing a guitar.", "Two dogs run.", "word " * 40]


class ScoredError(Exception):
    """Scores were to be computed."""


def refuse_to_score(*_given: object) -> None:
    raise ScoredError


@pytest.fixture
def run(run_stage, tiny_encoder) -> StageRun:
    return lambda config=HALF, start=tiny_encoder, *rewound, **arguments: run_stage(
        prune, config, start=[start, *rewound], **arguments
    )


def encoder(run: Run | Path) -> BertModel:
    return BertModel.from_pretrained(str(run.model_folder() if isinstance(run, Run) else run))


def kept_units(run: Run) -> Units:
    arrays = np.load(run.folder / "scores.npz", allow_pickle=False)
    return Units(*(tuple(torch.from_numpy(arrays[f"{name}_kept"])) for name in ("heads", "neurons")))


def equal_weights(first: BertModel, second: BertModel) -> bool:
    return first.config == second.config and all(
        torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items()
    )


# The artefact.


def test_the_artefact_holds_the_smaller_encoder_and_says_what_is_left(run, tiny_encoder):
    pruned, whole = run(), encoder(tiny_encoder)
    smaller, kept = encoder(pruned), kept_units(pruned)
    assert equal_weights(smaller, without_units(whole, kept))
    assert sum(int(layer.sum()) for layer in kept.heads) == 4
    assert sum(int(layer.sum()) for layer in kept.neurons) == 64
    pruning = read_json(pruned.folder / "pruning.json")
    sizes = smaller.config.layer_sizes
    assert pruning["layers"] == [{"heads": [4, heads], "neurons": [64, neurons]} for heads, neurons in sizes]
    assert pruning["parameters"] == [sum(p.numel() for p in model.parameters()) for model in (whole, smaller)]
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tiny_encoder, pruned.model_folder())]
    assert pruning["bytes"] == sizes
    before, after = pruning["parameters"]
    assert summary(pruned).splitlines()[-1].startswith(f"parameters: {before:,} to {after:,} (-")
    assert sizes[1] < sizes[0]
    arrays = np.load(pruned.folder / "scores.npz", allow_pickle=False)
    assert arrays["head_scores"].shape == (2, 4)
    scores, units = arrays["neuron_scores"], arrays["neurons_kept"]
    assert scores[~units].max() <= scores[units].min()


@pytest.mark.parametrize(
    "change",
    [
        {"score": "magnitude"},
        {"score": "task"},
        {"signed": True},
        {"uniformity_weight": 0.0, "rounds": 3, "scope": "layer", "normalize_scores": True},
        {"what": "neurons", "share": 0.99},
        {"train_limit": 20, "max_length": 8},
    ],
    ids=str,
)
def test_every_setting_gives_an_encoder_that_works_and_can_be_pruned_again(change, run):
    pruned = run(replace(HALF, **change))
    twice = run(start=pruned.folder)
    embeddings = SentenceEncoder.load(twice.folder, device="cpu", precision="fp32").encode(SENTENCES)
    assert np.isfinite(embeddings).all()
    arrays = np.load(twice.folder / "scores.npz", allow_pickle=False)
    for layer, (heads, neurons) in enumerate(encoder(pruned).config.layer_sizes):
        for name, size in (("head", heads), ("neuron", neurons)):
            present = ~np.isnan(arrays[f"{name}_scores"][layer])
            assert present.sum() == size
            assert not arrays[f"{name}s_kept"][layer][~present].any()


def test_without_pairs_to_align_only_uniformity_scores(run, data, tmp_path):
    header, *lines = (data / "sts-train.csv").read_text(encoding="utf-8").splitlines()
    number = header.split("\t").index("similarity")
    different = [line for line in lines if float(line.split("\t")[number]) < 4]
    (tmp_path / "sts-train.csv").write_text("\n".join([header, *different]) + "\n", encoding="utf-8")
    message = r"sts-train.csv: of the scored pairs none has a similarity in the top fifth of similarity's range"
    with pytest.raises(InputError, match=message):
        run(data=tmp_path)
    run(replace(HALF, uniformity_weight=1.0), data=tmp_path)


def test_what_is_aligned_is_the_same_in_every_range(run, tmp_path):
    pairs = {"a": ["a film", "two cats", "a dog", "an old man"], "b": ["a movie", "three cats", "a bird", "rain"]}
    found = {}
    for name, scores, top in (("stars", [4.5, 4.0, 3.9, 0.0], 5), ("percent", [90, 80, 78, 0], 100)):
        fields = {"kind": "cosine", "text": ["a", "b"], "label": "score", "range": [0, top]}
        (tmp_path / name).mkdir()
        tasks = tasks_file(tmp_path / name, {**pairs, "score": scores}, alike=fields)
        arrays = np.load(
            run(replace(HALF, uniformity_weight=0.0), data=tasks).folder / "scores.npz", allow_pickle=False
        )
        found[name] = arrays["neuron_scores"]
    assert np.array_equal(found["stars"], found["percent"])
    assert found["stars"].any()


# Other stages.


def test_other_stages_start_from_it(run, run_stage):
    pruned = run()
    sizes = encoder(pruned).config.layer_sizes
    views = PretrainConfig(sources=("similarity",), train_limit=32, optimizer=TUNED.optimizer)
    trained, viewed = (run_stage(*stage, start=pruned.folder) for stage in ((finetune, TUNED), (pretrain, views)))
    for after in (trained, viewed):
        assert encoder(after).config.layer_sizes == sizes
        assert not equal_weights(encoder(after), encoder(pruned))


def test_the_head_of_masked_words_stays_with_its_encoder(run, tiny_encoder, tmp_path):
    model = encoder(tiny_encoder)
    new = MaskedLanguageHead(model.config).tensors(model.config)
    head = {name: torch.randn_like(values) for name, values in new.items()}
    start = shutil.copytree(tiny_encoder, tmp_path / "start")
    model.save(start, head)
    for pruned, expected in (
        (run(start=start), head),
        (run(start=tiny_encoder, folder="without"), {}),
        (run(HALF, tiny_encoder, start, folder="rewound"), head),
        (run(HALF, start, tiny_encoder, folder="rewound to one without"), {}),
    ):
        stored = load_file(pruned.model_folder() / "model.safetensors")
        found = {name: values for name, values in stored.items() if name.startswith("cls.predictions")}
        assert found.keys() == expected.keys()
        assert all(torch.equal(values, expected[name]) for name, values in found.items())


def test_sentiment_scores_need_a_head_for_it(run, tuned):
    config = replace(HALF, score="task", task="sentiment")
    with pytest.raises(InputError, match="no head for 'sentiment', only for paraphrase, similarity"):
        run(config)
    by_task, by_geometry = (kept_units(run(c, start=tuned.folder)) for c in (config, HALF))
    assert any(not torch.equal(a, b) for a, b in zip(by_task.tensors, by_geometry.tensors, strict=True))


def test_scores_by_a_task_pool_as_asked(run, tuned, tiny_encoder, tmp_path):
    """The same as of a folder that records the pooling."""
    recorded = shutil.copytree(tiny_encoder, tmp_path / "mean")
    write_pooling(recorded, "mean", encoder(tiny_encoder).config.hidden_size)
    asked, expected = (
        np.load(run(replace(HALF, score="task", pooling=pooling), start=start).folder / "scores.npz")
        for pooling, start in (("mean", tiny_encoder), ("auto", recorded))
    )
    for name in asked.files:
        np.testing.assert_array_equal(asked[name], expected[name])
    with pytest.raises(InputError, match=r"pooling is cls; expected auto or mean, with which .* was trained"):
        run(replace(HALF, score="task", pooling="cls"), start=tuned.folder)


@pytest.mark.parametrize("score", ["task", "align_uniform"])
def test_scores_of_an_encoder_are_of_texts_as_long_as_asked_or_as_it_takes(run, tiny_encoder, tmp_path, score):
    """A length that the folder records is one for embedding and scoring, as trainings take it."""
    recorded = shutil.copytree(tiny_encoder, tmp_path / "recorded")
    write_json(recorded / "tokenizer_config.json", {"model_max_length": 6})
    config = replace(HALF, score=score)
    whole, expected, cut = (
        np.load(run(replace(config, max_length=length), start=start).folder / "scores.npz")["head_scores"]
        for length, start in ((None, recorded), (None, tiny_encoder), (6, recorded))
    )
    np.testing.assert_array_equal(whole, expected)
    assert not np.array_equal(whole, cut)


def test_scores_by_a_task_weigh_its_rows(run, run_stage, tmp_path):
    columns = {"text": [f"word{n} and" for n in range(48)], "label": np.arange(48) % 3, "w": np.arange(48) % 4}
    stars = {"kind": "regression", "text": "text", "label": "label", "range": [0, 2]}
    model = run_stage(finetune, replace(TUNED, tasks=("stars",)), data=tasks_file(tmp_path, columns, stars=stars))
    found = []
    for more in ({}, {"weight": "w"}):
        data = tasks_file(tmp_path, columns, stars=stars | more)
        pruned = run(replace(HALF, score="task", task="stars"), start=model.folder, data=data)
        found.append(np.load(pruned.folder / "scores.npz"))
    plain, weighted = found
    assert any(not np.array_equal(plain[name], weighted[name]) for name in plain.files)


@pytest.mark.parametrize(
    ("kind", "label", "declared"),
    [("pair_classification", "same", {"labels": ["no", "yes"]}), ("pair_regression", "far", {"range": [10, 57]})],
)
def test_scores_by_a_task_of_an_encoder_read_what_the_rows_decide(kind, label, declared, run, tmp_path):
    columns = {"a": [f"word{n} and" for n in range(48)], "b": [f"and word{n // 2}" for n in range(48)]}
    columns |= {"same": ["no", "yes"] * 24, "far": [*range(10, 58)]}
    found = []
    for more in ({}, declared):
        data = tasks_file(tmp_path, columns, own={"kind": kind, "text": ["a", "b"], "label": label} | more)
        found.append(np.load(run(replace(HALF, score="task", task="own"), data=data).folder / "scores.npz"))
    for name in found[0].files:
        np.testing.assert_array_equal(*(scores[name] for scores in found))


def test_what_it_was_scored_on_counts_as_training_data(run, data, tmp_path):
    scored = load_rows(load_tasks(data)["similarity"], "train")
    limited = TrainedOn.read(run(replace(HALF, train_limit=20)).folder)
    seen = limited.pairs_seen(*scored.sentences)
    assert np.flatnonzero(seen).tolist() == drawn_rows(len(scored), 20).tolist()
    for score in ("magnitude", "random"):  # need no data
        pruned = run(replace(HALF, score=score), data=tmp_path / "nothing")
        assert not TrainedOn.read(pruned.folder).pairs_seen(*scored.sentences).any()


# Scores of earlier runs.


def test_another_share_of_the_same_start_is_scored_once(run, tiny_encoder, tuned, monkeypatch):
    third = replace(HALF, share=0.3, what="heads")
    alone = run(third, folder="alone")
    own = partial(run, folder="own")
    own()
    scored = []
    monkeypatch.setattr("multitask.stages.prune.sensitivity", lambda *given: scored.append(1) or sensitivity(*given))
    again = own(third)
    own(third, tiny_encoder, tuned.folder)  # rewinding does not change what is scored
    assert not scored
    for name in ("scores.npz", "trained_on.npz"):
        assert (again.folder / name).read_bytes() == (alone.folder / name).read_bytes()
    assert equal_weights(encoder(again), encoder(alone))
    for change in ({"seed": 1}, {"uniformity_weight": 0.25}, {"train_limit": 20}, {"score": "task"}, {"signed": True}):
        own(replace(HALF, **change))
    own(HALF, tuned.folder)
    own(replace(HALF, rounds=2))
    assert len(scored) == 8


OTHERS = ({"batch_size": 8}, {"max_length": 8}, {"pooling": "cls"}, "rows", "torch.__version__", "machine_name")


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_scores_of_other_settings_rows_machines_or_versions_of_torch_are_not_reused(
    other, run, data, monkeypatch, tmp_path
):
    own = partial(run, folder="own")
    own()
    rows = (data / "sts-train.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "sts-train.csv").write_text("\n".join(rows[:-1]) + "\n", encoding="utf-8")
    monkeypatch.setattr("multitask.stages.prune.sensitivity", refuse_to_score)
    if other == "torch.__version__":
        monkeypatch.setattr(other, "2.99.0")
    elif other == "machine_name":
        monkeypatch.setattr(f"multitask.base.runs.{other}", lambda device: "another")
    changes = other if isinstance(other, dict) else {}
    with pytest.raises(ScoredError):
        own(replace(HALF, share=0.3, **changes), data=tmp_path if other == "rows" else data)


def test_layers_of_unlike_sizes_reuse_scores(run, monkeypatch):
    pruned = run()
    third = replace(HALF, share=0.3)
    alone = run(third, pruned.folder, folder="alone")
    run(HALF, pruned.folder, folder="own")
    monkeypatch.setattr("multitask.stages.prune.sensitivity", refuse_to_score)
    assert equal_weights(encoder(alone), encoder(run(third, pruned.folder, folder="own")))


@pytest.mark.parametrize("damage", ["scores.npz", "inputs.json", "scores of the same size and time"])
def test_damaged_scores_are_not_reused(damage, run):
    third, earlier = replace(HALF, share=0.3), run(folder="own").folder
    if damage == "scores of the same size and time":
        path = earlier / "scores.npz"
        stat = path.stat()
        path.write_bytes(b"0" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    else:
        (earlier / damage).write_text("{}", encoding="utf-8")
    assert torch.equal(*(torch.cat(kept_units(run(third, folder=name)).neurons) for name in ("own", "alone")))


# Rewinding.


def test_rewinding_takes_the_same_units_of_earlier_weights(run, tuned, tiny_encoder):
    stayed, rewound = run(start=tuned.folder), run(HALF, tuned.folder, tiny_encoder, folder="scored again")
    for one, other in zip(kept_units(stayed).tensors, kept_units(rewound).tensors, strict=True):
        assert torch.equal(one, other)
    assert equal_weights(encoder(rewound), without_units(encoder(tiny_encoder), kept_units(stayed)))
    assert equal_weights(encoder(stayed), without_units(encoder(tuned), kept_units(stayed)))
    # Heads stay with the weights that they were trained with.
    assert tuple(MultitaskModel.load(stayed.model_folder()).tasks) == TUNED.tasks
    assert not (rewound.model_folder() / "multitask.json").exists()


def test_a_state_early_in_a_training_is_a_shorter_run(run_stage, monkeypatch):
    config = PretrainConfig(sources=("similarity",), select="last", optimizer=OptimizerConfig(learning_rate=1e-3))
    shorter = run_stage(pretrain, config)
    monkeypatch.setattr(RunState, "_drop_leftovers", lambda self: None)
    longer = run_stage(pretrain, replace(config, epochs=2), folder="all-states")
    early, late = sorted((longer.folder / "checkpoints").iterdir())
    assert equal_weights(encoder(shorter), encoder(early))
    assert not equal_weights(encoder(shorter), encoder(late))


def test_weights_of_another_shape_are_refused(run, tiny_encoder):
    with pytest.raises(InputError, match="another shape or vocabulary than"):
        run(HALF, tiny_encoder, run().folder)


# The choice.


def slow_choice(scores: list[list[float]], share: float, spare_last: bool) -> list[list[bool]]:
    """One unit after the other, from the lowest; a layer's last head is passed over."""
    kept = [[True] * len(layer) for layer in scores]
    ranked = sorted((value, i, j) for i, layer in enumerate(scores) for j, value in enumerate(layer))
    left = round(share * len(ranked))
    for _, i, j in ranked:
        if left and not (spare_last and sum(kept[i]) == 1):
            kept[i][j] = False
            left -= 1
    return kept


layers_of_scores = st.integers(1, 4).flatmap(
    lambda layers: st.permutations(range(layers * 5)).map(lambda p: [p[i::layers] for i in range(layers)])
)


@settings(max_examples=60)
@given(scores=layers_of_scores, share=st.floats(0.01, 0.99), spare_last=st.booleans())
def test_the_lowest_go_and_a_layers_last_head_stays(scores, share, spare_last):
    tensors = [torch.tensor(layer).float() for layer in scores]
    whole = [torch.ones(5, dtype=torch.bool)] * len(scores)
    pooled = drop_lowest(tensors, whole, share, True, spare_last)
    assert [layer.tolist() for layer in pooled] == slow_choice(scores, share, spare_last)
    apart = drop_lowest(tensors, whole, share, False, spare_last)
    assert [layer.tolist() for layer in apart] == [slow_choice([layer], share, spare_last)[0] for layer in scores]


@settings(max_examples=30)
@example(seed=0, share=0.95, rounds=3, scope="layer", what="neurons")  # 0.95 * 3 / 3 is less than 0.95
@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0.01, 0.99),
    rounds=st.integers(1, 4),
    scope=st.sampled_from(["global", "layer"]),
    what=st.sampled_from(["heads", "neurons", "both"]),
)
def test_the_share_is_removed_in_any_number_of_rounds(seed, share, rounds, scope, what):
    config = PruneConfig(share=share, rounds=rounds, scope=scope, what=what, score="random")
    masks: list[Units] = []

    def score(factors: Units) -> Units:
        masks.append(factors)
        return random_scores(SHAPE, seed + len(masks))

    kept, _ = choose_units(SHAPE, score, config)
    for name, size, most in (("heads", 6, 5), ("neurons", 10, 10)):
        removed = [int((~layer).sum()) for layer in getattr(kept, name)]
        groups = [(sum(removed), 3)] if scope == "global" else [(count, 1) for count in removed]
        for count, layers in groups:
            expected = min(round(share * size * layers), most * layers)
            assert count == (expected if what in (name, "both") else 0)
        assert max(removed) <= most
        for earlier, later in zip(masks, [*masks[1:], kept], strict=True):  # what is gone stays gone
            for before, after in zip(getattr(earlier, name), getattr(later, name), strict=True):
                assert not (after.bool() & ~before.bool()).any()
    assert len(masks) == rounds
    assert all((factor == 1).all() for factor in masks[0].tensors)


def test_scores_are_those_of_the_round_that_removed_the_unit():
    rounds = iter([1.0, 2.0])

    def score(factors: Units) -> Units:
        bonus = next(rounds)
        return Units.full(SHAPE, 0.0).map(lambda values: bonus * (1 + torch.arange(len(values))))

    kept, scores = choose_units(SHAPE, score, PruneConfig(share=0.4, rounds=2, scope="layer", what="neurons"))
    assert kept.neurons[0].tolist() == [False] * 4 + [True] * 6
    assert scores.neurons[0].tolist() == [1, 2, *(2 * n for n in range(3, 11))]
    rounds = iter([1.0])
    highest = choose_units(SHAPE, score, PruneConfig(share=0.4, order="highest", scope="layer", what="neurons"))[0]
    assert highest.neurons[0].tolist() == [True] * 6 + [False] * 4
    with pytest.raises(InputError, match="not finite"):
        choose_units(SHAPE, lambda factors: Units.full(SHAPE, float("nan")), PruneConfig())


def test_normalising_makes_layers_alike():
    def score(factors: Units) -> Units:
        raw = random_scores(SHAPE, 4)
        return Units(*(tuple(10.0**i * layer for i, layer in enumerate(kind)) for kind in (raw.heads, raw.neurons)))

    raw, even = (
        choose_units(SHAPE, score, PruneConfig(share=0.5, normalize_scores=n))[0].neurons for n in (False, True)
    )
    assert [int(layer.sum()) for layer in raw] == [0, 5, 10]
    values = torch.cat([layer / layer.norm() for layer in score(raw).neurons])
    assert torch.equal(torch.cat(even), values > values.sort().values[14])
