"""MTEB evaluates our encoder on a small data set as scipy does, and accepts it as a model."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from multitask.inference.mteb import MtebEncoder
from multitask.models.sentence_encoder import SentenceEncoder

mteb = pytest.importorskip("mteb", minversion="2")
datasets = pytest.importorskip("datasets")
sts = pytest.importorskip("mteb.abstasks.sts")

FIRST = ["two dogs run", "a man plays a guitar", "good time", "the snow is white", "a man", "it is a bad film"]
SECOND = ["two cats sleep", "a man plays", "bad time", "snow", "the band", "a great film"]
GOLD = [2.0, 4.5, 1.0, 3.5, 0.5, 1.5]


class SmallTask(sts.AbsTaskSTS):
    """Six pairs."""

    metadata = mteb.TaskMetadata(
        type="STS",
        name="SmallTask",
        description="pairs built in memory",
        dataset={"path": "none", "revision": "none"},
        main_score="cosine_spearman",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
    )

    def load_data(self, *_: object, **__: object) -> None:
        rows = datasets.Dataset.from_dict({"sentence1": FIRST, "sentence2": SECOND, "score": GOLD})
        self.dataset = datasets.DatasetDict({"test": rows})
        self.data_loaded = True


@pytest.fixture(scope="module")
def encoder(tiny_encoder) -> SentenceEncoder:
    return SentenceEncoder.load(tiny_encoder, pooling="mean", device="cpu", precision="fp32")


def test_a_task_has_the_score_that_scipy_computes(encoder):
    model = MtebEncoder(encoder, "tiny")
    assert isinstance(model, mteb.EncoderProtocol)
    result = mteb.evaluate(model, SmallTask(), cache=None, show_progress_bar=False)
    first, second = encoder.encode(FIRST, normalize=True), encoder.encode(SECOND, normalize=True)
    expected = spearmanr((first * second).sum(axis=1), GOLD).statistic
    (scores,) = result.task_results[0].scores["test"]
    assert scores["main_score"] == pytest.approx(expected, abs=1e-6)
    assert scores["spearman"] == pytest.approx(expected, abs=1e-6)
    assert (result.model_name, result.model_revision) == ("minbert-multitask/tiny", encoder.identity[:40])


def test_similarities(encoder):
    model = MtebEncoder(encoder, "someone/tiny")
    first, second = encoder.encode(FIRST), encoder.encode(SECOND)
    matrix = model.similarity(first, second)
    np.testing.assert_allclose(model.similarity_pairwise(first, second), matrix.diagonal(), atol=1e-6)
    assert model.name == "someone/tiny"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mteb_finds_nothing_wrong_with_it_on_any_kind_of_task(encoder):
    results = mteb.mock_run(MtebEncoder(encoder, "tiny"))
    errors = {name: status.exception for name, status in results.items() if hasattr(status, "exception")}
    assert not errors
    assert sum(status is not None for _, status in results.items()) >= 8
