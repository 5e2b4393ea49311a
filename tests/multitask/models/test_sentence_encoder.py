"""SentenceEncoder against sentence-transformers; results are in the order of the rows for any batches."""

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoModel, AutoTokenizer

from minbert.download_checkpoint import BUNDLED, resolve
from minbert.errors import InputError
from minbert.files import write_json
from minbert.inference_layer import Bf16Linear, processor_has_bf16
from minbert.model import BertModel
from minbert.packing import PackedBatch
from multitask import SentenceEncoder
from multitask.base.device import resolve_runtime
from multitask.models import sentence_encoder
from multitask.models.compute_in_batches import compute_in_batches, pool

SENTENCES = [
    "A man is playing a guitar.",
    "",
    "?",
    "Zürich, São Paulo — 東京 and Москва 🙂",
    "  white   space\tall\naround ",
    "a man IS playing a GUITAR .",
    "An antidisestablishmentarianist's supercalifragilisticexpialidocious e-mail: a@b.c, 3.14%",
    "How long is a sentence that goes on and on? " * 12,
    "A man is playing a guitar.",
    "x" * 150,
    "a sentence of more tokens than all-MiniLM-L6-v2 was tuned to read " * 30,
]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder.load(BUNDLED, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def reference() -> SentenceTransformer:
    return SentenceTransformer(str(resolve(BUNDLED)), device="cpu")


def test_equals_sentence_transformers(encoder, reference):
    assert encoder.pooling == "mean"
    ours = encoder.encode(SENTENCES, normalize=True)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, reference.encode(SENTENCES, normalize_embeddings=True), rtol=0, atol=1e-5)
    raw = encoder.encode(SENTENCES)  # the model scales its embeddings, which is left to the caller here
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(ours, raw / lengths, rtol=0, atol=1e-6)
    assert abs(lengths - 1).min() > 0.01


@pytest.fixture(scope="module")
def tiny(tiny_encoder) -> SentenceEncoder:
    return SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's number of threads, for the test only."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_threads_do_not_matter_and_stay_as_set(tiny_encoder, threads, precision):
    encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision=precision)
    many = [SENTENCES[i % 11] for i in range(90)]
    threads(1)
    expected = encoder.encode(many, batch_size=7)
    threads(3)
    for _ in range(3):
        np.testing.assert_array_equal(encoder.encode(many, batch_size=7), expected)
    assert torch.get_num_threads() == 3
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 3


def test_cut_to_a_length(tiny):
    long = ["good time " * 50]
    np.testing.assert_array_equal(tiny.encode(long, max_length=4), tiny.encode(["good time"], max_length=4))
    with pytest.raises(InputError, match="max_length is 65; this encoder takes 3 to 64 tokens"):
        tiny.encode(long, max_length=65)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("length", [8, 64])
