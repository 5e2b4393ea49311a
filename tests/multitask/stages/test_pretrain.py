"""Contrastive pre-training: losses, probes, what it starts from and what selects; it resumes to the same bits."""

import json
import math
import shutil
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from torch import nn

from minbert.errors import InputError
from minbert.files import sha256_of_file
from minbert.masked_language_head import MaskedLanguageHead
from multitask.data.examples import Examples
from multitask.evaluation.gradient_probe import probe
from multitask.evaluation.suites import evaluate_suites
from multitask.models.model_folder import resolve_pooling
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import build_objective
from multitask.stages.finetune import finetune
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import HeldOut, Pretraining, metrics_of_embeddings, pretrain
from multitask.stages.settings import FinetuneConfig
from multitask.stages.settings_of_pretraining import HELD_OUT, MlmConfig, PretrainConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from multitask.training.contrastive_source import build_projection
from multitask.training.masked_words import MaskedSource
from multitask.training.settings import ObjectiveConfig, OptimizerConfig
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import embedded, gradients

CONFIG = PretrainConfig(batch_size=8, select="last", optimizer=OptimizerConfig(learning_rate=1e-3))


@pytest.fixture
def pretraining(problem):
    """What the stage hands to the training loop, with mean pooling and, if one is given, another dropout."""

    def call(config: PretrainConfig, dropout: float | None = None) -> Pretraining:
        found = problem(pretrain, replace(config, pooling="mean"))
        if dropout is not None:
            found.encoder.model.set_dropout(dropout)
        return found

    return call


@pytest.fixture
def run(run_stage):
    return lambda config=CONFIG, **arguments: run_stage(pretrain, config, **arguments)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, "add --select last, which keeps the last state"),
        ({"select": "last", "probe_every": 1, "probe_held_out": 2}, "leave out --probe-held-out"),
    ],
)
@pytest.mark.parametrize("declared", [False, True])
def test_without_a_similarity_set_the_error_says_how_to_do_without(run, tmp_path, settings, remedy, declared):
    (tmp_path / "own.txt").write_text("It is time.\nIt is over.\n")
    data, problem = tmp_path, f"{tmp_path}/sts-dev.csv: no such file"
    if declared:
        data = tmp_path / "own.toml"
        data.write_text('[tasks.a]\nkind = "classification"\ntext = "t"\nlabel = "c"\ntrain = "a.csv"\n')
        problem = f"{data}: has no task of the kind cosine"
    config = PretrainConfig(sources=("own.txt",), **settings)
    with pytest.raises(InputError) as caught:
        run(config, folder="refused", data=data)
    assert str(caught.value) == f"{problem}, which the best state is chosen on; {remedy}"
    assert not [*(tmp_path / "refused").glob("pretrain-*")]
    run(replace(config, select="last", probe_held_out=None, batch_size=2), folder="trained", data=data)


@pytest.mark.parametrize("name", ["unlabelled", "nli", "quora"])
def test_loss_is_the_objective_on_each_sentence_encoded_alone(name, pretraining):
    config = replace(CONFIG, sources=(name,), projection="mlp")
    problem = pretraining(config, dropout=0.0)
    (update, *_) = problem.plan(0)
    rows, source = update[0].rows, problem.contrastive[name]
    projection = problem.module["projection"]

    views = [
        torch.stack([projection(embedded(problem.encoder.model, column[row])) for row in rows])
        for column in source.columns
    ]
    labels = None if source.labels is None else torch.from_numpy(source.labels[rows])
    kind = "quora_pairs" if name == "quora" else "infonce"
    expected = build_objective(kind)(views[0], views[1], views[2] if len(views) == 3 else None, labels)
    losses = problem.losses(update)
    torch.testing.assert_close(losses.terms[name], expected, rtol=1e-5, atol=1e-6)
    assert losses.tokens == sum(len(source.columns[c][r]) for c in range(len(views)) for r in rows)
    u, v = (nn.functional.normalize(view.detach().double()) for view in views[:2])
    cosine = (u @ v.T).numpy()
    watched = {key.removeprefix(f"{name} "): value.item() for key, value in losses.watched.items()}
    assert watched["positive cosine"] == pytest.approx(np.diag(cosine).mean(), abs=1e-5)
    assert watched["negative cosine"] == pytest.approx(cosine[~np.eye(len(rows), dtype=bool)].mean(), abs=1e-5)
    assert watched["alignment"] == pytest.approx(((u - v) ** 2).sum(1).mean().item(), abs=1e-5)
    kernel = [np.exp(-2 * ((u[i] - u[j]) ** 2).sum().item()) for i in range(len(u)) for j in range(i)]
    assert watched["uniformity"] == pytest.approx(np.log(np.mean(kernel)), abs=1e-5)


