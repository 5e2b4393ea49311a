"""Answers equal those of the model in Python; what cannot be answered is a 4xx that says why."""

import base64
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from starlette.testclient import TestClient

from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.service.app import LOOPBACK, create_app
from multitask.service.limits import Limits
from multitask.service.served_model import EmbedRequest, OpenAIRequest, PredictRequest, SimilarityRequest

TEXTS = ["A gem.", "", "The band seemed to have a good time. " * 4, "ünïcödé \u4e2d\u6587 🙂", "time " * 200]
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))
LIMITS = Limits(texts=40, characters=2000, body=20_000, queue=200)


@pytest.fixture(scope="module")
def client(model) -> Iterator[TestClient]:
    with TestClient(create_app({"tiny": model, "again": model}, LIMITS)) as client:
        yield client


@pytest.fixture(scope="module")
def encoder(model) -> SentenceEncoder:
    return model.encoder


@pytest.mark.parametrize("rows", [TEXTS, PAIRS, TEXTS[:1]], ids=["texts", "pairs", "one"])
def test_predictions_equal_those_in_python(client, model, rows):
    answer = client.post("/v1/predict", json={"texts": rows}).json()
    expected = model.predict_all(rows)
    assert answer["model"] == "tiny"
    assert answer["predictions"].keys() == expected.keys()
    some = client.post("/v1/predict", json={"texts": rows, "tasks": list(expected)[:0:-1]}).json()["predictions"]
    assert list(some) == list(expected)[:0:-1]
    if len(rows) > 1:  # otherwise the comparison below could not fail
        assert all(len(set(map(str, predictions))) > 2 for predictions in expected.values())
    for name, predictions in expected.items():
        for found, prediction in zip(answer["predictions"][name], predictions, strict=True):
            if prediction.value is not None:
                assert found == {"value": pytest.approx(prediction.value, abs=1e-5)}
                continue
            assert found.pop("probabilities") == pytest.approx(dict(prediction.probabilities), abs=1e-5)
            if prediction.label is None:
                assert found == {"labels": list(prediction.labels)}
            else:
                assert found == {"label": prediction.label, "probability": pytest.approx(prediction.probability)}


@pytest.mark.parametrize("normalize", [False, True])
def test_embeddings_equal_the_encoders(client, encoder, normalize):
    answer = client.post("/v1/embed", json={"texts": TEXTS, "normalize": normalize}).json()
    np.testing.assert_allclose(answer["embeddings"], encoder.encode(TEXTS, normalize=normalize), rtol=0, atol=1e-5)


def test_similarities_are_cosines(client, encoder):
    answer = client.post("/v1/similarity", json={"first": TEXTS[:2], "second": TEXTS}).json()
    unit = encoder.encode(TEXTS).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(answer["similarities"], unit[:2] @ unit.T, rtol=0, atol=1e-5)


