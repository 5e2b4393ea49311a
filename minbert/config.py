"""The architecture of an encoder, as in Hugging Face's `config.json`."""

from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from minbert.errors import InputError, OtherArchitectureError
from minbert.files import read_json
from minbert.settings import Share, read_as, settings

ModelType = Literal["bert", "roberta"]
"""The families. A vocabulary can be learned for each."""
Long = Literal["head", "middle", "windows"]
"""How a text with more tokens than the encoder takes is read: its first ones; its first and its last ones (see
`Tokenizer`); or all, in windows whose embeddings are averaged (see `SentenceEncoder.embed`)."""

ARCHITECTURES: dict[str, tuple[str, ModelType, int]] = {
    "bert": ("BertModel", "bert", 30522),
    "roberta": ("RobertaModel", "roberta", 50265),
    "xlm-roberta": ("XLMRobertaModel", "roberta", 30522),
    "camembert": ("CamembertModel", "roberta", 30522),
}
"""By `model_type`: transformers' class, the family that computes it, and `vocab_size` of a config.json without any."""

# Further values in which the published models of the two families differ.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"pad_token_id": 0, "type_vocab_size": 2, "layer_norm_eps": 1e-12},
    "roberta": {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
}

# Bounds of what is allocated on the word of a file; the largest published encoders of these families are far below.
MOST_LAYERS = 1000
MOST_PARAMETERS = 10**10

# Fields of pruned encoders only.
PRUNED_SIZES = ("layer_heads", "layer_intermediate_sizes")
OPTIONAL = (*PRUNED_SIZES, "matryoshka_dimensions")

Size = Annotated[int, Field(ge=1, le=MOST_PARAMETERS)]


