"""Encoders of transformers, such as ModernBERT, DeBERTa, DistilBERT or that of T5, with the interface of `BertModel`.

They are computed in padded batches. Needs the extra `sentence-transformers`. Loads safetensors only and runs no code
that comes with a model.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from minbert.checkpoint import refuse_not_finite, refuse_rounded
from minbert.download_checkpoint import TOKENIZER_FILES
from minbert.errors import InputError, install_with
from minbert.files import read_bytes
from minbert.model import BertOutput
from minbert.packing import PackedBatch
from minbert.tokenizer import Tokenizer, refuse_unfit
from multitask.data.messages import reason

DEFAULT_MAX_LENGTH = 512
"""Tokens of a sentence where neither tokenizer nor architecture has a limit."""


@dataclass(frozen=True)
class TransformersConfig:
    """What the library reads of another architecture's configuration."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    vocab_size: int
    max_length: int
    matryoshka_dimensions: tuple[int, ...] | None = None

    pruned = False

    def values(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


class TransformersModel(nn.Module):
    """An encoder of transformers, in padded batches; of an encoder with a decoder, the encoder alone.

    Args:
        model: the encoder.
        max_length: largest number of tokens of a sentence, specials included.
    """

    def __init__(self, model: Any, max_length: int) -> None:
        super().__init__()
        self.model = model
        self.theirs = model.config
        self.config = TransformersConfig(
            model.config.model_type,
            model.config.hidden_size,
            model.config.num_hidden_layers,
            model.config.vocab_size,
            max_length,
            getattr(model.config, "matryoshka_dimensions", None),
        )
        # Without weights of their own for types, GPT-2 and XLM would add the embedding of a word.
        self.has_types = "token_type_ids" in inspect.signature(model.forward).parameters and any(
            re.search("token_type|seg_embed", name) for name, _ in model.named_parameters()
        )
        self.recomputes = False

    @classmethod
    def from_folder(cls, folder: Path) -> tuple[Self, Tokenizer]:
        """Read a model and its tokenizer, in eval mode and fp32.

        Raises InputError if transformers is not installed or cannot load the model, its weights exist only as a pickle
        or are not finite, or the tokenizer has no tokenizer.json or does not fit.
        """
        try:
            import transformers
        except ImportError:
            hint = install_with("sentence-transformers")
            raise InputError(f"{folder}: this model needs transformers, which is not installed; {hint}") from None
        for needed, name in (("*.safetensors", "model"), ("tokenizer.json", "tokenizer")):
            if not any(folder.glob(needed)):
                raise InputError(
                    f"{folder}: no {needed}; save the {name} with transformers, whose save_pretrained writes it"
                )
        auto: Any = transformers
        auto.utils.logging.disable_progress_bar()
        options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
        try:
            config = auto.AutoConfig.from_pretrained(folder, **options)
            with torch.device("meta"):  # allocates no memory
                try:
                    kind = type(auto.AutoModelForTextEncoding.from_config(config))  # of T5, the encoder alone
                except ValueError:
                    if config.is_encoder_decoder:
                        raise ValueError(f"its encoder alone is not there for {config.model_type}") from None
                    kind = type(auto.AutoModel.from_config(config))
            settings = {"use_safetensors": True, "dtype": torch.float32, "output_loading_info": True}
            model, found = kind.from_pretrained(folder, **settings, **options)
            tokenizer = auto.AutoTokenizer.from_pretrained(folder, **options)
            vocabulary = model.config.vocab_size  # that of characters, such as CANINE, has none
        except Exception as error:  # every architecture raises errors of its own
            raise InputError(f"{folder}: transformers cannot load it ({reason(error)})") from None
        refuse_lacking(found, folder)
        refuse_not_finite(model.state_dict(), folder)
        longest = min(tokenizer.model_max_length, _positions(model))
        ours = _ours(tokenizer, DEFAULT_MAX_LENGTH if longest == UNLIMITED else longest, folder)
        refuse_unfit(ours, vocabulary)
        return cls(model, ours.max_length).eval(), ours

    @property
    def layers(self) -> nn.ModuleList:
        """The model's layers: its longest list of modules."""
        return max((part for part in self.model.modules() if isinstance(part, nn.ModuleList)), key=len)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BertOutput:
        """As `BertModel.forward`; the first token's state stands for the pooler's output.

        Raises InputError for what transformers cannot compute, as DeBERTa's first version in bf16.
        """
        types = {"token_type_ids": token_type_ids} if self.has_types and token_type_ids is not None else {}
        try:
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
        except RuntimeError as error:
            if not torch.is_autocast_enabled(input_ids.device.type) or isinstance(error, torch.OutOfMemoryError):
                raise
            kind = self.config.model_type
            raise InputError(
                f"transformers cannot compute a {kind} in bf16 ({reason(error)}); take --precision fp32"
            ) from None
        return BertOutput(hidden, hidden[:, 0])

    def forward_packed(self, batch: PackedBatch, recompute: bool = False, first_only: bool = False) -> Tensor:
        """As `BertModel.forward_packed`, with padding; `first_only` saves nothing."""
        if recompute and not self.model.supports_gradient_checkpointing:
            raise InputError(f"recompute: transformers does not recompute the layers of {self.config.model_type}")
        if recompute != self.recomputes:
            self.recomputes = recompute
            (self.model.gradient_checkpointing_enable if recompute else self.model.gradient_checkpointing_disable)()
        places = batch.sentence_ids, batch.position_ids
        shape = len(batch), batch.longest
        ids = torch.full(shape, getattr(self.theirs, "pad_token_id", None) or 0, device=batch.input_ids.device)
        mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
        ids[places], mask[places], types[places] = batch.input_ids, torch.ones_like(ids[places]), batch.token_type_ids
        hidden = self(ids, mask, types).last_hidden_state  # [sentences, longest, hidden]
        return hidden[:, 0] if first_only else hidden[places]

    def freeze(self, layers: int) -> None:
        """Keep all weights as they are, without gradient and dropout. Raises InputError for a part of the layers."""
        if layers not in (0, there := len(self.layers)):
            raise InputError(f"freeze is {layers}; a {self.config.model_type} can be frozen as a whole, all {there}")
        if layers:
            self.set_dropout(0.0)
            self.requires_grad_(False)

    @property
    def has_dropout(self) -> bool:
        """Whether two passes in training mode differ."""
        return any(_dropouts(self.model.config).values())

    def set_dropout(self, probability: float) -> None:
        """Replace all dropout probabilities used in training; a saved model keeps the checkpoint's."""
        config = deepcopy(self.theirs)
        for name in _dropouts(config):
            setattr(config, name, probability)
        before = self.model
        with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and replaced
            self.model = type(before)(config).to(before.device)
        self.model.load_state_dict(before.state_dict())
        self.model.train(before.training)

    def save(self, folder: Path, head: Mapping[str, Tensor] | None = None) -> None:
        """Write `config.json` and `model.safetensors` as transformers does. There is no head of masked words."""
        assert head is None
        refuse_rounded(self.model.state_dict())
        self.theirs.matryoshka_dimensions = self.config.matryoshka_dimensions
        own, self.model.config = self.model.config, self.theirs
        self.model.save_pretrained(folder)
        self.model.config = own


@contextmanager
def loading_reports() -> Iterator[list[dict[str, Any]]]:
    """What transformers says of each encoder that it loads meanwhile: sentence-transformers does not pass it on."""
    import transformers

    pretrained: Any = transformers.PreTrainedModel
    load, reports = pretrained.__dict__["from_pretrained"], list[dict[str, Any]]()

    def reporting(kind: type[Any], *arguments: Any, **settings: Any) -> Any:
        model, report = load.__func__(kind, *arguments, **settings, output_loading_info=True)
        reports.append(report)
        return model

    pretrained.from_pretrained = classmethod(reporting)
    try:
        yield reports
    finally:
        pretrained.from_pretrained = load


def refuse_lacking(loading: Mapping[str, Any], folder: Path) -> None:
    """Raise InputError if transformers found no weights for a part but the pooler: it would draw them at random.

    `loading` is what its `from_pretrained` says with `output_loading_info`.
    """
    if missing := sorted(name for name in loading["missing_keys"] if "pooler" not in name):
        raise InputError(f"{folder}: the weights lack {', '.join(missing[:3])}")


def _dropouts(config: Any) -> dict[str, float]:
    """The settings of a configuration that are probabilities of dropout in the encoder."""
    values = {name: value for name, value in config.to_dict().items() if "drop" in name and type(value) in (int, float)}
    return {name: value for name, value in values.items() if not re.search("layerdrop|classif|qa_|summary", name)}


UNLIMITED = 10**9


def _positions(model: Any) -> int:
    """For how many tokens a model has positions. Those of RoBERTa's kind begin behind the padding's."""
    tables = [part for name, part in model.named_modules() if name.endswith("position_embeddings")]
    offset = max((part.padding_idx + 1 for part in tables if getattr(part, "padding_idx", None) is not None), default=0)
    positions = getattr(model.config, "max_position_embeddings", None) or UNLIMITED
    return UNLIMITED if positions < 1 else int(positions) - offset


def _ours(tokenizer: Any, max_length: int, folder: Path) -> Tokenizer:
    """A tokenizer of transformers as ours. Raises InputError if it is none of the Rust library."""
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None or tokenizer.pad_token is None:
        raise InputError(f"{folder}: expected a tokenizer.json with a token for padding")
    companions = {name: read_bytes(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}
    special = {"mask_token": tokenizer.pad_token} | dict(tokenizer.special_tokens_map)  # T5 masks no words
    texts = {name: text for name, text in special.items() if isinstance(text, str)}
    return Tokenizer(backend, max_length, companions, str(folder), texts)