def test_two_views_differ_by_dropout_only(pretraining):
    with_dropout = pretraining(CONFIG)
    update = with_dropout.plan(0)[0]
    assert 0 < with_dropout.losses(update).watched["unlabelled alignment"] < 4


def test_epochs_take_the_sources_in_order_and_a_share_of_quora(pretraining):
    config = replace(CONFIG, sources=("quora", "sentiment", "similarity"), quora_share=0.25)
    problem = pretraining(config)
    epochs = [problem.plan(epoch) for epoch in range(4)]
    names = [batch.source for (batch,) in epochs[0]]
    assert names == ["quora"] * 2 + ["sentiment"] * 8 + ["similarity"] * 16
    quora = [row for epoch in epochs for (batch,) in epoch if batch.source == "quora" for row in batch.rows]
    assert sorted(quora) == list(range(64))  # four quarters see every pair once


# With a look at the gradient of the embeddings.


PROBED = set(probe(build_objective("infonce"), torch.eye(3), torch.eye(3)).summary())


def test_what_is_probed_is_the_gradient_of_the_step(pretraining):
    problem = pretraining(replace(CONFIG, sources=("nli",), chunk=3), dropout=0.0)
    update = problem.plan(0)[0]
    problem.backward(update)
    before, state = gradients_in_place(problem), torch.get_rng_state()
    seen = problem.watch(update, 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(gradient, before[name]) for name, gradient in gradients_in_place(problem).items())
    source, projection = problem.contrastive["nli"], problem.module["projection"]
    views = [
        torch.stack([projection(embedded(problem.encoder.model, column[row])).detach() for row in update[0].rows])
        for column in source.columns
    ]
    expected = probe(source.objective, *views, *source._duplicates(update[0].rows, torch.device("cpu"))).summary()
    assert {name for name in expected if f"nli {name}" in seen} == PROBED
    for name, value in expected.items():
        assert seen[f"nli {name}"].item() == pytest.approx(value, rel=1e-3, abs=1e-5), name


def gradients_in_place(problem: Pretraining) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in problem.module.named_parameters() if p.grad is not None}


def test_a_batch_without_any_gradient_is_probed_too(run):
    objective = ObjectiveConfig.of("gradient", dissipation=-2.0)  # no anchor passes
    (line,) = run(replace(CONFIG, objective=objective, probe_every=1)).history()
    assert line["training"]["unlabelled dissipated anchors"] == 1
    assert "unlabelled ratio" not in line["training"]


def test_a_loss_that_only_pulls_is_not_recorded_as_dissipated(run):
    (line,) = run(replace(CONFIG, objective=ObjectiveConfig("byol"), momentum=0.9, probe_every=1)).history()
    assert line["training"]["unlabelled alignment gradient"] > 0
    assert not [name for name in line["training"] if "dissipat" in name]