def test_windows_of_long_texts_are_averaged_by_their_tokens(tiny_encoder, pooling, length):
    """Against transformers, window by window; of mean pooling that is the mean of all windows' states."""
    encoder = SentenceEncoder.read(tiny_encoder, pooling)
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_encoder), AutoModel.from_pretrained(tiny_encoder)
    texts = ["A man is playing a guitar.", "good time " * 50, "", "The band. " * 3, " ".join(SENTENCES)]
    expected = []
    for text in texts:
        cut = {"truncation": True, "max_length": length, "stride": (length - 2) // 4}
        windows = tokenizer(text, return_overflowing_tokens=True, **cut)["input_ids"]
        states = [model(torch.tensor([window])).last_hidden_state[0] for window in windows]
        vectors = [state[0] if pooling == "cls" else state.mean(0) for state in states]
        weights = torch.tensor([float(len(window)) for window in windows])
        expected.append((torch.stack(vectors) * weights[:, None]).sum(0) / weights.sum())
    expected = torch.stack(expected).detach().numpy()
    found = encoder.encode(texts, max_length=length, long="windows")
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    heads = encoder.encode(texts, max_length=length)
    short = encoder.tokenizer.lengths(texts)[0] <= length
    np.testing.assert_allclose(found[short], heads[short], rtol=0, atol=4e-6)  # other batches, each within 2e-6
    assert not np.isclose(found, heads, atol=1e-3).all(1)[np.logical_not(short)].any()
    tokens = encoder.tokenizer.encode_and_count(texts, length, "windows").ids
    with torch.no_grad():  # as in a training: all in one packed batch
        packed = encoder.embed(tokens, [np.zeros_like(ids) for ids in tokens], longest=length).numpy()
    np.testing.assert_allclose(packed, expected, rtol=0, atol=2e-6)


def test_long_texts_are_counted(tiny, caplog):
    texts = ["time " * 9, "time", "time " * 7]
    tiny.counts.warn("earlier ones")
    caplog.clear()
    for long in ("head", "middle", "windows", "head"):
        tiny.encode(texts, max_length=9, long=long)
    tiny.counts.warn("here", " (and so)")
    tiny.counts.warn("here")
    assert caplog.messages == [
        "here: cut 2 of 6 texts to 9 tokens (and so)",
        "here: left out the middle of 1 of 3 texts, which have more than 9 tokens (and so)",
        "here: read 1 of 3 texts in windows of 9 tokens (and so)",
    ]


@pytest.mark.parametrize("given", [{"query": "a man"}, {"a man", "a guitar"}, pandas.DataFrame({"text": ["a man"]})])
def test_what_has_names_or_no_order_is_no_list_of_sentences(tiny, given):
    with pytest.raises(InputError, match=f"expected a list of texts, found a {type(given).__name__}"):
        tiny.encode(given)


def test_no_sentence_and_kinds_of_sequences(tiny):
    assert tiny.encode([]).shape == (0, 32)
    expected = tiny.encode(SENTENCES)
    for sequence in (tuple(SENTENCES), np.array(SENTENCES), np.array(SENTENCES, dtype=object)):
        np.testing.assert_array_equal(tiny.encode(sequence), expected)
    np.testing.assert_allclose(tiny.encode(SENTENCES[::-1], batch_size=3), expected[::-1], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(tiny.encode("a man"), tiny.encode(["a man"])[0])
    assert tiny.encode("a man").shape == (32,)
    for sequence in ("a man", ["a man", "a guitar"], []):
        tensor = tiny.encode(sequence, convert_to_tensor=True)
        assert tensor.dtype == torch.float32
        np.testing.assert_array_equal(tensor.numpy(), tiny.encode(sequence))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_identity_is_of_what_decides_an_embedding(tiny, tiny_encoder, tmp_path, name):
    copied = shutil.copytree(tiny_encoder, tmp_path / "elsewhere")
    other = SentenceEncoder.load(copied, device="cpu", precision="bf16")
    assert (other.name, other.identity) == (str(copied), tiny.identity)
    assert SentenceEncoder.load(copied, pooling="mean", device="cpu").identity != tiny.identity
    (copied / name).write_bytes((copied / name).read_bytes()[:-1] + b"?")
    assert other.identity != tiny.identity


DESCRIBED = {"tasks": {}, "pooling": "mean", "heads": {}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 9}, "tokenizer_config.json": {"model_max_length": 7}}, 9),
        ({"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 7}}, 7),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 64),
        ({"sentence_roberta_config.json": {"max_seq_length": 9}}, 9),  # its name in old models
        (
            {"sentence_roberta_config.json": {"max_seq_length": 9}, "sentence_bert_config.json": {"max_seq_length": 8}},
            8,
        ),
        ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, 64),
        ({"multitask.json": {**DESCRIBED, "max_length": 12}, "sentence_bert_config.json": {"max_seq_length": 9}}, 12),
        ({"multitask.json": DESCRIBED}, 64),
        ({"modules.json": None, "tokenizer_config.json": {"model_max_length": 7}}, 7),
        ({"modules.json": None, "tokenizer_config.json": {"max_len": 8}}, 8),
        ({"modules.json": None, "sentence_bert_config.json": {"max_seq_length": 9}}, 64),
    ],
)
def test_sentences_are_cut_as_the_folder_says(tiny_encoder, tmp_path, files, expected):
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    for name, content in ({"modules.json": []} | files).items():
        if content is not None:
            write_json(folder / name, content)
    encoder = SentenceEncoder.load(folder, pooling="mean", device="cpu", precision="fp32")
    assert encoder.max_length == expected
    long = ["a man in a boat " * 20]
    np.testing.assert_array_equal(encoder.encode(long), encoder.encode(long, max_length=expected))


