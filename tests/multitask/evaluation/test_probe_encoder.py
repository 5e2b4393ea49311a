"""Probing a saved model: which texts meet in a batch, and what the command prints and writes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.errors import InputError
from multitask.base.random_streams import generator
from multitask.cli.main import main
from multitask.evaluation.gradient_probe import probe, probe_checkpoint, similar_pairs
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import build_objective

OBJECTIVE = build_objective("met")
SENTENCES = [f"a band of {number} plays" for number in range(20)]


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Path) -> SentenceEncoder:
    return SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")


def test_pairs_are_embedded_without_dropout_in_the_seeds_order(encoder: SentenceEncoder) -> None:
    columns = [SENTENCES[:10], SENTENCES[10:]]
    found = probe_checkpoint(encoder, columns, OBJECTIVE, batch_size=4, seed=3)
    assert len(found) == 2  # two rows are left over
    order = generator(3, "probed sentences").permutation(10)
    for number, components in enumerate(found):
        rows = order[4 * number : 4 * number + 4]
        views = [torch.from_numpy(encoder.encode([column[row] for row in rows])) for column in columns]
        torch.testing.assert_close(components.weights, probe(OBJECTIVE, *views).weights, equal_nan=True)


def test_sentences_differ_from_themselves_by_dropout_only(encoder: SentenceEncoder, tiny_encoder: Path) -> None:
    encoder.model.eval()
    state = torch.get_rng_state()
    objective = build_objective("infonce", temperature=0.5)
    first, again, other = (probe_checkpoint(encoder, [SENTENCES], objective, 8, 2, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert not encoder.model.training
    assert all(torch.equal(x.dissipation, y.dissipation) for x, y in zip(first, again, strict=True))
    assert not torch.equal(first[0].dissipation, other[0].dissipation)
    without = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    without.model.set_dropout(0.0)
    (identical,) = probe_checkpoint(without, [SENTENCES], objective, 20)
    assert not identical.closer.any()  # nothing is nearer than where it is
    assert first[0].closer.any()


def test_texts_that_come_again_are_left_out(encoder: SentenceEncoder) -> None:
    texts = [["one", "two", "one", "three", "four"], ["uno", "due", "eins", "uno", "quattro"]]
    kept = probe_checkpoint(encoder, texts, OBJECTIVE, batch_size=3)[0]
    views = [torch.from_numpy(encoder.encode(column)) for column in (["one", "two", "four"], ["uno", "due", "quattro"])]
    order = generator(0, "probed sentences").permutation(3)
    expected = probe(OBJECTIVE, *(view[order] for view in views))
    torch.testing.assert_close(kept.dissipation, expected.dissipation)
    with pytest.raises(InputError, match="batch_size is 4; expected 2 to 3, the number of different texts"):
        probe_checkpoint(encoder, texts, OBJECTIVE, batch_size=4)


def test_similar_pairs_have_a_gold_similarity_of_four_or_more(sample_data: Path) -> None:
    first, second = similar_pairs(sample_data)
    lines = (sample_data / "sts-dev.csv").read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    rows = [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:]]
    similar = [row for row in rows if float(row["similarity"]) >= 4]
    assert 0 < len(similar) < len(rows)
    assert first == [row["sentence1"].strip() for row in similar]
    assert second == [row["sentence2"].strip() for row in similar]


def test_the_command_prints_and_writes_the_batches(
    tiny_encoder: Path, sample_data: Path, tmp_path: Path, capsys
) -> None:
    output = tmp_path / "probe.json"
    arguments = ["--data", sample_data, "--source", "similar_pairs", "--batch-size", 8, "--batches", 2]
    settings = ["--objective", "mpt:margin=0.5", "--output", output, "--device", "cpu", "--precision", "fp32"]
    assert main([str(argument) for argument in ["probe", "--model", tiny_encoder, *arguments, *settings]]) == 0
    printed = capsys.readouterr().out.splitlines()
    dissipation = [batch["dissipation"] for batch in json.loads(output.read_text())["batches"]]
    assert printed[0] == "mpt(margin=0.5), 2 batches of 8"
    (line,) = [line for line in printed if line.startswith("dissipation ")]
    assert line.split() == ["dissipation", f"{np.mean(dissipation):.4f}", f"{np.std(dissipation):.4f}"]


def test_layers_drop_units_in_every_precision(tiny_encoder: Path) -> None:
    found = {}
    for precision in ("fp32", "bf16"):
        encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision=precision, keep_layers=True)
        batches = probe_checkpoint(encoder, [SENTENCES], build_objective("infonce", temperature=0.5), 10)
        found[precision] = np.array([list(batch.summary().values()) for batch in batches])
    np.testing.assert_allclose(found["bf16"], found["fp32"], rtol=0.1, atol=1e-12)  # the residual is rounding
