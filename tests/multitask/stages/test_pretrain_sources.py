"""What pre-training reads, and which rows of a source are compared, against brute force."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from minbert.errors import InputError
from minbert.tokenizer import load_tokenizer
from multitask.base.choices_with_parameters import validated
from multitask.data.contamination import hash_sentences
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import OBJECTIVES, Objective, build_objective
from multitask.stages.pretrain import pretrain
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows, load_training_rows
from multitask.tasks.sources import pairs_of_labels
from multitask.training.contrastive_source import ContrastiveSource, load_contrastive
from multitask.training.settings import NegativesConfig, ObjectiveConfig, OptimizerConfig
from tests.multitask.declared import tasks_file

CONFIG = PretrainConfig(batch_size=8, select="last", optimizer=OptimizerConfig(learning_rate=1e-3))


@pytest.fixture
def load(data, tiny_encoder):
    """Load a source by name."""

    def call(name: str, config: PretrainConfig = CONFIG, data: Path = data) -> ContrastiveSource:
        encoder = SentenceEncoder.read(tiny_encoder, max_length=config.max_length)
        return load_contrastive(name, data, config, encoder, nn.Identity(), config.train_limit, config.partners)

    return call


def test_sources_hold_the_rows_of_their_files(load, data):
    quora = load_rows(load_tasks(data)["paraphrase"], "train")
    positives = int((quora.labels == 1).sum())
    expected = {"unlabelled": (40, 2), "nli": (40, 3), "pairs": (40, 2), "quora": (64, 2), "sentiment": (64, 2)}
    expected |= {"paraphrase": (128, 2), "similarity": (128, 2)}
    for name, (rows, columns) in expected.items():
        source = load(name)
        assert (len(source), len(source.columns)) == (rows, columns), name
    kept = load("quora", replace(CONFIG, sources=("quora",), negative_pairs="left_out"))
    assert (len(kept), kept.labels, kept.objective.name) == (positives, None, "infonce")
    labelled = load("quora", replace(CONFIG, sources=("quora",), negative_pairs="literal"))
    assert (labelled.objective.name, labelled.objective.form) == ("quora_pairs", "literal")
    assert labelled.labels.tolist() == quora.labels.tolist()
    scored = load("quora", replace(CONFIG, objective=ObjectiveConfig("cosent")))
    assert (scored.objective.name, scored.labels.tolist()) == ("cosent", quora.labels.tolist())


def test_texts_that_are_cut_or_that_the_tokenizer_cannot_read_are_counted(load, tmp_path, caplog):
    (tmp_path / "own.txt").write_text("It is time. It is over.\n\u1781\n\u1782 \u1783\nIt is.\n", "utf-8")
    load("own.txt", replace(CONFIG, max_length=6), tmp_path)
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "own.txt: cut 1 of 4 texts to 6 tokens (max_length of the training)",
        "own.txt: most tokens of 2 of 4 texts are unknown ([UNK])",
    ]


@pytest.mark.parametrize("partners", [None, 1])
def test_a_tasks_texts_are_read_in_its_words_and_recorded_without(partners, load, tiny_encoder, tmp_path):
    texts = [f"a {what} {i}" for i in range(20) for what in ("film", "good time")]
    topic = {"kind": "classification", "text": "time: {q}", "label": "c"}
    data = tasks_file(tmp_path, {"q": texts, "c": ["x", "y"] * 20}, topic=topic)
    source = load("topic", replace(CONFIG, partners=partners), data)
    ids = load_tokenizer(str(tiny_encoder)).encode([f"time: {text}" for text in texts])
    first, second = ({tuple(column[row]) for row in range(len(source))} for column in source.columns)
    assert second <= first == set(map(tuple, ids))
    assert set(source.sentences[0].tolist()) == set(hash_sentences(texts).tolist())


@pytest.mark.parametrize("bounds", [{"kind": "cosine", "range": [1, 9]}, {"kind": "pair_regression"}], ids=str)
@pytest.mark.parametrize("name", ["cosine", "cosent"])
def test_scored_pairs_are_trained_on_shares_of_their_range(name, bounds, load, tmp_path):
    scores = np.array([2.5, 7, 3, 8, 2, 6, 5, 4])
    columns = {"a": [f"a film {n}" for n in range(8)], "b": [f"a band {n}" for n in range(8)], "score": scores}
    data = tasks_file(tmp_path, columns, scores={"text": ["a", "b"], "label": "score", **bounds})
    source = load("scores", replace(CONFIG, objective=ObjectiveConfig(name)), data)
    low, high = bounds.get("range", (2, 8))
    np.testing.assert_allclose(source.labels, (scores - low) / (high - low), rtol=1e-6)
    assert [len(column) for column in source.columns] == [8, 8]
    views, batch = torch.randn(2, 5, 5), np.arange(2, 7)
    expected = build_objective(name)(*views, labels=torch.from_numpy(source.labels[batch]))
    assert source.loss_of_views(views, batch)[0] == expected


@pytest.mark.parametrize(
    ("source", "objective", "message"),
    [
        ("quora", "vicreg", "negative_pairs is literal, but the objective is vicreg; take bounded, or infonce"),
        ("quora", "cosent", "negative_pairs is literal, but the objective is cosent; take bounded, or infonce"),
        ("unlabelled", "byol", "byol compares with a momentum encoder; add --momentum 0.995 to `pretrain`"),
        ("nli", "byol", "byol cannot use the hard negatives of nli; choose another"),
        ("nli", "blind", "blind cannot use the hard negatives of nli; choose another"),
        ("unlabelled", "cosine", "learns from labels"),
        ("pairs", "cosent", "learns from labels"),
        ("sentiment", "cosent", "no pairs with scores"),
    ],
)
def test_objectives_that_a_source_cannot_serve(source, objective, message, load, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "blind", validated(type("Blind", (Objective,), {"name": "blind"})))
    pairs = {"sources": ("quora",), "negative_pairs": "literal"} if source == "quora" else {}
    with pytest.raises(InputError, match=message):
        load(source, replace(CONFIG, objective=ObjectiveConfig(objective), **pairs))


@pytest.mark.parametrize("name", ["nli", "quora"])
def test_every_loss_learns_from_triplets_and_from_pairs_with_labels_for_equality(name, load):
    views = torch.randn(3 if name == "nli" else 2, 8, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for objective, kind in OBJECTIVES.items():
        if kind.takes_hard_negatives:
            source = load(name, replace(CONFIG, objective=ObjectiveConfig(objective), negative_pairs="bounded"))
            (gradient,) = torch.autograd.grad(source.loss_of_views(views, np.arange(8))[0], views)
            assert gradient.flatten(1).norm(dim=1).all(), objective


LABELLED = [("a", "b", 1), ("c", "d", 0), ("e", "a", 0), ("f", "f", 0), ("g", "h", 1), ("c", "i", 0), ("j", "k", 0)]


@pytest.fixture
def labelled(load, tmp_path):
    lines = ["id\tsentence1\tsentence2\tis_duplicate"]
    lines += [f"{i}\t{first}\t{second}\t{label}" for i, (first, second, label) in enumerate(LABELLED)]
    (tmp_path / "quora-train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lambda objective, **settings: load(
        "quora", replace(CONFIG, objective=ObjectiveConfig.parse(objective), **settings), tmp_path
    )


def random_views(rows: int) -> torch.Tensor:
    return torch.randn(2, rows, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("objective", ["dcl", "mpt", "align_uniform", "vicreg:dissipation=0.9,weight=0.1,ratio=1.5"])
def test_each_sentence_of_a_negative_pair_is_its_own_positive_and_a_negative_of_the_other(objective, labelled):
    source, batch = labelled(objective), np.array([0, 1, 2, 3, 5, 6])
    views, pairs = random_views(len(batch)), []
    for row, u, v in zip(batch, *views, strict=True):
        first, second, label = LABELLED[row]
        pairs += [(first, second, u, v)] if label else [(first, first, u, u), (second, second, v, v)]
    false = torch.zeros(len(pairs), len(pairs), dtype=torch.bool)
    for i, (anchor, positive, *_) in enumerate(pairs):
        for j, (other_anchor, other_positive, *_) in enumerate(pairs):
            false[i, j] = i != j and (other_positive in (anchor, positive) or other_anchor == anchor)
    anchors, positives = (torch.stack([pair[place] for pair in pairs]) for place in (2, 3))
    expected = source.objective(anchors, positives, false_negatives=false)
    torch.testing.assert_close(source.loss_of_views(views.float(), batch)[0].double(), expected, rtol=1e-5, atol=1e-6)


def test_one_negative_pair_has_the_bounded_loss_of_infonce(labelled):
    views, row = random_views(1).float().requires_grad_(), np.array([6])
    losses = [labelled(objective).loss_of_views(views, row)[0] for objective in ("arccon:angle=0", "infonce")]
    assert labelled("infonce").objective.name == "quora_pairs"
    assert labelled("mnrl:scale=20").objective == labelled("infonce").objective
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, views) for loss in losses))


@pytest.mark.parametrize(
    "sampling",
    [NegativesConfig("random", 1), NegativesConfig("hardest", 1), NegativesConfig("unlike", false_negative_cosine=-1)],
    ids=str,
)
def test_negative_pairs_count_whatever_the_other_negatives_are(sampling, labelled):
    source = labelled("mpt", sampling=sampling)
    source.loss_of_views(random_views(7), np.arange(7))
    excluded = source.compared[3]  # of two positive pairs, then of five first and five second sentences
    for row, both in enumerate(zip(range(2, 7), range(7, 12), strict=True)):
        same = row == 2  # its sentences are equal
        assert [excluded[both].item(), excluded[both[::-1]].item()] == [same, same]
    assert excluded.sum() > 12 * 12 / 2


def test_the_literal_form_compares_one_way_and_may_have_the_hardest_negatives(labelled):
    settings = {"sampling": NegativesConfig("hardest", 1)}
    labelled("quora_pairs:form=literal", **settings)
    with pytest.raises(InputError, match="negatives is hardest, but those of quora_pairs are mutual"):
        labelled("infonce", **settings)


def test_false_negatives_against_brute_force(load, tmp_path):
    rows = [("a", "b", "c"), ("a", "d", "b"), ("e", "b", "a"), ("f", "a", "g"), ("f", "h", "h"), ("i", "j", "k")]
    header = "sent0,sent1,hard_neg"
    (tmp_path / "nli_triplets.csv").write_text("\n".join([header, *map(",".join, rows)]) + "\n", encoding="utf-8")
    source = load("nli", data=tmp_path)
    positives, hard = source._duplicates(np.arange(6), torch.device("cpu"))
    for i, (anchor, positive, _) in enumerate(rows):
        for j, (other_anchor, other_positive, other_hard) in enumerate(rows):
            expected = i != j and (other_positive in (anchor, positive) or other_anchor == anchor)
            assert positives[i, j].item() == expected, (i, j)
            assert hard[i, j].item() == (other_hard in (anchor, positive)), (i, j)
    unmasked = load("nli", replace(CONFIG, mask_duplicates=False), tmp_path)
    assert unmasked._duplicates(np.arange(6), torch.device("cpu")) == (None, None)


TAGS = ["a", "b", "c", "a|b", "", "b|c", "", "d"] * 2


def tagged(folder: Path) -> Path:
    """A tasks file: texts with any number of labels or one of two, and pairs with three classes."""
    rows = [(f"time {n}", f"good band {n}", tag, "xy"[n % 2], "enc"[n % 3]) for n, tag in enumerate(TAGS)]
    return tasks_file(
        folder,
        dict(zip(("one", "two", "tags", "topic", "nli"), zip(*rows, strict=True), strict=True)),
        tags={"kind": "multilabel", "text": "one", "label": "tags", "empty": "none"},
        topic={"kind": "classification", "text": "one", "label": "topic"},
        entails={"kind": "pair_classification", "text": ["one", "also {two}"], "label": "nli"},
    )


@pytest.mark.parametrize("partners", [1, 40])
@pytest.mark.parametrize("name", ["tags", "topic"])
def test_partners_share_a_label_and_no_negative_does(name, partners, load, tmp_path):
    task = load_tasks(data := tagged(tmp_path))[name]
    rows = load_training_rows(task)[1].sentences[0]
    tags = dict(zip(rows, TAGS if name == "tags" else "xy" * 8, strict=True))
    examples, _ = pairs_of_labels(task, partners, None)
    pairs = list(zip(*examples.sentences, strict=True))
    assert len(pairs) == 16 * partners
    assert len(pairs_of_labels(task, partners, 9)[0]) == 9 * partners

    def alike(one: str, other: str) -> bool:
        return tags[one] == tags[other] == "" or bool(set(tags[one].split("|")) & set(tags[other].split("|")) - {""})

    assert all(alike(*pair) and pair[0] != pair[1] for pair in pairs)
    if partners == 40:  # everyone meets everyone with a common label
        assert set(pairs) == {(one, other) for one in rows for other in rows if one != other and alike(one, other)}
    source = load(name, replace(CONFIG, partners=partners), data)
    chosen = np.arange(0, len(pairs), partners)
    excluded, _ = source._duplicates(chosen, torch.device("cpu"))
    expected = [[i != j and alike(pairs[i][0], pairs[j][0]) for j in chosen] for i in chosen]
    assert excluded.tolist() == expected


def test_a_queue_of_keys_is_for_rows_of_one_label(run_stage, tmp_path):
    """It could not tell that two rows have one label in common; without it, a batch's mask can."""
    config = replace(CONFIG, sources=("tags",), partners=1, momentum=0.9)
    with pytest.raises(InputError, match=r"momentum's queue is for rows of one label, .*; add --queue-size 0"):
        run_stage(pretrain, config, data=tagged(tmp_path))
    run_stage(pretrain, replace(config, queue_size=0), folder="no queue", data=tmp_path / "tasks.toml")


