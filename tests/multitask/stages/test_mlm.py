"""Masked-language-model pre-training: what it trains and holds out, and a stage that resumes to the same bits."""

import csv
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM
from transformers.utils.logging import disable_progress_bar

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.masked_language_head import MaskedLanguageHead
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from multitask.base.random_streams import torch_seed
from multitask.data.contamination import hash_sentences
from multitask.data.examples import drawn_rows
from multitask.models.model_folder import resolve_pooling
from multitask.stages import mlm as stage
from multitask.stages.mlm import mlm
from multitask.stages.settings_of_pretraining import MlmConfig, ShapeConfig
from multitask.training.masked_words import MaskedSource
from multitask.training.settings import MaskingConfig, OptimizerConfig
from multitask.training.source import losses_of
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import weights

CONFIG = MlmConfig(batch_size=8, pooling="mean", dev_share=0.2, optimizer=OptimizerConfig(learning_rate=1e-3))
LINES = 40

disable_progress_bar()


@pytest.fixture
def run(run_stage):
    return lambda config=CONFIG, **arguments: run_stage(mlm, config, **arguments)


@pytest.fixture
def begun(problem):
    """What is handed to the training loop."""
    return lambda config=CONFIG, **arguments: problem(mlm, config, **arguments)


def texts(source: MaskedSource) -> list[str]:
    (tokens,) = source.tokens
    return [source.tokenizer.backend.decode(tokens[row].tolist()) for row in range(len(tokens))]


# What is trained on.


def test_different_sentences_are_trained_on_or_held_out(begun, tiny_encoder, data):
    lines = (data / "sentences.txt").read_text(encoding="utf-8").splitlines()
    problem = begun()
    training, dev = texts(problem.training), texts(problem.dev)
    tokenizer = load_tokenizer(str(tiny_encoder))
    assert len(dev) == 8  # a fifth
    assert sorted(training + dev) == sorted(tokenizer.backend.decode(ids.tolist()) for ids in tokenizer.encode(lines))
    assert not set(training) & set(dev)
    for epoch in (0, 1):
        rows = np.concatenate([batch.rows for (batch,) in problem.plan(epoch)])
        assert sorted(rows) == list(range(LINES - 8))
    other_seed = begun(replace(CONFIG, seed=1))
    assert texts(other_seed.dev) == dev


def test_texts_that_the_tokenizer_cannot_read_are_counted(begun, tmp_path, caplog):
    (tmp_path / "own.txt").write_text("A band.\n\u1781\n\u1782 \u1783\nA film.\n", "utf-8")
    begun(replace(CONFIG, sources=("own.txt",), dev_share=0.0), data=tmp_path)
    assert caplog.messages[-1].startswith("own.txt: most tokens of 2 of 4 texts are unknown ([UNK])")


def test_sources_are_read_to_their_limit_and_repeated_sentences_once(begun, data):
    config = replace(CONFIG, sources=("similarity", "sentiment", "similarity"), train_limit=5, dev_share=0.0)
    problem = begun(config)
    expected = []
    for file, columns in (("sts-train.csv", ("sentence1", "sentence2")), ("ids-sst-train.csv", ("sentence",))):
        with (data / file).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        sentences = [row[column] for column in columns for row in rows]
        expected += [sentences[place] for place in drawn_rows(len(sentences), 5)]
    encoded = problem.begin.encoder.tokenizer.encode(sorted(set(expected)))
    found = problem.training.tokens[0]
    assert len(found) == len(encoded)
    assert sorted(found[row].tolist() for row in range(len(found))) == sorted(ids.tolist() for ids in encoded)


def test_texts_are_read_in_their_words_and_recorded_without(begun, tmp_path):
    """The two texts of a pair have different words."""
    films, bands = ([f"a {what} {i}" for i in range(20)] for what in ("film", "band"))
    fit = {"kind": "pair_regression", "text": ["ask: {q}", "told: {a}"], "label": "y"}
    data = tasks_file(tmp_path, {"q": films, "a": bands, "y": np.arange(20) % 5}, fit=fit)
    problem = begun(replace(CONFIG, sources=("fit",), dev_share=0.0), data=data)
    read = [*(f"ask: {text}" for text in films), *(f"told: {text}" for text in bands)]
    tokens = problem.training.tokens[0]
    expected = {tuple(ids) for ids in problem.begin.encoder.tokenizer.encode(read)}
    assert {tuple(tokens[row]) for row in range(len(tokens))} == expected
    assert sorted(problem.sentences["mlm"][0]) == sorted(hash_sentences([*films, *bands]))


# Evaluation.