def test_probing_changes_no_bits(run):
    """Neither that of the batches nor that of held-out sentences; of batches with labels, these alone are probed."""
    limits = {"train_limit": 24, "epochs": 2, "chunk": 3, "evaluate_every": 1}
    config = replace(CONFIG, sources=("nli", "quora"), select="similarity", **limits)
    plain, probing = run(config), run(replace(config, probe_every=1, probe_held_out=8))
    weights = [sha256_of_file(artefact.model_folder() / "model.safetensors") for artefact in (plain, probing)]
    assert weights[0] == weights[1]
    for before, after in zip(plain.history(), probing.history(), strict=True):
        added = {name: v for name, v in after["training"].items() if name not in before["training"]}
        training = {name: v for name, v in after["training"].items() if name not in added}
        assert {**after, "training": training, "seconds": None} == {**before, "seconds": None}
        labelled = "nli" not in before["training"]
        assert labelled or added.keys() >= {"nli dissipation", "nli closer to positive", "nli alignment gradient"}
        assert added.keys() >= {f"{HELD_OUT} {name}" for name in ("distance gap", "alignment", "uniformity")}
        assert all(name.startswith(("nli ", f"{HELD_OUT} ")) for name in added)


# On held-out sentences.


def test_the_head_of_simcse():
    head, x = build_projection("tanh", 4), torch.randn(3, 4)
    weight, bias = head.state_dict().values()
    torch.testing.assert_close(head(x), torch.tanh(x @ weight.T + bias))


def test_held_out_sentences_are_embedded_without_the_projection(tiny_encoder, data):
    config = replace(CONFIG, probe_every=1, probe_held_out=8)
    rows = load_rows(load_tasks(data)["similarity"], "dev")
    whole = SentenceEncoder.read(tiny_encoder, "mean")
    encoder = whole.model
    encoder.set_dropout(0.0)
    encoder.train()
    found = HeldOut(whole.tokenised(rows), config.objective.build(), 8)
    assert len({tokens.tobytes() for tokens in found.tokens}) == 8
    state = torch.get_rng_state()
    seen = found.probe(whole, 0)
    assert torch.equal(torch.get_rng_state(), state)
    vectors = torch.stack([embedded(encoder, ids) for ids in found.tokens])
    vectors = nn.functional.normalize(vectors, dim=1).detach().double()
    angles = (vectors @ vectors.T).clamp(-1, 1).arccos().numpy()
    assert seen["distance gap"] == pytest.approx(angles[~np.eye(8, dtype=bool)].mean(), rel=1e-3)
    assert seen["alignment"] == pytest.approx(0, abs=1e-6)  # without dropout both views are equal
    encoder.set_dropout(0.5)
    first, second = (found.probe(whole, 0) for _ in range(2))
    assert first == second  # the same dropout each time
    assert first["alignment"] > 0.01


def test_held_out_sentences_must_exist_and_have_an_objective_without_labels(tiny_encoder, data):
    rows = load_rows(load_tasks(data)["similarity"], "dev")
    dev = SentenceEncoder.read(tiny_encoder).tokenised(rows)
    for objective, count, said in (("infonce", 10_000, "different sentences"), ("cosine", 8, "learns from labels")):
        with pytest.raises(InputError, match=said):
            HeldOut(dev, build_objective(objective), count)
    with pytest.raises(InputError, match="probe_held_out"):
        replace(CONFIG, probe_held_out=8)


# With masked language modelling beside.


def test_masked_words_are_asked_for_in_the_same_sentences_each_read_once(pretraining):
    problem = pretraining(replace(CONFIG, sources=("unlabelled", "nli"), mlm_weight=0.1))
    for update in problem.plan(0):
        contrastive, masked = update
        assert masked.source == f"{contrastive.source} mlm"
        assert contrastive.rows.tolist() == masked.rows.tolist()
    for name, views in (("unlabelled", 2), ("nli", 1)):  # unlabelled sentences make two views, triplets none
        lengths = problem.contrastive[name].lengths
        assert (problem.sources[f"{name} mlm"].lengths * views == lengths).all()
    assert "mlm" not in pretraining(CONFIG).module
    assert {len(update) for update in pretraining(CONFIG).plan(0)} == {1}


