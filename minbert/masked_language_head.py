"""The masked-language-model head: it scores every vocabulary entry for each token.

Source: Devlin et al. 2019, section 3.1 (arXiv 1810.04805). The output matrix is the encoder's word embeddings.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from minbert.checkpoint import read_tensors, refuse_not_finite
from minbert.config import BertConfig
from minbert.download_checkpoint import weights_file

logger = logging.getLogger("minbert")

# Our tensor names, with BERT's and RoBERTa's.
NAMES = {
    "transform.weight": ("cls.predictions.transform.dense.weight", "lm_head.dense.weight"),
    "transform.bias": ("cls.predictions.transform.dense.bias", "lm_head.dense.bias"),
    "norm.weight": ("cls.predictions.transform.LayerNorm.weight", "lm_head.layer_norm.weight"),
    "norm.bias": ("cls.predictions.transform.LayerNorm.bias", "lm_head.layer_norm.bias"),
    "bias": ("cls.predictions.bias", "lm_head.bias"),
}
DECODERS = ("cls.predictions.decoder", "lm_head.decoder")
"""Where a checkpoint may store the output matrix and the bias once more, or others."""


class MaskedLanguageHead(nn.Module):
    """Linear layer, GELU and layer norm, then the dot product with every word embedding, plus a bias."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        nn.init.normal_(self.transform.weight, std=config.initializer_range)
        nn.init.zeros_(self.transform.bias)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    @classmethod
    def of_checkpoint(cls, folder: Path, config: BertConfig) -> Self:
        """The head stored in a checkpoint; a new one, with a warning, if the checkpoint has no fitting one."""
        head = cls(config)
        if not head.take(folder):
            logger.warning("%s: the checkpoint has no fitting masked-language-model head; a new one is trained", folder)
        return head

    def take(self, folder: Path) -> bool:
        """Take the weights of the head stored in a checkpoint; False if it has no fitting one."""
        tensors = read_tensors(weights_file(folder))
        names = {ours: next((name for name in theirs if name in tensors), None) for ours, theirs in NAMES.items()}
        found = {ours: tensors[name].float() for ours, name in names.items() if name is not None}
        own = self.state_dict()
        fits = set(found) == set(own) and all(found[name].shape == own[name].shape for name in own)
        if fits := fits and _is_tied(tensors, found["bias"]):
            refuse_not_finite(found, weights_file(folder))
            self.load_state_dict(found)
        return fits

    def tensors(self, config: BertConfig) -> dict[str, Tensor]:
        """The head's tensors under the names of the model's family, as checkpoints store them."""
        family = ("bert", "roberta").index(config.family)
        return {NAMES[name][family]: tensor for name, tensor in self.state_dict().items()}

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Hidden states [tokens, hidden], word embeddings [vocabulary, hidden] -> scores [tokens, vocabulary]."""
        return linear(self.norm(gelu(self.transform(hidden))), word_embeddings, self.bias)


def _is_tied(tensors: Mapping[str, Tensor], bias: Tensor) -> bool:
    """Whether the output matrix is the word embeddings; `tie_word_embeddings: false` stores another, and its bias."""
    words = next(tensor for name, tensor in tensors.items() if name.endswith("embeddings.word_embeddings.weight"))
    own = {"weight": words.float(), "bias": bias}
    again = [(tensors.get(f"{name}.{kind}"), tensor) for name in DECODERS for kind, tensor in own.items()]
    return all(other is None or torch.equal(other.float(), tensor) for other, tensor in again)