def test_bf16_weights_are_rounded_once_as_autocast_would_in_each_call(tiny_encoder, monkeypatch):
    monkeypatch.setattr(sentence_encoder, "processor_has_bf16", lambda: False)
    loaded = SentenceEncoder.load(tiny_encoder, device="cpu", precision="bf16")
    assert all(layer.weight.dtype == torch.bfloat16 for layer in loaded.model.modules() if isinstance(layer, nn.Linear))
    assert loaded.model.embeddings.word.weight.dtype == torch.float32
    model = BertModel.from_pretrained(str(tiny_encoder))
    in_each_call = SentenceEncoder(model, loaded.tokenizer, loaded.pooling, loaded.max_length, loaded.runtime)
    np.testing.assert_array_equal(loaded.encode(SENTENCES), in_each_call.encode(SENTENCES))


def test_a_processor_with_bf16_has_layers_for_inference(tiny_encoder):
    loaded = SentenceEncoder.load(tiny_encoder, device="cpu", precision="bf16")
    assert {isinstance(layer.output, Bf16Linear) for layer in loaded.model.layers} == {processor_has_bf16()}


def test_means_of_states_in_bf16_are_exact():
    hidden = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)).add(1).bfloat16()
    batch = PackedBatch.from_sequences([np.arange(250), np.arange(50)])
    found = pool(hidden, batch, "mean")
    assert found.dtype == torch.float32
    expected = torch.stack([part.double().mean(0) for part in hidden.split([250, 50])])
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


# Results are in the order of the rows for any batches, and all threads stop after an error or an interrupt.


@pytest.fixture
def two_threads(threads) -> None:
    threads(2)


@pytest.mark.parametrize("most_rows", [1, 7, None])
def test_results_are_in_the_rows_order(two_threads, most_rows):
    lengths = np.random.default_rng(0).integers(1, 200, 300)

    def compute(rows: np.ndarray) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        return torch.from_numpy(np.stack([rows, lengths[rows]], axis=1))

    found = compute_in_batches(lengths, compute, resolve_runtime("cpu", "fp32"), most_rows)
    np.testing.assert_array_equal(found, np.stack([np.arange(300), lengths], axis=1))


def test_a_single_batch_has_one_thread_too_and_starts_none(two_threads):
    """Two threads that share a product add it up in another order."""
    here = []

    def threads(rows: np.ndarray) -> torch.Tensor:
        here.append(threading.current_thread() is threading.main_thread())
        return torch.full((len(rows),), torch.get_num_threads())

    np.testing.assert_array_equal(compute_in_batches(np.array([3, 2]), threads, resolve_runtime("cpu", "fp32")), 1)
    assert here == [True]
    assert torch.get_num_threads() == 2


def test_calls_in_two_threads_leave_the_number_of_threads_as_set(two_threads):
    """The second call begins and ends within the first, then after it: torch's setting is one of the whole process."""
    begun, go_on = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]

    def call(number: int) -> None:
        def compute(rows: np.ndarray) -> torch.Tensor:
            begun[number].set()
            go_on[number].wait(60)
            return torch.zeros(len(rows))

        compute_in_batches(np.ones(2, np.int64), compute, resolve_runtime("cpu", "fp32"))

    for first_to_end in (1, 0):
        callers = []
        for number, event in enumerate(begun):
            callers.append(threading.Thread(target=call, args=(number,)))
            callers[-1].start()
            event.wait(60)
        for number in (first_to_end, 1 - first_to_end):
            go_on[number].set()
            callers[number].join()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
        for event in (*begun, *go_on):
            event.clear()


def test_an_interrupt_ends_all_threads(two_threads):
    under_way, computed = threading.Event(), []

    def compute(rows: np.ndarray) -> torch.Tensor:
        computed.append(rows)
        if len(computed) > 20:  # by then the main thread waits: a signal that comes just before a wait does not end it
            under_way.set()
        time.sleep(0.01)
        return torch.zeros(len(rows))

    def interrupt() -> None:
        under_way.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs that ignore it
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            compute_in_batches(np.ones(1000, np.int64), compute, resolve_runtime("cpu", "fp32"), most_rows=1)
    finally:
        signal.signal(signal.SIGINT, before)
    sender.join()
    assert len(computed) < 1000


def test_an_error_in_one_batch_ends_the_others_and_leaves_the_threads_as_set(two_threads):
    computed = []

    def compute(rows: np.ndarray) -> torch.Tensor:
        computed.append(rows)
        if len(computed) == 2:
            raise ValueError("no")
        time.sleep(0.01)
        return torch.zeros(len(rows))

    with pytest.raises(ValueError, match="no"):
        compute_in_batches(np.ones(500, np.int64), compute, resolve_runtime("cpu", "fp32"), most_rows=1)
    assert len(computed) < 500
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2
