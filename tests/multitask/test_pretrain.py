"""Contrastive pre-training: which sentences meet under which loss, and a stage that resumes to the same bits."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from minbert.errors import InputError
from minbert.files import sha256_of_file
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.artefacts import Artefact
from multitask.config import FinetuneConfig, ObjectiveConfig, OptimizerConfig, PretrainConfig, RunOptions
from multitask.contrastive import ContrastiveSource, build_projection, load_contrastive, objective_of
from multitask.datasets.readers import read_examples, read_triplets
from multitask.encoder import SentenceEncoder
from multitask.model import resolve_pooling
from multitask.objectives import build_objective
from multitask.runtime import start
from multitask.stages.common import Start
from multitask.stages.finetune import finetune
from multitask.stages.pretrain import Pretraining, pretrain
from multitask.tasks import TASKS

CONFIG = PretrainConfig(batch_size=8, select="last", optimizer=OptimizerConfig(learning_rate=1e-3))
RUNTIME = start("cpu", "fp32")


@pytest.fixture(scope="module")
def data(small_data: Path, sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small data with a little unlabelled text, triplets and paraphrases."""
    folder = tmp_path_factory.mktemp("contrastive")
    for path in small_data.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for name in ("sentences.txt", "nli_triplets.csv"):
        with (sample_data / name).open(encoding="utf-8", newline="") as file:
            (folder / name).write_text("".join(islice(file, 41)), encoding="utf-8", newline="")
    triplets = read_triplets(folder / "nli_triplets.csv")
    lines = ["sentence1\tsentence2", *map("\t".join, zip(triplets.anchors, triplets.positives, strict=True))]
    (folder / "positive_pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def load(name: str, data: Path, tiny: Path, config: PretrainConfig = CONFIG) -> ContrastiveSource:
    return load_contrastive(name, data, config, load_tokenizer(str(tiny)), nn.Identity())[0]


def stage(tiny: Path, data: Path, config: PretrainConfig, dropout: float | None = None) -> Pretraining:
    torch.manual_seed(0)
    encoder = BertModel.from_pretrained(str(tiny))
    if dropout is not None:
        encoder.set_dropout(dropout)
    projection = build_projection(config.projection, 32)
    module = nn.ModuleDict({"encoder": encoder, "projection": projection}).train()
    tokenizer = load_tokenizer(str(tiny))
    sources = {n: load_contrastive(n, data, config, tokenizer, projection)[0] for n in config.sources}
    begin = Start("tiny", tiny, encoder, tokenizer, "mean")
    return Pretraining(module, begin, sources, None, config, RUNTIME)


def run(tiny: Path, data: Path, runs: Path, config: PretrainConfig = CONFIG, **options) -> Artefact:
    return pretrain(str(tiny), data, config, RunOptions(device="cpu", precision="fp32", runs=runs, **options))


def text(source: ContrastiveSource, tiny: Path, column: int, row: int) -> str:
    return load_tokenizer(str(tiny)).backend.decode(source.columns[column][row].tolist())


def test_sources_hold_the_rows_of_their_files(data: Path, tiny_encoder: Path) -> None:
    quora = read_examples(data / "quora-train.csv", TASKS["paraphrase"].schema, labelled=True)
    positives = int((quora.labels == 1).sum())
    expected = {"unlabelled": (41, 2), "nli": (40, 3), "pairs": (40, 2), "quora": (64, 2), "sentiment": (64, 2)}
    expected |= {"paraphrase": (128, 2), "similarity": (128, 2)}
    for name, (rows, columns) in expected.items():
        source = load(name, data, tiny_encoder)
        assert (len(source), len(source.columns)) == (rows, columns), name
    kept = load("quora", data, tiny_encoder, replace(CONFIG, negative_pairs="left_out"))
    assert (len(kept), kept.labels, kept.objective.name) == (positives, None, "infonce")
    labelled = load("quora", data, tiny_encoder, replace(CONFIG, negative_pairs="literal"))
    assert (labelled.objective.name, labelled.objective.form) == ("quora_pairs", "literal")
    assert labelled.labels.tolist() == quora.labels.tolist()


def test_pairs_left_out_are_not_found_in_the_token_cache_of_all_pairs(data: Path, tiny_encoder: Path) -> None:
    limited = replace(CONFIG, train_limit=20)
    everything = load("quora", data, tiny_encoder, limited)
    positives = load("quora", data, tiny_encoder, replace(limited, negative_pairs="left_out"))
    assert len(everything) == len(positives) == 20
    first = [[tokens[row].tolist() for row in range(20)] for tokens in (everything.columns[0], positives.columns[0])]
    assert first[0] != first[1]


@pytest.mark.parametrize(
    ("source", "objective", "message"),
    [
        ("quora", "vicreg", "negative pairs go with infonce, not vicreg"),
        ("unlabelled", "cosine", "cosine learns from labels, which unlabelled does not have"),
        ("mood", "infonce", 'unknown source "mood"'),
    ],
)
def test_objectives_that_a_source_cannot_serve(
    source: str, objective: str, message: str, data: Path, tiny_encoder: Path
) -> None:
    with pytest.raises(InputError, match=message):
        load(source, data, tiny_encoder, replace(CONFIG, objective=ObjectiveConfig(objective)))


def test_triplets_keep_their_columns_in_order(data: Path, tiny_encoder: Path) -> None:
    triplets = read_triplets(data / "nli_triplets.csv")
    source, tokenizer = load("nli", data, tiny_encoder), load_tokenizer(str(tiny_encoder))
    rows = np.array([5, 0, 17])
    columns = (triplets.anchors, triplets.positives, triplets.hard_negatives)
    expected = [ids for column in columns for ids in tokenizer.encode([column[row] for row in rows])]
    assert [ids.tolist() for ids in source.inputs(rows).ids] == [ids.tolist() for ids in expected]


def test_false_negatives_against_brute_force(tiny_encoder: Path, tmp_path: Path) -> None:
    rows = [("a", "b", "c"), ("a", "d", "b"), ("e", "b", "a"), ("f", "a", "g"), ("f", "h", "h"), ("i", "j", "k")]
    header = "sent0,sent1,hard_neg"
    (tmp_path / "nli_triplets.csv").write_text("\n".join([header, *map(",".join, rows)]) + "\n", encoding="utf-8")
    source = load("nli", tmp_path, tiny_encoder)
    positives, hard = source._duplicates(np.arange(6), torch.device("cpu"))
    for i, (anchor, positive, _) in enumerate(rows):
        for j, (other_anchor, other_positive, other_hard) in enumerate(rows):
            expected = i != j and (other_positive in (anchor, positive) or other_anchor == anchor)
            assert positives[i, j].item() == expected, (i, j)
            assert hard[i, j].item() == (other_hard in (anchor, positive)), (i, j)
    unmasked = load("nli", tmp_path, tiny_encoder, replace(CONFIG, mask_duplicates=False))
    assert unmasked._duplicates(np.arange(6), torch.device("cpu")) == (None, None)


@pytest.mark.parametrize("name", ["unlabelled", "nli", "quora"])
def test_loss_is_the_objective_on_each_sentence_encoded_alone(name: str, data: Path, tiny_encoder: Path) -> None:
    config = replace(CONFIG, sources=(name,), projection="mlp")
    problem = stage(tiny_encoder, data, config, dropout=0.0)
    (update, *_) = problem.plan(0)
    rows, source = update[0].rows, problem.contrastive[name]
    projection = problem.module["projection"]

    def alone(column: int, row: int) -> torch.Tensor:
        ids = torch.from_numpy(source.columns[column][row].astype(np.int64))[None]
        return projection(problem.begin.encoder(ids).last_hidden_state.mean(dim=1))[0]

    views = [torch.stack([alone(column, row) for row in rows]) for column in range(len(source.columns))]
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


def test_two_views_differ_by_dropout_only(data: Path, tiny_encoder: Path) -> None:
    with_dropout = stage(tiny_encoder, data, CONFIG)
    update = with_dropout.plan(0)[0]
    assert 0 < with_dropout.losses(update).watched["unlabelled alignment"] < 4
    without = stage(tiny_encoder, data, CONFIG, dropout=0.0)
    assert without.losses(update).watched["unlabelled alignment"] == pytest.approx(0, abs=1e-9)


def test_chunks_change_memory_and_not_the_gradient(data: Path, tiny_encoder: Path) -> None:
    config = replace(CONFIG, sources=("nli",), batch_size=14)
    gradients = []
    for chunk in (None, 4):
        problem = stage(tiny_encoder, data, replace(config, chunk=chunk), dropout=0.0)
        losses = problem.backward(problem, problem.plan(0)[0])
        gradients.append({name: p.grad for name, p in problem.module.named_parameters() if p.grad is not None})
        assert losses.tokens == sum(problem.contrastive["nli"].lengths[problem.plan(0)[0][0].rows])
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-5, atol=1e-6)