def test_openais_shape(client, encoder):
    asked = {"input": TEXTS, "model": "again", "user": "ignored"}
    plain = client.post("/v1/embeddings", json=asked).json()
    packed = client.post("/v1/embeddings", json=asked | {"encoding_format": "base64"}).json()
    expected = encoder.encode(TEXTS, normalize=True)
    for answer in (plain, packed):
        assert (answer["object"], answer["model"]) == ("list", "again")
        tokens = sum(map(len, encoder.tokenizer.encode(TEXTS, encoder.max_length)))
        assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert [(row["object"], row["index"]) for row in answer["data"]] == [("embedding", i) for i in range(5)]
    decoded = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in packed["data"]]
    np.testing.assert_allclose(decoded, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose([row["embedding"] for row in plain["data"]], expected, rtol=0, atol=1e-5)
    single = client.post("/v1/embeddings", json={"input": TEXTS[0], "model": "tiny", "dimensions": 8}).json()
    short = expected[0, :8] / np.linalg.norm(expected[0, :8])
    np.testing.assert_allclose(single["data"][0]["embedding"], short, rtol=0, atol=1e-5)
    raw = client.post("/v1/embed", json={"texts": TEXTS, "dimensions": 8}).json()
    np.testing.assert_allclose(raw["embeddings"], encoder.encode(TEXTS)[:, :8], rtol=0, atol=1e-5)


def test_tasks_are_described(client):
    models = client.get("/v1/tasks").json()["models"]
    assert list(models) == ["tiny", "again"]
    mood = {"kind": "classification", "pair": False, "labels": ["bad", "fair", "good"], "range": None}
    assert models["tiny"]["mood"] == mood
    assert models["tiny"]["similarity"] == {"kind": "cosine", "pair": True, "labels": None, "range": [0, 5]}


POST = [
    ("/v1/predict", {"texts": "A gem."}, 422, "texts: Input should be a valid list"),
    ("/v1/predict", {"texts": []}, 422, "texts"),
    ("/v1/predict", {"texts": ["a", ["b", "c"]]}, 422, "texts.1"),
    ("/v1/predict", {"texts": ["a", 10**400]}, 422, "texts.1"),
    ("/v1/predict", {"texts": ["a"], "task": ["mood"]}, 422, "task: Extra inputs"),
    ("/v1/predict", {"texts": ["a"], "tasks": ["same"]}, 422, "same reads pairs of sentences"),
    ("/v1/predict", {"texts": ["a"], "model": "big"}, 404, 'no model "big"; there are: tiny, again'),
    ("/v1/predict", {"texts": ["a\0b"]}, 422, "text 0 contains a NUL"),
    ("/v1/predict", {"texts": ["a", "\ud800"]}, 422, "text 1 contains a NUL character or half of a surrogate pair"),
    ("/v1/predict", {"texts": ["a"], "tasks": ["\udfff"]}, 422, "no task"),
    ("/v1/predict", {"texts": ["a"], "model": "\udfff"}, 404, "no model"),
    ("/v1/predict", {"texts": ["a"], "\udfff": 1}, 422, "string"),
    ("/v1/predict", {"texts": ["a" * 2001]}, 422, "text 0 has 2,001 characters; expected at most 2,000"),
    ("/v1/predict", {"texts": [["a", "b"]] * 21}, 422, "more than 40 texts"),
    ("/v1/predict", {"texts": ["a" * 1500] * 14}, 413, "20,000 bytes"),
    ("/v1/similarity", {"first": ["a"] * 21, "second": ["b"] * 20}, 422, "more than 40 texts"),
    ("/v1/embeddings", {"input": [[1, 2]], "model": "tiny"}, 422, "input.0"),
    ("/v1/embeddings", {"input": [], "model": "tiny"}, 422, "input: List should have at least 1 item"),
    ("/v1/embeddings", {"input": "a", "model": "tiny", "dimensions": 33}, 422, "dimensions is 33; the embeddings of"),
    ("/v1/embed", {"texts": ["a"], "dimensions": 0}, 422, "dimensions is 0; the embeddings of tiny have 32"),
]


@pytest.mark.parametrize(("path", "body", "status", "text"), POST)
def test_wrong_requests_are_refused_in_one_line(client, path, body, status, text):
    answer = client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}
    assert text in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"texts": ["a"', 400),
        (b'{"texts": ["\xff"]}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 19_000, 400),
        (b'{"texts": ' + b'{"a":' * 3000 + b"1" + b"}" * 3001, None),
        (b'{"texts": [' + b"9" * 5000 + b"]}", 400),
        (b"", 422),
    ],
)
def test_what_is_no_request_at_all_is_refused(client, body, status):
    """None: the answer depends on how deep Python's JSON parser goes."""
    answer = client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status or (status is None and answer.status_code in (400, 422))
    assert answer.json().keys() == {"error"}
    assert answer.json()["error"].startswith("the body") or not body


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PredictRequest, {"texts": [[]] * 1000}),
        (PredictRequest, {"texts": [["a", []]] * 1000}),
        (PredictRequest, {"texts": ["a"], "tasks": [1] * 1000}),
        (SimilarityRequest, {"first": [1] * 1000, "second": [[]] * 1000}),
        (OpenAIRequest, {"model": "tiny", "input": [{}] * 1000}),
        (EmbedRequest, {"texts": ["a"]} | {f"field {i}": i for i in range(1000)}),
    ],
)
def test_the_first_errors_of_a_request_end_its_check(kind, body):
    """A list of nothing in three bytes would otherwise be three errors of kilobytes."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() < 5


def test_a_form_of_another_site_is_refused(client):
    """Browsers send such a request to any address without asking; JSON they would ask for."""
    answer = client.post("/v1/embed", content=b'{"texts": ["a"]}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 422
    assert answer.json()["error"].endswith("without the header Content-Type: application/json")
    allowed = client.get("/v1/tasks", headers={"Origin": "https://example.org"})
    assert not [name for name in allowed.headers if name.startswith("access-control")]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v2", 404), ("PUT", "/v1/embed", 405)])
def test_other_paths_and_methods(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}


def test_the_token_is_asked_for_everywhere_but_where_it_tells_nothing(model):
    with TestClient(create_app({"tiny": model}, LIMITS, token="s3cret")) as client:
        paths = client.get("/openapi.json").json()["paths"]
        for path, methods in paths.items():
            method = next(iter(methods))
            for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
                assert (client.request(method, path, headers=headers).status_code == 401) == (path != "/healthz"), path
        right = {"Authorization": "Bearer s3cret"}
        assert client.post("/v1/embed", json={"texts": ["a"]}, headers=right).status_code == 200
        assert client.get("/v1/tasks", headers={"Authorization": "bearer s3cret"}).status_code == 200  # RFC 9110
        assert client.get("/v1/tasks", headers={"Authorization": b"Bearer \xff"}).status_code == 401
        assert client.get("/v1/tasks").headers["www-authenticate"] == "Bearer"


def test_the_health_is_that_of_the_thread_that_computes(model):
    app = create_app({"tiny": model}, LIMITS)
    with TestClient(app) as client:
        assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok")
        client.portal.call(app.state.service.models["tiny"].batcher.close)
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()) == (503, {"error": "tiny does not compute any more"})


def test_an_error_shows_a_short_part_of_a_long_request(model):
    with TestClient(create_app({"tiny": model}, Limits())) as client:
        for body in ({"model": "x" * 100_000}, {"x" * 100_000: 1}):
            answer = client.post("/v1/predict", json={"texts": ["a"]} | body)
            assert answer.status_code in (404, 422)
            assert len(answer.content) < 1000


def test_a_failure_tells_nothing_about_the_program(model, monkeypatch):
    with TestClient(create_app({"tiny": model}, LIMITS), raise_server_exceptions=False) as client:
        with monkeypatch.context() as patch:
            patch.setattr(MultitaskModel, "head", lambda *_: 1 / 0)
            answer = client.post("/v1/predict", json={"texts": ["a"]})
            assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})
        assert metrics(client)["multitask_requests_total", ("/v1/predict", "500")] == 1
        assert client.post("/v1/predict", json={"texts": ["a"]}).status_code == 200


def test_metrics_count(model):
    with TestClient(create_app({"tiny": model}, LIMITS)) as client:
        before = metrics(client)
        client.post("/v1/embed", json={"texts": TEXTS})
        client.post("/v1/embed", json={"texts": 1})
        client.get("/secret/1")
        client.get("/secret/2")
        after = metrics(client)
    found = {key: after[key] - before.get(key, 0) for key in after}
    assert found["multitask_requests_total", ("/v1/embed", "200")] == 1
    assert found["multitask_requests_total", ("/v1/embed", "422")] == 1
    assert found["multitask_requests_total", ("other", "404")] == 2
    assert found["multitask_inputs_total", ()] == 5
    lengths = map(len, model.encoder.tokenizer.encode(TEXTS, model.encoder.max_length))
    assert found["multitask_batch_tokens_sum", ()] == sum(lengths)
    assert after["multitask_waiting_inputs", ("tiny",)] == 0


def metrics(client: TestClient) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


def test_on_loopback_other_host_names_are_refused(model):
    own = dict.fromkeys(("LOCALHOST", "127.0.0.1:80", "[::1]:8000"), 200)
    expected = own | dict.fromkeys(("evil.example:8000", "localhost.evil.example", ""), 400)
    with TestClient(create_app({"tiny": model}, LIMITS, hosts=LOOPBACK)) as client:
        assert {host: client.get("/v1/tasks", headers={"Host": host}).status_code for host in expected} == expected


def test_the_page_about_the_routes_works_offline(client):
    page = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=\"(?!openapi\.json)", page)
