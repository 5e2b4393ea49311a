"""Two tiny models of the course's tasks, and dev sets of the sample."""

from pathlib import Path

import pytest
import torch

from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.service.explorer import ExploredSet, load_dev_sets
from tests.conftest import COURSE_TASKS


def build(encoder: Path, seed: int) -> MultitaskModel:
    torch.manual_seed(seed)
    tasks = {name: COURSE_TASKS[name] for name in ("sentiment", "paraphrase", "similarity")}
    model = MultitaskModel(SentenceEncoder.read(encoder, "mean"), tasks, HeadsConfig("separate"))
    for parameter in model.heads.parameters():  # far from their start, so that texts get different predictions
        torch.nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        model.encoder.model.embeddings.word.weight.mul_(seed)  # the models' embeddings differ, too
    return model.eval()


@pytest.fixture(scope="session")
def models(tiny_encoder) -> dict[str, MultitaskModel]:
    return {"one": build(tiny_encoder, 1), "two": build(tiny_encoder, 2)}


@pytest.fixture(scope="session")
def dev_sets(models, small_data) -> dict[str, ExploredSet]:
    return load_dev_sets(models, small_data, 20)


@pytest.fixture(scope="session")
def encoder(models) -> SentenceEncoder:
    return models["one"].encoder