def test_epochs_take_the_sources_in_order_and_a_share_of_quora(data: Path, tiny_encoder: Path) -> None:
    config = replace(CONFIG, sources=("quora", "sentiment", "similarity"), quora_share=0.25)
    problem = stage(tiny_encoder, data, config)
    epochs = [problem.plan(epoch) for epoch in range(4)]
    names = [batch.source for (batch,) in epochs[0]]
    assert names == ["quora"] * 2 + ["sentiment"] * 8 + ["similarity"] * 16
    quora = [row for epoch in epochs for (batch,) in epoch if batch.source == "quora" for row in batch.rows]
    assert sorted(quora) == list(range(64))  # four quarters see every pair once


def test_objective_parameters_reach_the_objective() -> None:
    config = ObjectiveConfig("vicreg", uniformity_weight=1.0, dissipation=0.3, weight=0.05, ratio=1.5)
    assert objective_of(config) == build_objective(
        "vicreg", uniformity_weight=1.0, dissipation=0.3, weight=0.05, ratio=1.5
    )
    with pytest.raises(InputError, match='infonce has no parameter "margin"'):
        objective_of(ObjectiveConfig("infonce", margin=0.3))


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_resumed_run_ends_in_the_same_bits(
    cut: int, data: Path, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, select="similarity", evaluate_every=2, chunk=3)
    whole = run(tiny_encoder, data, tmp_path / "whole", config)
    backward, calls = Pretraining.backward, []

    def failing(self, trainable, update):
        calls.append(update)
        if len(calls) == cut + 1:
            raise KeyboardInterrupt
        return backward(self, trainable, update)

    monkeypatch.setattr(Pretraining, "backward", failing)
    with pytest.raises(KeyboardInterrupt):
        run(tiny_encoder, data, tmp_path / "cut", config, save_every=0.0)
    monkeypatch.setattr(Pretraining, "backward", backward)
    resumed = run(tiny_encoder, data, tmp_path / "cut", config, save_every=0.0)
    weights = [sha256_of_file(artefact.model_folder() / "model.safetensors") for artefact in (whole, resumed)]
    assert weights[0] == weights[1]
    assert [line["scores"] for line in whole.history()] == [line["scores"] for line in resumed.history()]