def test_auxiliary_loss_adds_its_weighted_gradient(pretraining):
    name = "unlabelled"
    config = replace(CONFIG, sources=(name,), mlm_weight=0.3)
    problem = pretraining(config, dropout=0.0)
    update = problem.plan(0)[0]
    torch.manual_seed(3)
    losses = problem.backward(update)
    total = gradients(problem.module)
    problem.losses(update[:1]).terms[name].backward()
    alone = gradients(problem.module)
    torch.manual_seed(3)  # the same masks: without dropout nothing else draws
    inputs = problem.sources[f"{name} mlm"].inputs(update[1].rows)
    encoder, head = problem.encoder.model, problem.module["mlm"]
    states = [encoder(torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0] for ids in inputs.ids]
    places, words = inputs.targets
    scores = head(torch.cat(states)[places], encoder.embeddings.word.weight)
    masked_loss = nn.functional.cross_entropy(scores, words)
    (0.3 * masked_loss).backward()
    beside = gradients(problem.module)
    torch.testing.assert_close(losses.terms[f"{name} mlm"], masked_loss.detach(), rtol=1e-5, atol=1e-6)
    assert total.keys() == alone.keys() | beside.keys()
    assert {key.split(".")[0] for key in beside} == {"encoder", "mlm"}
    for key, gradient in total.items():
        expected = alone.get(key, 0.0) + beside.get(key, torch.zeros_like(gradient))
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_a_tasks_windows_are_read_beside_masked_words_too(problem, tmp_path):
    columns = {"text": ["time " * n + "band" for n in range(9, 90)], "label": np.arange(9, 90) % 2}
    own = {"kind": "classification", "text": "text", "label": "label", "long": "windows"}
    config = replace(CONFIG, sources=("own",), mlm_weight=0.3, max_length=16, encoder_dropout=0.0, pooling="mean")
    found = problem(pretrain, config, data=tasks_file(tmp_path, columns, own=own))
    update = found.plan(0)[0]
    assert found.contrastive["own"].lengths[update[0].rows].max() > 2 * 16 * 4
    assert found.encoder.packed(found.contrastive["own"].inputs(update[0].rows).ids)[0].offsets.diff().max() == 16
    both, alone = found.losses(update), found.losses(update[:1])  # of all states, and of embeddings alone
    torch.testing.assert_close(both.terms["own"], alone.terms["own"])
    assert both.tokens == 1.5 * alone.tokens  # the two views of a text, and the text once more


