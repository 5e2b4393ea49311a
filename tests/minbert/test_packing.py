"""Packing only saves time: values and gradients equal those of the padded path, and those of transformers."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from minbert import BertConfig, BertModel, PackedBatch
from minbert.packing import collect, fill_grids, send
from tests.minbert.references import (
    VALUES,
    assert_equal,
    random_reference,
    random_sentences,
    run_packed,
    run_padded,
    transfer,
)

CONFIG = BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
LIMIT = 1e-5

mixed_lengths = st.lists(st.one_of(st.integers(1, 12), st.integers(1, 200)), min_size=1, max_size=10)


def small_model(config: BertConfig = CONFIG) -> BertModel:
    """A model with weights so large that attention is far from uniform."""
    torch.manual_seed(0)
    model = BertModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


WITHOUT_DROPOUT = small_model(replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def sentences_of(lengths: list[int]) -> list[NDArray[np.int64]]:
    return random_sentences(lengths, CONFIG.vocab_size)


def gradients(model: BertModel, hidden: Tensor) -> list[Tensor]:
    probe = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))
    used = [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not name.startswith("pooler")
    ]
    return list(torch.autograd.grad((hidden * probe).sum() / len(hidden), used))


@pytest.mark.parametrize("unpadded", [False, True], ids=["similar lengths", "equal lengths"])
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training without dropout"])
@settings(max_examples=10, deadline=None)
@given(lengths=mixed_lengths)
@example(lengths=[1, 1])
@example(lengths=[7])
@example(lengths=[5, 5, 5, 5])
@example(lengths=[512, 1])
@example(lengths=[3, 512, 1, 40, 41, 8, 9, 300])
@example(lengths=[64, 64, 63, 63, 63, 12, 12, 2])
def test_packed_equals_padded_in_values_and_gradients(training, unpadded, lengths):
    model = WITHOUT_DROPOUT.train(training)
    sentences = sentences_of(lengths)
    padded, packed = run_padded(model, sentences)[0], run_packed(model, sentences, unpadded=unpadded)[0]
    assert (padded - packed).abs().max() < LIMIT
    for theirs, ours in zip(gradients(model, padded), gradients(model, packed), strict=True):
        assert (theirs - ours).abs().max() < LIMIT * max(1, theirs.abs().max())


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 512), min_size=2, max_size=60))
@example(lengths=[1, 1])
@example(lengths=[512] * 3)
def test_plan(lengths):
    """Each block is a grid of whole sentences, one a row, that are masked where they end."""
    sentences = sentences_of(lengths)
    batch = PackedBatch.from_sequences(sentences)
    assert batch.offsets.diff().tolist() == lengths
    # The row of a sentence is at most 1.5 times as wide as the sentence, or at most eight tokens wider.
    assert len(batch.fillers) <= sum(max(1.5 * length, length + 8) for length in lengths)
    owner = torch.full((len(batch.fillers),), -1)
    owner[batch.slots] = batch.sentence_ids
    assert batch.fillers[batch.slots].tolist() == list(range(sum(lengths)))  # so slots are distinct
    rows = []
    sizes = [block.sentences * block.width for block in batch.blocks]
    for block, owners in zip(batch.blocks, owner.split(sizes), strict=True):
        grid = owners.view(block.sentences, block.width)
        assert torch.equal(grid >= 0, torch.ones_like(grid) > 0 if block.mask is None else block.mask[:, 0, 0])
        rows += [row[row >= 0].tolist() for row in grid]
    assert sorted(rows) == [[i] * length for i, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "unpadded", "blocks"),
    [
        ([7], False, [(1, 7)]),
        ([9] * 5, False, [(5, 9)]),
        ([9] * 5, True, [(5, 9)]),
        ([9, 9, 9, 4, 3, 3, 4], True, [(3, 9), (1, 4), (2, 3), (1, 4)]),
    ],
)
def test_blocks_of_equal_lengths_need_no_mask_and_no_padding(lengths, unpadded, blocks):
    batch = PackedBatch.from_sequences(sentences_of(lengths), unpadded=unpadded)
    assert [(block.sentences, block.width, block.mask) for block in batch.blocks] == [(*size, None) for size in blocks]
    assert (batch.slots is None) == (batch.fillers is None) == (unpadded or len(lengths) == 1)


def test_unpadded_attention_has_its_dropout_in_training():
    model = small_model(replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)).train()
    with torch.no_grad():
        first, second = (run_packed(model, sentences_of([5, 5, 3]), unpadded=True)[0] for _ in range(2))
    assert (first - second).abs().max() > 0.1


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_recomputed_layers_give_the_same_bits_and_keep_less(precision):
    batch = PackedBatch.from_sequences(sentences_of([30, 17, 17, 5, 40]))
    model = small_model().train()
    found = []
    for recompute in (False, True):
        kept: list[int] = []

        def keep(tensor: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(tensor.untyped_storage().nbytes())
            return tensor

        torch.manual_seed(1)
        saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with saved, torch.autocast("cpu", precision, enabled=precision != torch.float32):
            hidden = model.forward_packed(batch, recompute)
        found.append((hidden, gradients(model, hidden), torch.rand(1), sum(kept)))
    (hidden, whole, draw, much), (again, recomputed, next_draw, little) = found
    assert torch.equal(hidden, again)
    assert all(torch.equal(*pair) for pair in zip(whole, recomputed, strict=True))
    assert torch.equal(draw, next_draw)  # the generator ends where it would without
    assert little < much / 4


@pytest.mark.parametrize("lengths", [[3, 40, 5], [4, 4]], ids=["padded grids", "one full grid"])
def test_a_batch_on_another_device_is_the_same(lengths):
    batch = PackedBatch.from_sequences(sentences_of(lengths), [np.arange(length) % 2 for length in lengths])
    moved = batch.to(torch.device("cpu:0"))  # another device than `cpu`, with the same memory
    assert moved is not batch
    torch.testing.assert_close(vars(moved) | {"blocks": None}, vars(batch) | {"blocks": None}, rtol=0, atol=0)
    for there, here in zip(moved.blocks, batch.blocks, strict=True):
        assert (there.sentences, there.width) == (here.sentences, here.width)
        torch.testing.assert_close(there.mask, here.mask, rtol=0, atol=0)


@pytest.mark.parametrize(("device", "waits"), [("cuda", False), ("mps", True), ("cpu", False)])
def test_only_copies_to_mps_are_waited_for(device, waits):
    tensor = Mock()
    send(tensor, torch.device(device))
    tensor.to.assert_called_once_with(torch.device(device), non_blocking=not waits)


@pytest.mark.parametrize("first_only", [False, True])
def test_spare_rows_change_no_value_and_no_gradient(first_only, monkeypatch):
    batch = PackedBatch.from_sequences(sentences_of([30, 17, 1, 5, 40]))
    found = []
    for spare in (0, 35):
        monkeypatch.setattr("minbert.model._spare_rows", lambda *_, spare=spare: spare)
        hidden = WITHOUT_DROPOUT.forward_packed(batch, first_only=first_only)
        found.append([hidden, *gradients(WITHOUT_DROPOUT, hidden)])
    for without, with_spare in zip(*found, strict=True):
        assert with_spare.shape == without.shape
        assert (with_spare - without).abs().max() < LIMIT * max(1, without.abs().max())


@pytest.mark.parametrize(
    ("precision", "with_gradient", "training", "rows"),
    [
        (torch.bfloat16, True, False, 128),
        (torch.bfloat16, False, True, 128),
        (torch.bfloat16, False, False, 93),
        (torch.float32, True, True, 93),
    ],
)
def test_trainings_in_bf16_compute_multiples_of_64_rows(precision, with_gradient, training, rows):
    model, batch = small_model(), PackedBatch.from_sequences(sentences_of([30, 17, 1, 5, 40]))
    model.train(training)
    sizes: list[int] = []
    model.layers[0].intermediate.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    bf16 = precision == torch.bfloat16
    with torch.set_grad_enabled(with_gradient), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        assert len(model.forward_packed(batch)) == 93
    assert sizes == [rows]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("frozen", [0, 1])
def test_first_tokens_alone_are_those_of_all_tokens(frozen, recompute):
    model, batch = small_model(), PackedBatch.from_sequences(sentences_of([30, 17, 1, 5, 40]))
    model.freeze(frozen)
    first = model.forward_packed(batch)[batch.offsets[:-1]]
    alone = model.forward_packed(batch, recompute, first_only=True)
    sizes: list[int] = []
    model.layers[-1].intermediate.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    model.forward_packed(batch, first_only=True)
    assert sizes == [len(batch)]
    torch.testing.assert_close(alone, first, rtol=0, atol=LIMIT)
    without_layers = small_model(replace(CONFIG, num_hidden_layers=0))
    assert without_layers.forward_packed(batch, first_only=True).shape == (len(batch), CONFIG.hidden_size)
    for theirs, ours in zip(gradients(model, first), gradients(model, alone), strict=True):
        assert (theirs - ours).abs().max() < LIMIT * max(1, theirs.abs().max())


@settings(max_examples=5, deadline=None)
@given(size=st.integers(1, 12), seed=st.integers(0, 1000), data=st.data())
def test_fill_and_collect_are_indexing(size, seed, data):
    count = data.draw(st.integers(1, size))
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(size, generator=generator)[:count]
    fillers = torch.randint(count, (size,), generator=generator)
    fillers[slots] = torch.arange(count)
    tokens = torch.randn(count, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    grid = torch.randn(size, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    unmasked = torch.zeros(size, 1, 1, dtype=torch.float64)
    unmasked[slots] = 1

    def fill(tokens: Tensor) -> Tensor:
        return fill_grids(tokens, slots, fillers) * unmasked

    assert torch.equal(fill_grids(tokens, slots, fillers), tokens[fillers])
    assert torch.equal(collect(grid, slots), grid[slots])
    assert torch.autograd.gradcheck(fill, tokens)
    assert torch.autograd.gradcheck(lambda x: collect(x, slots), grid)


# The encoder computes what transformers computes, in value and gradient; the limits are those of fp32.


SHAPES = {  # family, layers, width, heads, intermediate, positions, token types
    ("bert", 1, 32, 2, 64, 64, 2): (1, 2, 3, 17, 40, 41, 64),
    ("bert", 3, 60, 6, 100, 80, 3): (1, 2, 3, 17, 40, 41, 64),
    ("bert", 5, 96, 4, 384, 512, 2): (512, 1, 30, 200),
    ("roberta", 2, 40, 5, 72, 66, 1): (1, 2, 3, 17, 40, 41, 64),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_shapes_equal_transformers(shape):
    reference = random_reference(*shape)
    sentences = random_sentences(SHAPES[shape], reference.config.vocab_size)
    types = [np.random.default_rng(0).integers(0, shape[-1], len(sentence)) for sentence in sentences]
    assert_equal(reference, transfer(reference), sentences, types)


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_of_one_token_type_all_tokens_have_it(model_type):
    """RoBERTas with a tokenizer of BERT's class: users of transformers leave the types of pairs out."""
    reference, sentences = random_reference(model_type, 2, 40, 5, 72, 66, 1), random_sentences([4, 7], 101)
    model = transfer(reference)
    expected = run_padded(reference, sentences)
    types = [np.arange(len(sentence)) // 3 for sentence in sentences]
    for run in (run_padded, run_packed):
        for value, theirs in zip(run(model, sentences, types), expected, strict=True):
            assert (value - theirs).abs().max() < VALUES


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
@pytest.mark.parametrize("padding", [0, 1, 7])
def test_padding_tokens_of_a_text_have_the_positions_that_transformers_gives_them(model_type, padding):
    """A text may contain "<pad>"; some RoBERTas have as pad_token_id another token, which many texts have."""
    reference = random_reference(model_type, 2, 40, 5, 72, 66, 1)
    if model_type == "roberta":
        reference.config.pad_token_id = reference.embeddings.padding_idx = padding
    sentences = [np.array(ids) for ids in ([padding, 9, 3], [5, padding, padding, 8, padding, 6], [4, 2], [padding])]
    model, expected = transfer(reference), run_padded(reference, sentences)
    for run in (run_padded, run_packed):
        for value, theirs in zip(run(model, sentences), expected, strict=True):
            assert (value - theirs).abs().max() < VALUES


def test_more_tokens_than_the_encoder_has_positions_are_refused():
    with pytest.raises(ValueError, match="513 tokens exceed the encoder's 512"):
        BertModel(CONFIG)(torch.ones(1, 513, dtype=torch.int64))


def test_initialisation_follows_the_config():
    torch.manual_seed(0)
    model = BertModel(BertConfig(num_hidden_layers=1, initializer_range=0.05))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1.0 if name.endswith("weight") else 0.0)).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.05), name


def test_set_dropout_replaces_every_dropout():
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)).train()
    ids = torch.arange(1, 13).view(2, 6)
    assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.set_dropout(0.0)
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    assert model.config.hidden_dropout_prob == 0.1