def test_kept_encoder_has_the_recorded_score_and_starts_a_fine_tuning(
    data: Path, tiny_encoder: Path, tmp_path: Path
) -> None:
    artefact = run(tiny_encoder, data, tmp_path, replace(CONFIG, select="similarity", pooling="mean", epochs=2))
    best = max(line["scores"]["similarity"] for line in artefact.history())
    assert resolve_pooling("auto", artefact.model_folder()) == "mean"
    encoder = SentenceEncoder.load(artefact.folder, device="cpu", precision="fp32")
    dev = read_examples(data / "sts-dev.csv", TASKS["similarity"].schema, labelled=True)
    first, second = (encoder.encode(column, normalize=True) for column in dev.sentences)
    assert spearmanr((first * second).sum(1), dev.labels).statistic == pytest.approx(best, abs=1e-3)
    options = RunOptions(device="cpu", precision="fp32", runs=tmp_path)
    config = FinetuneConfig(epochs=1, epoch_size=16, optimizer=CONFIG.optimizer)
    tuned = finetune(str(artefact.folder), data, config, options)
    from_plain = finetune(str(tiny_encoder), data, config, options)
    assert tuned.folder != from_plain.folder


def test_training_raises_the_contrast_on_what_it_trains_on(data: Path, tiny_encoder: Path, tmp_path: Path) -> None:
    config = replace(CONFIG, sources=("pairs",), epochs=20, projection="none", optimizer=OptimizerConfig(5e-3))
    history = run(tiny_encoder, data, tmp_path, config).history()
    assert history[-1]["training"]["pairs"] < 0.7 * history[0]["training"]["pairs"]
