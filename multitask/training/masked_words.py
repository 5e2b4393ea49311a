"""Masked language modelling as a source: some tokens are hidden, and the encoder predicts them.

Source: Devlin et al. 2019, section 3.1. As in RoBERTa, masks are drawn again each time a sentence is read.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.masked_language_head import MaskedLanguageHead
from minbert.packing import collect, send
from minbert.tokenizer import Tokenizer
from multitask.base import distributed
from multitask.data.examples import RowNumbers, Tokens, total_lengths
from multitask.training.source import BatchLoss, Inputs, TrainingSource

MASKED, REPLACED = 0.8, 0.1  # of the tokens to predict; the rest stay as they are


class MaskedSource(TrainingSource):
    """Sentences with some tokens hidden, which the encoder must predict.

    `share` is that of the tokens to predict. Several columns of the same rows are read together. The encoder's word
    embeddings are the head's output matrix. Masks are drawn by torch's global generator, whose state a resumed run
    restores, unless there is another `generator`.
    """

    reads_tokens = True

    def __init__(
        self,
        tokens: tuple[Tokens, ...],
        tokenizer: Tokenizer,
        share: float,
        head: MaskedLanguageHead,
        word_embeddings: nn.Embedding,
        generator: torch.Generator | None = None,
    ) -> None:
        self.tokens = tokens
        self.tokenizer = tokenizer
        self.share = share
        self.head = head
        self.word_embeddings = word_embeddings
        self.generator = generator
        self.special = torch.tensor(tokenizer.special_ids)
        self.lengths = total_lengths(tokens)

    def inputs(self, rows: RowNumbers) -> Inputs:
        """The masked sentences; targets are the positions and the original ids of the tokens to predict."""
        sequences = [column[row] for column in self.tokens for row in rows]
        ids = torch.from_numpy(np.concatenate(sequences).astype(np.int64))
        masked, places = self.mask(ids)
        cuts = np.cumsum([len(sequence) for sequence in sequences])[:-1]
        parts = np.split(masked.numpy(), cuts)
        return Inputs(list(parts), [np.zeros_like(part) for part in parts], (places, ids[places]))

    def mask(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder reads instead of ids [tokens]; the positions of the tokens to predict [places], int64."""
        chosen = torch.rand(len(ids), generator=self.generator) < self.share
        places = (chosen & ~torch.isin(ids, self.special)).nonzero().squeeze(1)
        fate = torch.rand(len(places), generator=self.generator)
        others = torch.randint(self.word_embeddings.num_embeddings, (len(places),), generator=self.generator)
        seen = torch.where(fate < MASKED + REPLACED, others, ids[places])
        seen[fate < MASKED] = self.tokenizer.mask_token_id
        return ids.index_copy(0, places, seen), places

    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: RowNumbers) -> BatchLoss:
        places, words = (send(part, hidden.device) for part in targets)
        scores = self.head(collect(hidden, places), self.word_embeddings.weight).float()
        count = int(distributed.total(torch.tensor(len(words)), len(rows)))
        # A batch of very short sentences may have no token to predict; its loss is then 0.
        loss = F.cross_entropy(scores, words, reduction="sum") / max(count, 1)
        right = (scores.detach().argmax(dim=1) == words).float().sum() / max(count, 1)
        watched = {"accuracy": distributed.total(right, len(rows)), "words": scores.new_full((), count)}
        return BatchLoss(distributed.total(loss, len(rows)), watched)
