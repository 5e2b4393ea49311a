"""Models of transformers with random weights, small checkpoints of them, and comparisons with our encoder."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import BertConfig, RobertaConfig, RobertaModel
from transformers import BertModel as TheirBert
from transformers.utils.logging import disable_progress_bar

from minbert import BertModel, PackedBatch
from minbert.checkpoint import under_their_names
from minbert.errors import InputError

VALUES, GRADIENTS = 1e-5, 1e-4  # limits of fp32
TEXT = (
    "the a two dogs cats ran slowly across wet green field while an unfathomable orchestra rehearsed it's isn't why? "
    "Überraschung naïve e-mail 3.14 2024 — “quoted” (aside) because! chrysanthemums, tokenization"
)

Sequences = Sequence[NDArray[np.integer]]


def random_reference(
    model_type: str, layers: int, width: int, heads: int, intermediate: int, positions: int, token_types: int
) -> nn.Module:
    """A transformers model whose parameters are all random, so that every bias and norm has an effect."""
    classes = {"bert": (BertConfig, TheirBert), "roberta": (RobertaConfig, RobertaModel)}
    config_class, model_class = classes[model_type]
    config = config_class(
        vocab_size=101,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        type_vocab_size=token_types,
        attn_implementation="eager",
    )
    model = model_class(config)
    generator = torch.Generator().manual_seed(layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.1, generator=generator)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1)
    return model.eval()


def random_sentences(lengths: Sequence[int], vocabulary: int) -> list[NDArray[np.int64]]:
    """Token ids of sentences of these lengths, without padding's ids."""
    generator = np.random.default_rng(sum(lengths))
    return [generator.integers(2, vocabulary, length) for length in lengths]


def composed_sentences(count: int) -> list[str]:
    """Sentences of 1 to 400 words, most of them shorter than 40."""
    generator = np.random.default_rng(0)
    lengths = [400, 200, 100, *(40 ** generator.random(count - 3)).astype(int)]
    return [" ".join(generator.choice(TEXT.split(), length)) for length in lengths]


def transfer(reference: nn.Module) -> BertModel:
    """Our model with the reference's weights, read from a saved folder."""
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        return BertModel.from_pretrained(folder)


def run_padded(model: nn.Module, sequences: Sequences, token_types: Sequences | None = None) -> tuple[Tensor, Tensor]:
    """Hidden states of real tokens [total_tokens, hidden] and pooler outputs [sentences, hidden]."""

    def pad(rows: Sequences, value: int) -> Tensor:
        return nn.utils.rnn.pad_sequence([torch.from_numpy(row).long() for row in rows], True, value)

    mask = pad([np.ones(len(sequence)) for sequence in sequences], 0)
    types = None if token_types is None else pad(token_types, 0)
    out = model(pad(sequences, model.config.pad_token_id), attention_mask=mask, token_type_ids=types)
    return out.last_hidden_state[mask.bool()], out.pooler_output


def run_packed(
    model: BertModel, sequences: Sequences, token_types: Sequences | None = None, unpadded: bool = False
) -> tuple[Tensor, Tensor]:
    """The same by the packed path."""
    batch = PackedBatch.from_sequences(sequences, token_types, unpadded)
    hidden = model.forward_packed(batch)
    return hidden, model.pool(hidden[batch.offsets[:-1]])


def assert_equal(
    reference: nn.Module, model: BertModel, sequences: Sequences, token_types: Sequences | None = None
) -> None:
    """Compare both paths with the reference, also in the gradient of a random projection of all their values."""
    theirs = run_padded(reference, sequences, token_types)
    generator = torch.Generator().manual_seed(0)
    probes = [torch.randn(value.shape, generator=generator) for value in theirs]
    reference.zero_grad()
    torch.autograd.backward(theirs, probes)
    for run in (run_padded, run_packed):
        ours = run(model, sequences, token_types)
        for value, expected in zip(ours, theirs, strict=True):
            assert (value - expected).abs().max() < VALUES
        model.zero_grad()
        torch.autograd.backward(ours, probes)
        gradients = under_their_names({name: parameter.grad for name, parameter in model.named_parameters()})
        for name, parameter in reference.named_parameters():
            # The exact gradient of a key's bias is zero, because softmax ignores a constant added to all scores. What
            # we compute is rounding noise, so its error is relative to the gradient of the query's bias.
            scale = reference.get_parameter(name.replace("key.bias", "query.bias")).grad.abs().max()
            assert scale > 0, f"{name} has no gradient to compare"
            assert (parameter.grad - gradients[name]).abs().max() / scale < GRADIENTS, name


# Small checkpoints written by transformers, and helpers that load them with our encoder.


SHAPE = (2, 24, 3, 40, 40, 1)
INDEX = "model.safetensors.index.json"
IDS = torch.randint(2, 101, (3, 9), generator=torch.Generator().manual_seed(0))

disable_progress_bar()


def save_reference(folder: Path, model_type: str = "bert") -> nn.Module:
    reference = random_reference(model_type, *SHAPE)
    reference.save_pretrained(folder)
    return reference


def save_in_several_files(folder: Path) -> nn.Module:
    reference = random_reference("bert", *SHAPE)
    reference.save_pretrained(folder, max_shard_size="20KB")
    return reference


@torch.no_grad()
def outputs(model: nn.Module) -> tuple[Tensor, Tensor]:
    found = model(IDS)
    return found.last_hidden_state, found.pooler_output


def assert_same_outputs(one: nn.Module, other: nn.Module) -> None:
    for x, y in zip(outputs(one), outputs(other), strict=True):
        assert (x - y).abs().max() < 1e-5


def stored_tensors(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def as_pickle(folder: Path, **options: bool) -> None:
    torch.save(stored_tensors(folder), folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


def load_error(name: Path | str, revision: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        BertModel.from_pretrained(str(name), revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)
