"""Late fusion: each of the two heads of a pair has a loss, and their mean is what penalties and predictions read."""

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity

from multitask.models.config import HeadsConfig
from multitask.stages.finetune import finetune
from multitask.stages.settings.finetune import FinetuneConfig

HEADS = HeadsConfig("separate", "features", similarity_pairs="embeddings", dropout=0.0, late_fusion=True)


def test_the_loss_is_the_mean_of_those_of_both_heads(problem):
    tasks = ("paraphrase", "similarity")
    training = problem(finetune, FinetuneConfig(tasks, batch_size=8, epochs=1, pooling="mean", heads=HEADS))
    (update, *_) = training.plan(0)
    found = training.losses(update)
    for batch in update:
        source, heads = training.sources[batch.source], training.model.heads[batch.source]
        gold = torch.from_numpy(source.labels[batch.rows])
        x, y, joint = (
            torch.stack(
                [
                    training.encoder(
                        torch.from_numpy(column[row].astype(np.int64))[None],
                        token_type_ids=torch.from_numpy(column.types_of(row).astype(np.int64))[None],
                    ).last_hidden_state.mean(dim=1)[0]
                    for row in batch.rows
                ]
            )
            for column in source.data.columns
        )
        if batch.source == "similarity":
            x, y = map(heads["apart"].transform, (x, y))
            outputs = cosine_similarity(x, y), heads["joint"].mlp(joint)[:, 0].sigmoid()
            losses = [(output - gold / 5).square().mean() for output in outputs]
        else:
            features = torch.cat([(x - y).abs(), x * y, x + y], dim=1)
            outputs = heads["apart"].mlp(features)[:, 0], heads["joint"].mlp(joint)[:, 0]
            losses = [binary_cross_entropy_with_logits(output, gold) for output in outputs]
        torch.testing.assert_close(found.terms[batch.source], sum(losses) / 2, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.outputs[batch.source], sum(outputs) / 2, rtol=1e-4, atol=1e-5)