def test_chunks_do_not_change_the_gradient_of_the_auxiliary_loss(pretraining, monkeypatch):
    def some_words(source: MaskedSource, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = ((ids % 3 == 0) & ~torch.isin(ids, source.special)).nonzero().squeeze(1)
        return ids.index_fill(0, places, source.tokenizer.mask_token_id), places

    monkeypatch.setattr(MaskedSource, "mask", some_words)
    config = replace(CONFIG, sources=("nli",), batch_size=14, mlm_weight=0.3)
    found, losses = [], []
    for chunk in (None, 4):
        problem = pretraining(replace(config, chunk=chunk), dropout=0.0)
        losses.append(problem.backward(problem.plan(0)[0]))
        found.append(gradients(problem.module))
    assert losses[0].tokens == losses[1].tokens
    for name, term in losses[0].terms.items():
        torch.testing.assert_close(losses[1].terms[name], term.detach(), rtol=1e-5, atol=1e-6)
    assert losses[0].watched.keys() == losses[1].watched.keys()
    for name in ("nli mlm words", "nli mlm accuracy"):
        torch.testing.assert_close(losses[1].watched[name], losses[0].watched[name])
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():  # sums over at most 300 tokens in fp32, in another order
        rounding = 300 * 2**-24 * gradient.abs().max().item()
        torch.testing.assert_close(found[1][name], gradient, rtol=0, atol=rounding)


def test_the_auxiliary_loss_begins_with_the_head_of_an_mlm_run_and_keeps_none(run, run_stage, problem):
    begin = run_stage(mlm, MlmConfig(optimizer=CONFIG.optimizer))
    config = replace(CONFIG, mlm_weight=0.1)
    found = problem(pretrain, config, start=begin.folder)
    stored = MaskedLanguageHead.of_checkpoint(begin.model_folder(), found.encoder.model.config).state_dict()
    assert stored["bias"].any()
    assert all(torch.equal(tensor, stored[name]) for name, tensor in found.module["mlm"].state_dict().items())
    folder = run(config, start=begin.folder).model_folder()
    assert not MaskedLanguageHead.of_checkpoint(folder, found.encoder.model.config).bias.any()


@pytest.mark.parametrize(
    ("pairs", "scores", "knows_positives", "measured"),
    [
        ([(0, 1), (2, 3), (1, 2), (0, 1)], [5, 4, 1, 4.5], True, {"alignment", "uniformity"}),
        ([(0, 1), (2, 3)], [3.9, 1], True, {"uniformity"}),
        ([(0, 0), (0, 0)], [5, 4], True, {"alignment"}),
        ([(0, 1), (0, 2)], [1, 0], False, set()),
    ],
    ids=["all", "without positive pairs", "with one sentence", "with scores of no similarity"],
)
def test_alignment_is_of_similar_pairs_and_uniformity_of_different_sentences(
    pairs, scores, knows_positives, measured, tiny_encoder
):
    texts = ["A film.", "A movie.", "A dog.", "Two cats run."]
    columns = tuple([texts[pair[side]] for pair in pairs] for side in (0, 1))
    examples = Examples(columns, np.float32(scores), (), None, "dev.csv")
    tiny = SentenceEncoder.read(tiny_encoder, "mean")
    with torch.no_grad():
        positive = examples.gold >= 4 if knows_positives else None
        found = metrics_of_embeddings(tiny, tiny.tokenised(examples), positive)
    assert found.keys() == {"pearson", "spearman", *measured}
    unit = dict(zip(texts, tiny.encode(texts, normalize=True), strict=True))
    if "alignment" in measured:
        near = [
            np.square(unit[one] - unit[other]).sum() for one, other, s in zip(*columns, scores, strict=True) if s >= 4
        ]
        assert found["alignment"] == pytest.approx(np.mean(near), rel=1e-3, abs=1e-6)
    if "uniformity" in measured:
        spread = [math.exp(-2 * np.square(one - other).sum()) for one, other in combinations(unit.values(), 2)]
        assert found["uniformity"] == pytest.approx(math.log(np.mean(spread)), abs=1e-4)


# From a fine-tuned model.


def test_heads_are_kept_as_they_are_beside_the_new_encoder(run, tuned):
    artefact = run(CONFIG, start=tuned.folder)
    before, after = tuned.model_folder(), artefact.model_folder()
    for name in ("multitask.json", "heads.safetensors"):
        assert (after / name).read_bytes() == (before / name).read_bytes()
    old, new = MultitaskModel.load(before, keep_layers=True), MultitaskModel.load(after, keep_layers=True)
    assert not torch.equal(old.encoder.model.layers[0].output.weight, new.encoder.model.layers[0].output.weight)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_a_length_that_the_start_stores_does_not_cut_training_texts_into_pieces(momentum, problem, tuned, tmp_path):
    config = replace(CONFIG, sources=("nli",), encoder_dropout=0.0, momentum=momentum)
    losses = []
    for stored in (None, 8):
        start = tmp_path / str(stored)
        shutil.copytree(tuned.model_folder(), start)
        described = json.loads((start / "multitask.json").read_text())
        (start / "multitask.json").write_text(json.dumps(described | {"max_length": stored}))
        found = problem(pretrain, config, start=start)
        assert found.saved.max_length == (stored or found.encoder.tokenizer.max_length)
        losses.append(found.losses(found.plan(0)[0]).terms["nli"].item())
    assert losses[0] == losses[1]


def test_heads_that_read_another_pooling_are_left_out(run, tuned):
    artefact = run(replace(CONFIG, pooling="cls"), start=tuned.folder)
    assert not {path.name for path in artefact.model_folder().iterdir()} & {"multitask.json", "heads.safetensors"}
    with pytest.raises(InputError, match="not a fine-tuned model"):
        MultitaskModel.load(artefact.model_folder())
    assert resolve_pooling("auto", artefact.model_folder()) == "cls"


def test_frozen_embeddings_stay_and_the_layers_learn(run, tiny_encoder):
    config = replace(CONFIG, freeze_embeddings=True, optimizer=OptimizerConfig(learning_rate=1e-3))
    trained = load_file(run(config).model_folder() / "model.safetensors")
    start = load_file(tiny_encoder / "model.safetensors")
    changed = {name for name in trained if not torch.equal(trained[name], start[name])}
    assert changed
    assert not {name for name in changed if "embeddings." in name}


@pytest.mark.parametrize("columns", [1, 2])
def test_equal_rows_teach_nothing_and_say_so_once(columns, run, tmp_path, caplog):
    """Their duplicates are no negatives, so the gradient is 0 in every step; a row more, and it is not."""
    for more, said in (([], 1), (["another line"], 0)):
        if columns == 1:
            (tmp_path / "lines.txt").write_text("\n".join(["a line"] * 16 + more) + "\n")
        else:
            rows = ["sentence1,sentence2", *["a line,its like"] * 16, *(f"{text},{text}" for text in more)]
            (tmp_path / "lines.csv").write_text("\n".join(rows) + "\n")
        caplog.clear()
        source = "lines.txt" if columns == 1 else "lines.csv"
        line = run(replace(CONFIG, sources=(source,), batch_size=17), folder=f"{said}", data=tmp_path).history()[-1]
        assert (line["training"]["gradient"] == 0) == bool(said)
        warned = [message for message in caplog.messages if "learned" in message]
        assert [message.partition(":")[0] for message in warned] == [f"nothing was learned from {source}"] * said


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "mlm"])
def test_a_collapsed_encoder_is_told_from_one_with_near_embeddings(stage, problem):
    """The last norm's gain decides how far embeddings are apart: at 0 they are all its bias."""
    stages = {"pretrain": (pretrain, CONFIG), "mlm": (mlm, MlmConfig(max_length=20))}
    stages["finetune"] = (finetune, FinetuneConfig(("sentiment", "similarity"), max_length=20))
    found = problem(*stages[stage])
    found.module.eval()
    norm = found.encoder.model.layers[-1].output_norm
    with torch.no_grad():
        assert found.fault() == ""
        norm.bias += 1
        norm.weight.mul_(0.05)
        assert found.fault() == ""
        norm.weight.zero_()
        assert found.fault().startswith("the encoder has collapsed")