def test_rows_of_pairs_are_compared_by_the_features_that_heads_read(load, tiny_encoder, tmp_path):
    """Against a slow loop: each sentence encoded alone, InfoNCE of features, negatives of other classes."""
    source = load("entails", replace(CONFIG, partners=3), tagged(tmp_path))
    examples, _ = pairs_of_labels(load_tasks(tmp_path / "tasks.toml")["entails"], 3, None)
    first, partner = (list(zip(*examples.texts[place : place + 2], strict=True)) for place in (0, 2))
    classes = {text: "enc"[int(text.split()[1]) % 3] for text, _ in first}
    assert len(first) == 48
    assert all(classes[one[0]] == classes[other[0]] and one != other for one, other in zip(first, partner, strict=True))
    assert all(one[1].startswith("also good band") for one in first)
    assert len(source.sentences) == 2
    rows = np.arange(0, 48, 5)
    encoder = SentenceEncoder.read(tiny_encoder)
    found, _ = source.loss_of_views(source.project(encoder.embed(source.inputs(rows).ids)), rows)

    def features(pair: tuple[str, str]) -> np.ndarray:
        x, y = encoder.encode(list(pair)).astype(np.float64)
        return np.concatenate([abs(x - y), x * y, x + y])

    losses = []
    for i in rows:
        logits = {}
        for j in rows:
            if i == j or classes[first[i][0]] != classes[first[j][0]]:
                one, other = features(first[i]), features(partner[j])
                logits[j] = one @ other / np.linalg.norm(one) / np.linalg.norm(other) / 0.05
        losses.append(np.log(sum(math.exp(value) for value in logits.values())) - logits[i])
    assert found.item() == pytest.approx(np.mean(losses), abs=1e-4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("similarity", "a cosine has no rows of one label; --partners needs"),
        ("nli", "needs sources that are tasks, not .nli."),
    ],
)
def test_partners_need_a_classification_of_sentences(source, message, run_stage):
    with pytest.raises(InputError, match=message):
        run_stage(pretrain, replace(CONFIG, sources=(source,), partners=2))


def test_the_gate_rate_counts_the_negatives_that_the_loss_has(load):
    config = replace(CONFIG, objective=ObjectiveConfig.of("mpt", margin=0.6))
    views = torch.randn(2, 30, 8, generator=torch.Generator().manual_seed(0))
    rates = {}
    for kept in (1, 29):
        sampling = NegativesConfig("random", kept)
        source = load("unlabelled", replace(config, sampling=sampling, mask_duplicates=False))
        rates[kept] = float(source.loss_of_views(views, np.arange(30))[1]["gate rate"])
    everyone = load("unlabelled", config).objective.gate_rate(*views)
    assert rates[29] == float(everyone)
    assert rates[1] < rates[29]