def test_the_kept_model_has_the_recorded_dev_metrics_in_transformers(run, begun):
    problem, artefact = begun(), run()
    assert resolve_pooling("auto", artefact.model_folder()) == "mean"
    (line,) = artefact.history()
    source = problem.dev
    source.generator = torch.Generator().manual_seed(torch_seed(CONFIG.seed, "masks of held-out sentences"))
    longest_first = np.argsort(-source.lengths, kind="stable")  # one batch: the order in which masks are drawn
    inputs = source.inputs(longest_first)
    model = AutoModelForMaskedLM.from_pretrained(artefact.model_folder()).eval()
    with torch.no_grad():
        logits = torch.cat([model(torch.from_numpy(ids)[None]).logits[0] for ids in inputs.ids])
    places, words = inputs.targets
    loss = torch.nn.functional.cross_entropy(logits[places], words).item()
    accuracy = (logits[places].argmax(1) == words).float().mean().item()
    assert line["dev"]["mlm"]["loss"] == pytest.approx(loss, rel=1e-5)
    assert line["dev"]["mlm"]["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    assert line["dev"]["mlm"]["accuracy"] == pytest.approx(accuracy)
    assert line["scores"] == {"mlm": -line["dev"]["mlm"]["loss"]}


def test_dev_batches_count_by_their_words_to_predict(begun, monkeypatch):
    problem = begun()
    problem.module.eval()
    monkeypatch.setattr(stage, "TOKENS_PER_BATCH", {"cpu": 30})
    source = problem.dev
    source.generator = torch.Generator().manual_seed(torch_seed(CONFIG.seed, "masks of held-out sentences"))
    words, losses = [], []
    for rows in stage.batches_by_tokens(source.lengths, 30):
        update = (stage.Batch("mlm", rows),)
        found = losses_of(problem.encoder, {"mlm": source}, update)
        words.append(found.watched["mlm words"].item())
        losses.append(found.terms["mlm"].item() * words[-1])
    assert len(set(words)) > 1
    assert problem.evaluate().metrics["mlm"]["loss"] == pytest.approx(sum(losses) / sum(words), rel=1e-6)


def test_evaluations_use_no_randomness(run, begun):
    config = replace(CONFIG, epochs=2)
    assert len(run(replace(config, evaluate_every=1)).history()) == 8
    assert len(run(config).history()) == 2
    problem, before = begun(), torch.get_rng_state()
    problem.module.eval()
    assert problem.evaluate() == problem.evaluate()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [({"dev_share": 0.0}, 10), ({"masking": MaskingConfig(1e-6)}, 8)],
    ids=["no sentences", "no words"],
)
def test_without_anything_to_score_the_last_state_is_kept(changes, steps, run):
    artefact = run(replace(CONFIG, epochs=2, **changes))
    assert [line["scores"] for line in artefact.history()] == [{}, {}]
    assert json.loads((artefact.folder / "best.json").read_text()) == {"last": f"step-{steps:07d}"}


# From where to where.


def test_a_second_run_goes_on_with_the_head_of_the_first(run, problem):
    first = run()
    second = problem(mlm, CONFIG, start=first.folder)
    stored = MaskedLanguageHead.of_checkpoint(first.model_folder(), second.begin.encoder.model.config).state_dict()
    assert stored["bias"].any()
    assert all(torch.equal(tensor, stored[name]) for name, tensor in second.head.state_dict().items())


def test_from_scratch_takes_sizes_and_no_weights(run, tiny_encoder, tmp_path):
    shape = ShapeConfig(hidden_size=24, num_hidden_layers=1, num_attention_heads=2)
    config = replace(CONFIG, from_scratch=True, shape=shape)
    artefact = run(config)
    stored = BertConfig.from_file(artefact.model_folder() / "config.json")
    start = BertConfig.from_file(tiny_encoder / "config.json")
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 96}
    expected = replace(start, **sizes)
    assert stored == BertModel.from_pretrained(str(artefact.model_folder())).config == expected
    assert json.loads((artefact.folder / "config.json").read_text())["shape"] == vars(shape)
    other = shutil.copytree(tiny_encoder, tmp_path / "other")
    torch.manual_seed(99)
    BertModel(start).save(other)
    assert weights(run(config, start=other, folder="elsewhere")) == weights(artefact)
    with pytest.raises(InputError, match="shape"):
        MlmConfig(shape=shape)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_from_scratch_in_a_family_has_a_vocabulary_of_the_training_sentences(family, run, tiny_encoder, monkeypatch):
    config = replace(CONFIG, from_scratch=True, shape=ShapeConfig(model_type=family, num_hidden_layers=1))
    seen = []

    def train(family: str, sentences: list[str], size: int, length: int) -> Tokenizer:
        seen.append(sentences)
        return train_tokenizer(family, sentences, size, length)

    monkeypatch.setattr(stage, "train_tokenizer", train)
    artefact = run(config)
    assert len(seen[0]) == len(set(seen[0])) == round(0.8 * LINES)  # not of those that are held out
    folder = artefact.model_folder()
    stored, start = (BertConfig.from_file(path / "config.json") for path in (folder, tiny_encoder))
    tokenizer = load_tokenizer(str(folder))
    assert stored.model_type == family
    assert (stored.hidden_size, stored.num_hidden_layers, stored.max_length) == (start.hidden_size, 1, start.max_length)
    assert stored.vocab_size == tokenizer.vocabulary_size <= start.vocab_size
    assert tokenizer.fingerprint() != load_tokenizer(str(tiny_encoder)).fingerprint()
    assert weights(run(config, start=folder, folder="on")) == weights(artefact)  # of a start only sizes are read


def test_from_scratch_leaves_a_starts_pruning_behind(run, tiny_encoder, tmp_path):
    config = BertConfig.from_file(tiny_encoder / "config.json")
    pruned = shutil.copytree(tiny_encoder, tmp_path / "pruned")
    BertModel(replace(config, layer_heads=(4, 1), layer_intermediate_sizes=(64, 3))).save(pruned)
    shape = ShapeConfig(num_hidden_layers=1)
    stored = run(replace(CONFIG, from_scratch=True, shape=shape), start=pruned).model_folder() / "config.json"
    assert BertConfig.from_file(stored) == replace(config, num_hidden_layers=1)


def test_half_a_sentence_rounds_to_none(begun, tmp_path):
    (tmp_path / "sentences.txt").write_text("one sentence\n", encoding="utf-8")
    found = begun(replace(CONFIG, dev_share=0.5), data=tmp_path)
    assert (len(found.training), len(found.dev)) == (1, 0)
