"""Masked-language-model pre-training: continue with an existing encoder, or train a new one from scratch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from minbert.masked_language_head import MaskedLanguageHead
from minbert.model import BertModel
from minbert.tokenizer import train_tokenizer
from multitask.base.random_streams import generator, torch_seed
from multitask.base.runs import Weights
from multitask.data.contamination import Hashes, TrainedOn, hash_sentences
from multitask.data.examples import batches_by_tokens, batches_of_similar_length, epoch_rows, tokenise, warn_of_tokens
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.reads import sources_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings_of_pretraining import MLM, MlmConfig, ShapeConfig
from multitask.stages.training_run import StartModel, train_run
from multitask.tasks.sources import source_named
from multitask.training.masked_words import MaskedSource
from multitask.training.source import Batch, Evaluation, SourceTraining, Update, losses_of

MASKED_TEXTS = "mlm"


mlm = partial(run_stage, MLM)
"""Train an encoder to predict masked words; the artefact keeps the encoder and the head.

Training from scratch uses only the tokenizer of the start weights, and the sizes that the configuration leaves out.
"""


def reads(config: MlmConfig, data: Path) -> dict[str, Any]:
    """The sources."""
    return sources_of(config.sources, data)


def compute(models: Sequence[Weights], data: Path, config: MlmConfig, run: OpenRun) -> None:
    """Train on masked words into a run's folder."""
    begin = StartModel.load(models[0], config, run.runtime, matryoshka=())
    drawn = [source_named(name, data).sentences(config.train_limit) for name in config.sources]
    contents = {text: content for found in drawn for text, content in zip(*found.texts, *found.sentences, strict=True)}
    training, dev = _split([*contents], config)
    if config.from_scratch:
        begin = _from_scratch(begin, config.shape, training)
        head = MaskedLanguageHead(begin.encoder.bert.config)
    else:
        head = MaskedLanguageHead.of_checkpoint(begin.folder, begin.encoder.bert.config)
    hashes = hash_sentences(contents[text] for text in training)
    problem = MaskedTraining(begin, head, training, dev, hashes, config)
    train_run(run, begin, problem, config)


class MaskedTraining(SourceTraining):
    """Masked language modelling of an encoder, as the loop's `Trainable`."""

    def __init__(
        self,
        begin: StartModel,
        head: MaskedLanguageHead,
        training: list[str],
        dev: list[str],
        hashes: Hashes,
        config: MlmConfig,
    ) -> None:
        self.begin = begin
        self.head = head
        self.config = config
        self.training, self.dev = self._source(training), self._source(dev)
        self.hashes = hashes
        module = nn.ModuleDict({"encoder": begin.encoder.model, "head": head}).to(begin.encoder.runtime.device)
        super().__init__(module, begin.encoder, {MASKED_TEXTS: self.training})

    def _source(self, sentences: list[str]) -> MaskedSource:
        encoder, config = self.begin.encoder, self.config
        tokens = tokenise(sentences, encoder.tokenizer, encoder.max_length)
        warn_of_tokens(", ".join(config.sources), [tokens], encoder.tokenizer, encoder.max_length)
        words = encoder.bert.embeddings.word
        return MaskedSource((tokens,), encoder.tokenizer, config.masking.mask_share, self.head, words)

    @property
    def sentences(self) -> Mapping[str, Sequence[Hashes]]:
        return {MASKED_TEXTS: [self.hashes]}

    def plan(self, epoch: int) -> Sequence[Update]:
        size = len(self.training)
        rows = epoch_rows(size, size, epoch, self.config.seed, MASKED_TEXTS)
        order = generator(self.config.seed, "order of masked batches", epoch)
        batches = batches_of_similar_length(rows, self.training.lengths, self.config.batch_size, order)
        return [(Batch(MASKED_TEXTS, rows),) for rows in batches]

    def evaluate(self) -> Evaluation:
        """Loss, perplexity and accuracy on held-out sentences, with the same masks every time."""
        if not len(self.dev):
            return Evaluation({}, {})
        self.dev.generator = torch.Generator().manual_seed(torch_seed(self.config.seed, "masks of held-out sentences"))
        batches = list(batches_by_tokens(self.dev.lengths, TOKENS_PER_BATCH[self.runtime.device.type]))
        updates = [(Batch(MASKED_TEXTS, rows),) for rows in batches]
        seen = [losses_of(self.encoder, {MASKED_TEXTS: self.dev}, update) for update in updates]
        words = np.array([losses.watched[f"{MASKED_TEXTS} words"].item() for losses in seen])
        if not words.any():  # a loss of 0 would stay the best score of the run
            return Evaluation({}, {})
        shares = words / words.sum()
        loss = float(shares @ [losses.terms[MASKED_TEXTS].item() for losses in seen])
        accuracy = float(shares @ [losses.watched[f"{MASKED_TEXTS} accuracy"].item() for losses in seen])
        # The limit avoids an overflow if training diverges.
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": accuracy}
        return Evaluation({MASKED_TEXTS: metrics}, {MASKED_TEXTS: -loss})

    def save(self, folder: Path) -> None:
        self.encoder.save(folder, self.head.tensors(self.encoder.bert.config))


def _from_scratch(begin: StartModel, shape: ShapeConfig, sentences: list[str]) -> StartModel:
    """Replace the start's encoder by a new one; if a family is named, also learn a new tokenizer from the sentences.

    Missing sizes come from the start. If a hidden size but no inner size is given, the inner size is four times it.
    """
    config, tokenizer = begin.encoder.bert.config, begin.encoder.tokenizer
    if shape.model_type is not None:
        tokenizer = train_tokenizer(shape.model_type, sentences, config.vocab_size, config.max_length)
        config = config.of_family(shape.model_type, tokenizer.vocabulary_size)
    given: dict[str, Any] = {name: size for name, size in vars(shape).items() if size is not None}
    if "hidden_size" in given:
        given.setdefault("intermediate_size", 4 * given["hidden_size"])
    whole = replace(config, layer_heads=None, layer_intermediate_sizes=None, **given)
    encoder = SentenceEncoder(BertModel(whole), tokenizer, begin.encoder.pooling, begin.encoder.max_length)
    return replace(begin, encoder=encoder.on(begin.encoder.runtime), trained_on=TrainedOn())


def _split(sentences: list[str], config: MlmConfig) -> tuple[list[str], list[str]]:
    """Split different sentences, in a fixed random order, into training and dev."""
    order = generator(0, "held-out sentences").permutation(len(sentences))  # the same split for every seed
    cut = len(sentences) - round(config.dev_share * len(sentences))  # at least one, as the share is at most 1/2
    return [sentences[i] for i in order[:cut]], [sentences[i] for i in order[cut:]]
