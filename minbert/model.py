"""BERT, from scratch, read top to bottom: embeddings, self-attention, layer, encoder.

Notable about this implementation:
- post-norm layers, exact GELU, learned absolute positions; BERT and RoBERTa differ in their config only;
- one set of layers, two input formats: padded `[batch, seq]` and packed `[total_tokens]`, equal in value and gradient;
- queries, keys and values are one matrix product;
- layers may differ in heads and feed-forward size (see `minbert.remove_heads_and_neurons`).

Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", arXiv 1810.04805.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from minbert.attention import attend_in_grid, attend_packed
from minbert.checkpoint import load_weights, save_weights
from minbert.config import BertConfig
from minbert.download_checkpoint import resolve, weights_file
from minbert.dropout import Dropout
from minbert.files import write_json
from minbert.packing import PackedBatch, collect

# In bf16 a processor compiles code for each new number of rows, a sixth of a training's time if all batches differ.
ROWS_OF_PRODUCTS = 64

# From queries, keys and values side by side [..., 3 * width] to contexts [..., width]. The width is heads * head size,
# which is the hidden size unless heads were removed.
Attend = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class BertOutput:
    """The output of the padded path."""

    last_hidden_state: Tensor  # [batch, seq, hidden]
    pooler_output: Tensor  # [batch, hidden]


class Linear(nn.Linear):
    """A linear layer without initial weights: `BertModel` initialises them unless it loads a checkpoint."""

    def reset_parameters(self) -> None: ...


class Embedding(nn.Embedding):
    """An embedding without initial weights, likewise."""

    def reset_parameters(self) -> None: ...


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.position_offset = config.position_offset
        self.uncounted = config.pad_token_id if config.family == "roberta" else None
        self.word = Embedding(config.vocab_size, config.hidden_size)
        self.position = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type = Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        if self.token_type.num_embeddings == 1:  # some RoBERTas have a tokenizer of BERT's class, which tells two types
            token_type_ids = token_type_ids.clamp(max=0)
        if self.uncounted is not None:
            position_ids = self._counted((input_ids == self.uncounted).long(), position_ids)
        hidden = (
            self.word(input_ids) + self.position(position_ids + self.position_offset) + self.token_type(token_type_ids)
        )
        return self.dropout(self.norm(hidden))

    def _counted(self, padding: Tensor, position_ids: Tensor) -> Tensor:
        """RoBERTa's positions: padding tokens, which a text may contain, share one and are not counted."""
        seen = padding.cumsum(-1)
        first = torch.arange(seen.shape[-1], device=seen.device) - position_ids  # the place of each sentence's start
        before = (seen - padding).gather(-1, first)
        return (position_ids - seen + before + 1) * (1 - padding) - 1


class SelfAttention(nn.Module):
    """Multi-head self-attention with its output projection."""

    def __init__(self, config: BertConfig, heads: int) -> None:
        super().__init__()
        width = heads * config.head_size
        self.query_key_value = Linear(config.hidden_size, 3 * width)
        self.output = Linear(width, config.hidden_size)

    def forward(self, hidden: Tensor, attend: Attend, kept: Tensor | None = None) -> Tensor:
        context = attend(self.query_key_value(hidden))
        return self.output(context if kept is None else collect(context, kept))


class Layer(nn.Module):
    """Self-attention and feed-forward network, each with dropout, residual and norm after it.

    A feed-forward network without neurons adds only its output bias.
    """

    def __init__(self, config: BertConfig, heads: int, neurons: int) -> None:
        super().__init__()
        self.attention = SelfAttention(config, heads)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = Linear(config.hidden_size, neurons)
        self.gelu = nn.GELU()
        self.output = Linear(neurons, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, attend: Attend, kept: Tensor | None = None) -> Tensor:
        """States after the layer. `kept` [sentences] int64 are the only tokens whose states are needed, packed."""
        attended = self.attention(hidden, attend, kept)
        hidden = self.attention_norm((hidden if kept is None else collect(hidden, kept)) + self.dropout(attended))
        transformed = self.output(self.gelu(self.intermediate(hidden)))
        return self.output_norm(hidden + self.dropout(transformed))


def _spare_rows(batch: PackedBatch, training: bool) -> int:
    """Rows to add to a batch's tokens: those to the next multiple of `ROWS_OF_PRODUCTS` where products are compiled."""
    # Training without gradients, as gradient caching does first, must draw the same dropout as training with them.
    if not training and not torch.is_grad_enabled():
        return 0
    compiles = batch.input_ids.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return -len(batch.input_ids) % ROWS_OF_PRODUCTS if compiles else 0


