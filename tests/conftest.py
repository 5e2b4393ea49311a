"""Fixtures that many tests share: a tiny random encoder, the bundled sample data, and its first rows."""

import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, TypeVar

import huggingface_hub.constants
import pytest
import torch
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models, normalizers, pre_tokenizers, processors

from minbert.config import BertConfig
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer
from multitask.tasks.declarations import COURSE, load_tasks
from multitask.tasks.task import Split, Task
from tests.minbert.hub import Hub, running

ROOT = Path(__file__).parents[1]
# Tests also run on busy machines, so slowness is no failure. `./run_tests.sh all` chooses `many`.
settings.register_profile("many", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", settings.get_profile("many"), max_examples=6, derandomize=True)
settings.load_profile("few")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SMALL_ROWS = {"train": 64, "dev": 32, "test-student": 16}
VOCABULARY_SIZE = 600
SLOW_IMPORTS = [
    "scipy.stats",
    "torch._dynamo",  # imported by torch's optimizers when they are made
    "torchjd.aggregation",
    *(f"multitask.stages.{stage}" for stage in ("finetune", "fuse", "mlm", "pretrain")),
    __name__,
]
COURSE_TASKS = load_tasks(COURSE)
"""The course's tasks, where their files do not matter."""
Declared = TypeVar("Declared", bound=Task)


def slow_after(first: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of which the slow tests alone have those after the first ones; a tuple has several parameters."""
    return [
        value
        if place < first
        else pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.slow)
        for place, value in enumerate(values)
    ]


def with_files(task: Declared, **changes: Any) -> Declared:
    """A task with changed files: where its rows are, how to read them."""
    return replace(task, files=replace(task.files, **changes))


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Do not wait for the disk: the tests write thousands of files, and fsync only matters in a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Starts processes that have torch and the other slow imports already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(SLOW_IMPORTS)
        context.Process(target=print).start()
        return context


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """The bundled data."""
    return ROOT / "data" / "sample"


@pytest.fixture(scope="session")
def small_data(sample_data, tmp_path_factory) -> Path:
    """A folder with the first rows of every task's files: 64 of train, 32 of dev, 16 of test."""
    folder = tmp_path_factory.mktemp("small-data")
    for split, rows in SMALL_ROWS.items():
        for path in sample_data.glob(f"*-{split}.csv"):
            with path.open(encoding="utf-8", newline="") as file:
                (folder / path.name).write_text("".join(islice(file, rows + 1)), encoding="utf-8", newline="")
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(sample_data, tmp_path_factory) -> Path:
    """A checkpoint folder: a random BERT of 2 layers and width 32 with a vocabulary of the sample's words."""
    return random_encoder(sample_vocabulary(sample_data), 2, tmp_path_factory.mktemp("tiny-encoder"))


@pytest.fixture(scope="session")
def one_layer(sample_data, tmp_path_factory) -> Path:
    """The same with one layer, for tests of whole trainings in which depth does not matter."""
    return random_encoder(sample_vocabulary(sample_data), 1, tmp_path_factory.mktemp("one-layer"))


def random_encoder(
    vocabulary: list[str], layers: int, folder: Path, hidden_size: int = 32, num_attention_heads: int = 4
) -> Path:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=num_attention_heads,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,  # with the usual 0.02, all sentences have nearly the same embedding
    )
    BertModel(config).save(folder)
    Tokenizer(word_piece(vocabulary), config.max_length, {}).save(folder)
    return folder


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    """A local server in place of the Hugging Face hub, with an empty cache."""
    server = Hub()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(
        huggingface_hub.constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        huggingface_hub.constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}",
    )
    with running(server):
        yield server


def task_file(data: Path, task: str, split: Split) -> Path:
    """The file of one of the course's tasks in a data folder."""
    path = load_tasks(data)[task].source(split).path
    assert path is not None
    return path


def interrupted(tokenizer: Tokenizer, method: str, meanwhile: Callable[[], object]) -> SimpleNamespace:
    """A tokenizer's backend. Another thread begins something else right before the first call of this method."""
    backend = tokenizer.backend
    others = {name: getattr(backend, name) for name in dir(backend) if not name.startswith("_")}

    def interrupting(*arguments: Any) -> Any:
        tokenizer.backend = backend
        thread = Thread(target=meanwhile, daemon=True)
        thread.start()
        thread.join(0.2)  # it may have to wait until this call is over
        return getattr(backend, method)(*arguments)

    return SimpleNamespace(**others | {method: interrupting})


def sample_vocabulary(sample_data: Path) -> list[str]:
    """Special tokens, the sample's characters (as starts and continuations of words), and its most frequent words."""
    text = "".join(path.read_text(encoding="utf-8").lower() for path in sorted(sample_data.glob("*.csv")))
    characters = sorted({c for c in text if not c.isspace()})
    start = [*SPECIALS, *characters, *(f"##{c}" for c in characters)]
    words = [word for word, _ in Counter(re.findall(r"[a-z]{2,}", text)).most_common(VOCABULARY_SIZE - len(start))]
    return start + words


def word_piece(vocabulary: list[str]) -> RustTokenizer:
    """An uncased BERT tokenizer with this vocabulary."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    backend = RustTokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.add_special_tokens(list(SPECIALS))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return backend


@pytest.fixture(scope="session")
def grid_data(small_data, sample_data, tmp_path_factory) -> Path:
    """The small data with a few NLI triplets and unlabelled sentences."""
    folder = tmp_path_factory.mktemp("grid-data")
    for path in small_data.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with (sample_data / "nli_triplets.csv").open(encoding="utf-8", newline="") as file:
        (folder / "nli_triplets.csv").write_text("".join(islice(file, 17)), encoding="utf-8", newline="")
    for name in ("sentences.txt", "captions.txt", "news.txt"):
        with (sample_data / name).open(encoding="utf-8") as file:
            (folder / name).write_text("".join(islice(file, 32)), encoding="utf-8")
    return folder


def resampling_little() -> Iterator[None]:
    """Resample a fifth as often as in a report, for scores that are far apart."""
    from multitask.experiments import compare_rows  # with pandas: not for every test

    few = partial(compare_rows.resampled_scores, samples=2000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_rows, "resampled_scores", few)
        yield


few_resamples = pytest.fixture(scope="module")(resampling_little)
