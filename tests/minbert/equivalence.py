"""How far the encoder is from transformers' in fp32 evaluation, in value and gradient.

The gradient is that of a random projection of all hidden states and pooler outputs, with respect to every parameter.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

import minbert
from minbert.checkpoint import under_their_names
from minbert.download_checkpoint import BUNDLED, resolve

BATCH = 8
TEXT = (
    "the a two dogs cats ran slowly across wet green field while an unfathomable orchestra rehearsed it's isn't why? "
    "Überraschung naïve e-mail 3.14 2024 — “quoted” (aside) because! chrysanthemums, tokenization"
)

Sequences = Sequence[NDArray[np.integer]]
Inputs = tuple[Sequences, Sequences]  # token ids and token types, one array per sentence
Case = tuple[nn.Module, Inputs]
Run = Callable[..., tuple[Tensor, Tensor]]


def random_reference(
    model_type: str, layers: int, width: int, heads: int, intermediate: int, positions: int, token_types: int
) -> nn.Module:
    """A transformers model whose parameters are all random, so that every bias and norm has an effect."""
    classes = {"bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel)}
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


def random_inputs(reference: nn.Module, lengths: Sequence[int]) -> Inputs:
    """Token ids (without padding's id) and token types of sentences of the given lengths."""
    generator = np.random.default_rng(0)
    types = [generator.integers(0, reference.config.type_vocab_size, length) for length in lengths]
    return random_sentences(lengths, reference.config.vocab_size), types


def composed_sentences(count: int) -> list[str]:
    """Sentences of 1 to 400 words, most of them shorter than 40."""
    generator = np.random.default_rng(0)
    lengths = [400, 200, 100, *(40 ** generator.random(count - 3)).astype(int)]
    return [" ".join(generator.choice(TEXT.split(), length)) for length in lengths]


def transfer(reference: nn.Module) -> minbert.BertModel:
    """Our model with the reference's weights, read from a saved folder."""
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        return minbert.BertModel.from_pretrained(folder)


@torch.no_grad()
def value_differences(reference: nn.Module, model: minbert.BertModel, inputs: Inputs) -> dict[str, tuple[float, float]]:
    """For each path, the largest absolute difference of hidden states at real tokens and of pooler outputs."""
    expected = [run_padded(reference, *batch) for batch in _batches(inputs)]
    differences = {}
    for path, run in PATHS.items():
        pairs = [(theirs, run(model, *batch)) for theirs, batch in zip(expected, _batches(inputs), strict=True)]
        hidden, pooler = (max(_distance(theirs[part], ours[part]) for theirs, ours in pairs) for part in (0, 1))
        differences[path] = hidden, pooler
    return differences


def gradient_differences(reference: nn.Module, model: minbert.BertModel, inputs: Inputs) -> dict[str, float]:
    """For each path, the largest difference of a parameter's gradient, relative to the reference's largest entry."""
    _differentiate(reference, run_padded, inputs)
    differences = {}
    for path, run in PATHS.items():
        _differentiate(model, run, inputs)
        differences[path] = max(_gradient_differences(reference, model))
    return differences


def _differentiate(model: nn.Module, run: Run, inputs: Inputs) -> None:
    model.zero_grad()
    generator = torch.Generator().manual_seed(0)
    for batch in _batches(inputs):
        values = run(model, *batch)
        torch.autograd.backward(values, [torch.randn(value.shape, generator=generator) for value in values])


def _batches(inputs: Inputs) -> Iterator[Inputs]:
    sequences, token_types = inputs
    order = np.argsort([len(sequence) for sequence in sequences])
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        yield [sequences[i] for i in chosen], [token_types[i] for i in chosen]


def random_sentences(lengths: Sequence[int], vocabulary: int) -> list[NDArray[np.int64]]:
    """Token ids of sentences of these lengths, without padding's ids."""
    generator = np.random.default_rng(sum(lengths))
    return [generator.integers(2, vocabulary, length) for length in lengths]


def run_padded(model: nn.Module, sequences: Sequences, token_types: Sequences | None = None) -> tuple[Tensor, Tensor]:
    """Hidden states of real tokens [total_tokens, hidden] and pooler outputs [sentences, hidden]."""

    def pad(rows: Sequences, value: int) -> Tensor:
        return nn.utils.rnn.pad_sequence([torch.from_numpy(row).long() for row in rows], True, value)

    mask = pad([np.ones(len(sequence)) for sequence in sequences], 0)
    types = None if token_types is None else pad(token_types, 0)
    out = model(pad(sequences, model.config.pad_token_id), attention_mask=mask, token_type_ids=types)
    return out.last_hidden_state[mask.bool()], out.pooler_output


def run_packed(
    model: minbert.BertModel, sequences: Sequences, token_types: Sequences | None = None, unpadded: bool = False
) -> tuple[Tensor, Tensor]:
    """The same by the packed path."""
    batch = minbert.PackedBatch.from_sequences(sequences, token_types, unpadded)
    hidden = model.forward_packed(batch)
    return hidden, model.pool(hidden[batch.offsets[:-1]])


PATHS = {"padded": run_padded, "packed": run_packed}


def _distance(theirs: Tensor, ours: Tensor) -> float:
    return (theirs - ours).abs().max().item()


def _gradient_differences(reference: nn.Module, model: minbert.BertModel) -> Iterator[float]:
    ours = under_their_names({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, parameter in reference.named_parameters():
        # The exact gradient of a key's bias is zero, because softmax ignores a constant added to all scores. What we
        # compute is rounding noise, so its error is relative to the gradient of the query's bias.
        measure_by = reference.get_parameter(name.replace("key.bias", "query.bias"))
        scale = measure_by.grad.abs().max().item()
        assert scale > 0, f"{name} has no gradient to compare"
        yield _distance(parameter.grad, ours[name]) / scale


def bundled_case(sentences: Sequence[str]) -> Case:
    """all-MiniLM-L6-v2 in transformers, with the sentences' token ids and types."""
    ids = minbert.load_tokenizer(BUNDLED).encode(sentences)
    reference = BertModel.from_pretrained(resolve(BUNDLED), attn_implementation="eager").eval()
    return reference, (ids, [np.zeros_like(row) for row in ids])


def random_case(*shape: str | int, lengths: Sequence[int] = (1, 2, 3, 17, 40, 41, 64)) -> Callable[[], Case]:
    """A random reference of this shape (see `random_reference`), with random inputs."""

    def build() -> Case:
        reference = random_reference(*shape)
        return reference, random_inputs(reference, lengths)

    return build


RANDOM_CASES = {
    "BERT, 1 layer, width 32": random_case("bert", 1, 32, 2, 64, 64, 2),
    "BERT, 3 layers, width 60": random_case("bert", 3, 60, 6, 100, 80, 3),
    "BERT, 5 layers, width 96": random_case("bert", 5, 96, 4, 384, 512, 2, lengths=(512, 1, 30, 200)),
    "RoBERTa, 2 layers, width 40": random_case("roberta", 2, 40, 5, 72, 66, 1),
}