@pytest.fixture
def own_pairs(tmp_path) -> Path:
    """A tasks file: pairs with two classes, which as numbers are similarities; pairs with three; and sentences."""
    texts = [f"Sentence {word} about {topic}." for word in ("one", "two", "three") for topic in ("rain", "music")]
    rows = [(a, b, a[-6:] == b[-6:], "nec"[place % 3]) for place, (a, b) in enumerate(combinations(texts, 2))]
    first, second, same, nli = zip(*rows, strict=True)
    pair = {"text": ["a", "b"]}
    return tasks_file(
        tmp_path,
        {"a": first, "b": second, "same": np.where(same, "yes", "no"), "near": np.int64(same), "nli": nli},
        same={"kind": "pair_classification", "label": "same", "labels": ["no", "yes"], **pair},
        nli={"kind": "pair_classification", "label": "nli", **pair},
        unnamed={"kind": "pair_classification", "label": "same", **pair},
        near={"kind": "cosine", "label": "near", **pair},
        topic={"kind": "classification", "text": "a", "label": "nli"},
    )


@pytest.mark.parametrize("select", ["same", "unnamed", None])
def test_pairs_of_two_classes_or_the_first_pairs_with_similarities_select(run, own_pairs, select, caplog):
    name = select or "near"
    # The saved model reads whole sentences, so they are what is scored, although the training reads their beginnings.
    artefact = run(replace(CONFIG, sources=("same",), select=select, epochs=2, max_length=5), data=own_pairs)
    lines = [line["scores"][name] for line in artefact.history()]
    assert len(lines) == 2
    alike = f'{select}: alike pairs count as "yes", the second label'
    assert [line for line in caplog.messages if "alike" in line] == ([alike] if select else [])
    best = json.loads((artefact.folder / "best.json").read_text())
    assert list(best) == [name]
    encoder = SentenceEncoder.load(artefact.folder, device="cpu", precision="fp32")
    rows = pandas.read_csv(own_pairs.parent / "rows.csv")
    first, second = (encoder.encode(list(rows[column]), normalize=True) for column in "ab")
    expected = spearmanr((first * second).sum(axis=1), rows["near"]).statistic
    assert max(lines) == pytest.approx(expected, abs=1e-6)