@settings
class BertConfig:
    """Architecture of an encoder: the names of `config.json`, with bert-base-uncased's values as defaults.

    Raises:
        InputError: the sizes do not fit together.
    """

    model_type: Literal["bert", "roberta", "xlm-roberta", "camembert"] = "bert"
    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Annotated[int, Field(ge=0, le=MOST_LAYERS)] = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    pad_token_id: Annotated[int, Field(ge=0)] = 0
    layer_norm_eps: Share = 1e-12
    hidden_dropout_prob: Share = 0.1
    attention_probs_dropout_prob: Share = 0.1
    initializer_range: Annotated[float, Field(ge=0, le=1e3)] = 0.02
    layer_heads: tuple[int, ...] | None = None
    """Number of heads in each layer of a pruned encoder, at least 1; None if no head was removed. A head keeps its
    size, hidden_size / num_attention_heads. transformers does not know this field."""
    layer_intermediate_sizes: tuple[int, ...] | None = None
    """Feed-forward size of each layer of a pruned encoder, at least 0; None if no neuron was removed. transformers does
    not know this field."""
    matryoshka_dimensions: tuple[int, ...] | None = field(default=None, repr=False)
    """How many of the first numbers of an embedding were trained to be used alone (arXiv 2205.13147); None if only the
    whole embedding was. No embedding depends on it. vLLM reads it, too."""

    def __post_init__(self) -> None:
        if self.pad_token_id >= self.vocab_size:
            raise InputError(f"pad_token_id is {self.pad_token_id}; expected 0 to {self.vocab_size - 1}")
        if self.hidden_size % self.num_attention_heads:
            heads = self.num_attention_heads
            raise InputError(f"hidden_size is {self.hidden_size}; expected a multiple of num_attention_heads, {heads}")
        if self.max_length < 3:  # two specials and a word
            raise InputError(f"max_position_embeddings {self.max_position_embeddings} leaves no room for a sentence")
        if self._parameters > MOST_PARAMETERS:
            raise InputError(f"{self._parameters:,} parameters; expected at most {MOST_PARAMETERS:,}")
        ranges = ((1, self.num_attention_heads), (0, self.intermediate_size))
        for name, (least, most) in zip(PRUNED_SIZES, ranges, strict=True):
            kept, layers = getattr(self, name), self.num_hidden_layers
            if kept is not None and (len(kept) != layers or not all(least <= size <= most for size in kept)):
                raise InputError(f"{name} is {list(kept)!r:.60}; expected {layers} numbers from {least} to {most}")

    @property
    def family(self) -> ModelType:
        """The architecture. Of models of a family, only the tokenizers differ."""
        return ARCHITECTURES[self.model_type][1]

    @property
    def position_offset(self) -> int:
        """Index of a sentence's first position embedding: RoBERTa counts from `pad_token_id` + 1, BERT from 0."""
        return self.pad_token_id + 1 if self.family == "roberta" else 0

    @property
    def max_length(self) -> int:
        """Largest number of tokens, specials included, for which there are position embeddings."""
        return self.max_position_embeddings - self.position_offset

    @property
    def head_size(self) -> int:
        """Width of one head's queries, keys and values."""
        return self.hidden_size // self.num_attention_heads

    @property
    def _parameters(self) -> int:
        """About how many parameters the encoder has before pruning: the embeddings and the layers' matrices."""
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        return self.hidden_size * (rows + self.num_hidden_layers * (4 * self.hidden_size + 2 * self.intermediate_size))

    @property
    def layer_sizes(self) -> list[tuple[int, int]]:
        """Heads and feed-forward neurons of each layer."""
        heads = self.layer_heads or (self.num_attention_heads,) * self.num_hidden_layers
        neurons = self.layer_intermediate_sizes or (self.intermediate_size,) * self.num_hidden_layers
        return list(zip(heads, neurons, strict=True))

    @property
    def pruned(self) -> bool:
        """Whether heads or neurons were removed from a layer."""
        return any(getattr(self, name) is not None for name in PRUNED_SIZES)

    def of_family(self, model_type: ModelType, vocab_size: int) -> "BertConfig":
        """The same sizes and maximal length in the architecture of a family, with another vocabulary size."""
        config = replace(self, model_type=model_type, vocab_size=vocab_size, **FAMILIES[model_type])
        return replace(config, max_position_embeddings=self.max_length + config.position_offset)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "config") -> "BertConfig":
        """Read the architecture from a parsed `config.json`; keys that do not shape the encoder are ignored.

        Raises:
            OtherArchitectureError: not a BERT or RoBERTa, or a variant that this encoder does not compute.
            InputError: values of the wrong type, sizes that do not fit together, or positions that transformers, which
                computes other variants, leaves out without an error since version 5.
        """
        supported = {
            "model_type": tuple(ARCHITECTURES),
            "hidden_act": ("gelu",),
            "position_embedding_type": ("absolute",),
            "is_decoder": (False,),
            "add_cross_attention": (False,),
        }
        for key, accepted in supported.items():
            value = values.get(key, None if key == "model_type" else accepted[0])
            if value not in accepted:
                refused = InputError if key == "position_embedding_type" else OtherArchitectureError
                raise refused(
                    f"{source}: {key} is {value!r:.60}; this encoder computes {' or '.join(map(repr, accepted))}"
                )
        known = {field.name for field in fields(cls)}
        taken = {key: value for key, value in values.items() if key in known}
        _, family, vocabulary = ARCHITECTURES[values["model_type"]]
        if taken.get("pad_token_id", 0) is None and family == "bert":
            del taken["pad_token_id"]  # a BERT without a padding token; no position depends on it
        defaults = {"vocab_size": vocabulary} | ({"pad_token_id": 1} if family == "roberta" else {})
        found: BertConfig = read_as(cls, defaults | taken, source)
        return found

    @classmethod
    def from_file(cls, path: Path) -> "BertConfig":
        """Read a `config.json`. Raises InputError as `from_dict` and `read_json` do."""
        return cls.from_dict(read_json(path, dict), str(path))

    def values(self) -> dict[str, Any]:
        """All fields by name; those of pruning and the sizes of embeddings only if they are set.

        Identities of artefacts contain these values, and unpruned encoders are identified without the pruning fields.
        """
        return {key: value for key, value in asdict(self).items() if key not in OPTIONAL or value is not None}

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`; `transformers.AutoModel` reads it as the same encoder unless it is pruned."""
        return self.values() | {
            "architectures": [ARCHITECTURES[self.model_type][0]],
            "hidden_act": "gelu",
            "position_embedding_type": "absolute",
        }