class BertModel(nn.Module):
    """The encoder. The constructor initialises weights at random; `from_pretrained` loads a checkpoint."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, heads, neurons) for heads, neurons in config.layer_sizes)
        self.pooler = Linear(config.hidden_size, config.hidden_size)
        self.attention_dropout = config.attention_probs_dropout_prob
        self.frozen = 0  # so many of the lowest layers get no gradient
        # Skip this on meta: weights are loaded next, and initialising would import torch's compiler (1 s).
        if not self.pooler.weight.is_meta:
            self.apply(self._initialise)

    @classmethod
    def from_pretrained(cls, name: str, revision: str | None = None) -> Self:
        """Load weights by name.

        Args:
            name: `all-minilm-l6-v2` (installed with this project), a folder, or a hub id such as `bert-base-uncased`.
            revision: branch, tag or commit of a hub id.

        Raises:
            InputError: no checkpoint has this name, the hub cannot be reached, or the weights do not fit the config.
        """
        folder = resolve(name, revision)
        config = BertConfig.from_file(folder / "config.json")
        with torch.device("meta"):  # allocates no memory for weights that are replaced
            model = cls(config)
        weights = load_weights(model.state_dict(), config.initializer_range, weights_file(folder))
        model.load_state_dict(weights, assign=True)
        return model.eval()

    def save(self, folder: Path, head: Mapping[str, Tensor] | None = None) -> None:
        """Write `config.json` and `model.safetensors` as `from_pretrained` and transformers' AutoModel read them.

        `head` has further tensors by name. transformers knows no layers of different sizes: its AutoModel refuses a
        pruned encoder's folder.
        """
        save_weights(self.state_dict(), folder / "model.safetensors", head)
        write_json(folder / "config.json", self.config.to_dict())

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BertOutput:
        """The padded path.

        Args:
            input_ids: [batch, seq] int64, padded on the right.
            attention_mask: [batch, seq], zero at padding; None if nothing is padded.
            token_type_ids: [batch, seq] int64; None for all zeros.
        """
        batch, seq = input_ids.shape
        self._refuse_beyond_length(seq)
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]  # [batch, 1, 1, seq]
        positions = torch.arange(seq, device=input_ids.device).expand(batch, seq)
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        hidden = self.embeddings(input_ids, positions, types)  # [batch, seq, hidden]
        head_size, dropout = self.config.head_size, self.attention_dropout if self.training else 0.0

        def attend(query_key_value: Tensor) -> Tensor:
            return attend_in_grid(query_key_value, head_size, mask, dropout, self.training)

        for layer in self.layers:
            hidden = layer(hidden, attend)
        return BertOutput(hidden, self.pool(hidden[:, 0]))

    def forward_packed(self, batch: PackedBatch, recompute: bool = False, first_only: bool = False) -> Tensor:
        """The packed path: the hidden states of `forward` at real tokens, computed without padding to a length.

        Args:
            batch: the sequences.
            recompute: keep only each layer's input for the gradient, and compute the layer again in the backward pass
                (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174). Values and
                gradients are the same.
            first_only: the last layer computes the first tokens' states alone, which saves three quarters of its
                products.

        Returns:
            [total_tokens, hidden], in the batch's order; [sentences, hidden] if `first_only`.
        """
        self._refuse_beyond_length(batch.longest)
        hidden = self.embeddings(batch.input_ids, batch.position_ids, batch.token_type_ids)
        total, spare = len(hidden), _spare_rows(batch, self.training)
        if spare:
            hidden = functional.pad(hidden, (0, 0, 0, spare))
        head_size, dropout = self.config.head_size, self.attention_dropout if self.training else 0.0

        def attend(query_key_value: Tensor, dropout: float = dropout) -> Tensor:
            tokens = query_key_value[:total] if spare else query_key_value
            context = attend_packed(tokens, batch, head_size, dropout, self.training)
            return functional.pad(context, (0, 0, 0, spare)) if spare else context

        for number, layer in enumerate(self.layers, start=1):
            kept = batch.offsets[:-1] if first_only and number == len(self.layers) else None
            if number <= self.frozen:
                hidden = layer(hidden, partial(attend, dropout=0.0), kept)
            elif recompute:
                hidden = checkpoint(layer, hidden, attend, kept, use_reentrant=False)
            else:
                hidden = layer(hidden, attend, kept)
        if first_only:
            return hidden if self.layers else collect(hidden, batch.offsets[:-1])
        return hidden[:total] if spare else hidden

    def freeze(self, layers: int) -> None:
        """Keep the embeddings and the lowest layers as they are: without gradient and dropout, on the packed path.

        If these are all layers, the pooler stays, too.
        """
        self.frozen = layers
        for part in (self.embeddings, *self.layers[:layers], *([self.pooler] if layers == len(self.layers) else [])):
            part.requires_grad_(False)
            for module in part.modules():
                if isinstance(module, Dropout):
                    module.p = 0.0

    def set_dropout(self, probability: float) -> None:
        """Replace all dropout probabilities used in training; the config keeps the checkpoint's."""
        self.attention_dropout = probability
        for module in self.modules():
            if isinstance(module, Dropout):
                module.p = probability

    @property
    def has_dropout(self) -> bool:
        """Whether two passes in training mode differ."""
        return self.attention_dropout > 0 or any(part.p > 0 for part in self.modules() if isinstance(part, Dropout))

    def pool(self, first: Tensor) -> Tensor:
        """BERT's pooler: a linear layer and tanh on the first token's state, [batch, hidden] -> [batch, hidden]."""
        return torch.tanh(self.pooler(first))

    def _refuse_beyond_length(self, tokens: int) -> None:
        """Raise ValueError if the position table has fewer rows than a sequence has tokens."""
        if tokens > self.config.max_length:
            raise ValueError(f"{tokens} tokens exceed the encoder's {self.config.max_length}")

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