def test_a_retrieval_set_of_ones_own_selects(run, own_pairs):
    (own_pairs.parent / "faq" / "qrels").mkdir(parents=True)
    texts = {"corpus": [" ".join(words) for words in product(["good", "time", "band"], repeat=4)]}
    texts["queries"] = [text.replace("time", "film") for text in texts["corpus"][5::9]]
    for name, lines in texts.items():
        rows = [json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(lines)]
        (own_pairs.parent / "faq" / f"{name}.jsonl").write_text("\n".join(rows))
    judged = own_pairs.parent / "faq" / "qrels" / "dev.tsv"
    rows = "".join(f"{query}\t{9 * query + more}\t{more}\n" for query in range(8) for more in (1, 5, 8))
    judged.write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    config = replace(CONFIG, sources=("same",), select="faq", epochs=3, optimizer=OptimizerConfig(3e-3))
    artefact = run(config, data=own_pairs)
    inputs = json.loads((artefact.folder / "inputs.json").read_text())
    assert inputs["dev"].keys() == {"corpus.jsonl", "queries.jsonl", "qrels/dev.tsv"}
    lines = artefact.history()
    scores = [line["scores"]["retrieval"] for line in lines]
    assert len(set(scores)) == 3
    encoder = SentenceEncoder.load(artefact.folder, device="cpu", precision="fp32")
    found = evaluate_suites(["retrieval"], encoder, "", own_pairs.parent / "faq", split="dev")["retrieval"]
    found = found.tasks["faq"].scores
    assert found["ndcg"] == pytest.approx(max(scores), abs=1e-6)
    assert lines[int(np.argmax(scores))]["dev"]["retrieval"] == pytest.approx(found)
    judged.write_text(judged.read_text() + "0\t0\t1\n")
    assert run(config, data=own_pairs).folder != artefact.folder  # it is another set


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("nli", r"rows\.csv: 3 classes cannot select; expected two"),
        ("topic", r"topic has no pairs with numbers or two classes, .*; name another task of pairs \(same, near\)"),
        (
            "sam",
            r"has no task sam, nor a folder sam with a retrieval set, which the best state is chosen on; name another",
        ),
    ],
)
def test_other_tasks_do_not_select(run, own_pairs, select, problem):
    with pytest.raises(InputError, match=problem):
        run(replace(CONFIG, sources=("same",), select=select), data=own_pairs)
