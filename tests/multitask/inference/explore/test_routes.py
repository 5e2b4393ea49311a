"""The page's routes: answers equal the library's, mistakes are a 4xx that says why, and nobody else may ask."""

import csv
import io
import json
import sys
from collections.abc import Iterator

import pytest
import torch
from starlette.testclient import TestClient

from multitask.evaluation.gradient_probe import probe
from multitask.inference.explore.contrast import dropout_views
from multitask.inference.explore.explorer import load_dev_sets
from multitask.inference.explore.routes import ASSETS, add_page
from multitask.inference.serve.app import create_app
from multitask.inference.serve.guard import LOOPBACK
from multitask.inference.serve.limits import Limits
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import build_objective

SENTENCES = ["Two dogs run.", "A band plays.", "The film is long."]


@pytest.fixture(scope="module")
def client(models, dev_sets) -> Iterator[TestClient]:
    app = create_app(models, Limits(texts=40, characters=200))
    add_page(app, dev_sets)
    with TestClient(app) as client:
        yield client


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for path in (f"explore/assets/{name}" for name in ASSETS):
        assert f'"{path}"' in page.text
        asset = client.get(path)
        assert asset.status_code == 200
        assert "https://" not in asset.text
    assert "https://" not in page.text
    assert page.text.count('"explore/assets/') == len(ASSETS)
    assert client.get("/explore/assets/routes.py").status_code == 404
    assert client.get("/explore/assets/..%2Froutes.py").status_code == 404


def test_the_page_is_no_part_of_the_documented_service(client):
    assert not [path for path in client.get("/openapi.json").json()["paths"] if "explore" in path]


def test_the_setup_names_models_dev_sets_and_objectives(client, dev_sets):
    setup = client.get("/explore/setup").json()
    assert list(setup["models"]) == ["one", "two"]
    assert setup["models"]["one"]["sentiment"]["labels"] == list("01234")
    assert setup["dev_sets"]["similarity"]["models"] == ["one", "two"]
    assert setup["dev_sets"]["sentiment"]["examples"][0] == list(dev_sets["sentiment"].rows["one"][0].texts)
    assert setup["objectives"]["vicreg"]["controls"][1]["optional"]


@pytest.mark.parametrize("texts", [["A gem of a film."], ["Two dogs run.", "Dogs are running."]], ids=["one", "pair"])
def test_predictions_and_effects_equal_those_of_the_model(client, models, texts):
    answer = client.post("/explore/predict", json={"model": "two", "texts": texts}).json()
    row = texts[0] if len(texts) == 1 else tuple(texts)
    expected = models["two"].predict_all([row])
    assert answer["tasks"].keys() == expected.keys()
    words = [(column, word) for column, text in enumerate(texts) for word in text.split()]
    assert [(word["column"], word["text"]) for word in answer["words"]] == words
    for place, (column, _) in enumerate(words):
        left = [text.split() for text in texts]
        before = sum(len(part) for part in left[:column])
        del left[column][place - before]
        shorter = " ".join(left[0]) if len(texts) == 1 else tuple(map(" ".join, left))
        for task, found in answer["tasks"].items():
            (whole,), (partial,) = expected[task], models["two"].predict(task, [shorter])
            if whole.value is None:
                change = whole.probability - partial.probabilities[whole.label]
                assert found["prediction"]["label"] == found["explained"] == whole.label
            else:
                change = whole.value - partial.value
            assert found["effects"][place] == pytest.approx(change, abs=1e-4)


def test_integrated_gradients_explain_the_number_that_is_shown(client, models):
    pytest.importorskip("captum", reason="needs: pip install captum")
    asked = {"model": "two", "texts": ["A gem of a film."], "effects": "integrated_gradients"}
    answer = client.post("/explore/predict", json=asked).json()
    found = answer["tasks"]["sentiment"]
    (expected,) = models["two"].predict("sentiment", asked["texts"])
    assert found["explained"] == found["prediction"]["label"] == expected.label
    assert found["row"] == pytest.approx(expected.probability, abs=1e-5)
    assert len(found["effects"]) == len(answer["words"]) == 5
    assert sum(found["effects"]) - (found["row"] - found["baseline"]) == pytest.approx(found["gap"])


@pytest.mark.parametrize(
    ("path", "body", "package"),
    [
        ("predict", {"texts": ["a"], "effects": "integrated_gradients"}, "captum"),
        ("neighbours", {"query": "a", "task": "sentiment", "method": "umap"}, "umap-learn"),
    ],
)
def test_without_the_extra_one_line_says_what_to_install(client, monkeypatch, path, body, package):
    for module in ("captum", "captum.attr", "umap"):
        monkeypatch.setitem(sys.modules, module, None)
    answer = client.post(f"/explore/{path}", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"].endswith(f' {package}; install with: pip install -e ".[explore]"')


@pytest.mark.parametrize("where", [{"task": "sentiment"}, {"sentences": SENTENCES}], ids=["dev", "own"])
def test_a_sentence_is_its_own_nearest(client, dev_sets, where):
    known = dev_sets["sentiment"].corpus.sentences if "task" in where else SENTENCES
    answer = client.post("/explore/neighbours", json={"query": known[1], **where}).json()
    assert answer["nearest"][0]["text"] == known[1]
    assert answer["nearest"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert answer["query"] == pytest.approx(answer["points"][1], abs=1e-3)
    assert answer["texts"] == list(known)


def test_a_corpus_is_embedded_once_for_many_queries(client, monkeypatch):
    sizes = []
    plain = SentenceEncoder.encode
    monkeypatch.setattr(
        SentenceEncoder, "encode", lambda self, texts, **how: sizes.append(len(texts)) or plain(self, texts, **how)
    )
    for number in range(12):
        asked = {"query": f"query {number}", "sentences": ["one", "two", "three", "four"]}
        assert client.post("/explore/neighbours", json=asked).status_code == 200
    assert sizes == [4] + [1] * 12


def test_a_contrast_equals_the_probe(client, encoder):
    asked = {"sentences": SENTENCES, "objective": "infonce", "parameters": {"temperature": 0.2}, "seed": 5}
    answer = client.post("/explore/contrast", json=asked).json()
    expected = probe(build_objective("infonce", temperature=0.2), *dropout_views(encoder, SENTENCES, 0.1, 5))
    for part in ("dissipation", "ratio", "weights", "hardest_weight"):
        torch.testing.assert_close(torch.tensor(answer[part], dtype=torch.float64), getattr(expected, part))
    assert answer["losses"][1] < answer["losses"][0]


def test_an_undefined_ratio_is_null(client):
    asked = {"sentences": SENTENCES, "objective": "mpt", "parameters": {"margin": 0.0}, "dropout": 0.0}
    answer = client.post("/explore/contrast", json=asked)
    assert json.loads(answer.text, parse_constant=pytest.fail)["ratio"] == [None] * 3


def test_the_table_and_its_file_have_the_same_rows(client):
    asked = {"task": "sentiment", "only_wrong": True, "order": "confidence", "descending": True}
    table = client.post("/explore/errors", json=asked).json()
    file = client.post("/explore/errors.csv", json=asked)
    rows = list(csv.DictReader(io.StringIO(file.text)))
    assert [int(row["row"]) for row in rows] == [row["row"] for row in table["rows"]]
    assert table["chosen"] == len(rows) > 0
    confidences = [row["confidence"] for row in table["rows"]]
    assert confidences == sorted(confidences, reverse=True)
    assert 'filename="sentiment-dev.csv"' in file.headers["content-disposition"]


MISTAKES = [
    ("predict", {"texts": []}, 422, "texts"),
    ("predict", {"texts": ["a", "b", "c"]}, 422, "texts"),
    ("predict", {"texts": ["a" * 201]}, 422, "201 characters"),
    ("predict", {"texts": ["a\0"]}, 422, "NUL"),
    ("predict", {"texts": ["a"], "model": "three"}, 404, "no model"),
    ("predict", {"texts": ["a"], "effects": "magic"}, 422, "effects"),
    ("neighbours", {"query": "a", "task": "sentiment", "method": "tsne"}, 422, "method"),
    ("neighbours", {"query": "a", "sentences": []}, 422, "0 different sentences; expected at least 3"),
    ("neighbours", {"query": "a"}, 422, "either a task or sentences"),
    ("neighbours", {"query": "a", "task": "taste"}, 404, "no dev set of taste; there are: sentiment"),
    ("neighbours", {"query": "a", "sentences": ["a", "b"]}, 422, "at least 3"),
    ("neighbours", {"query": "a", "sentences": [str(i) for i in range(2001)]}, 422, "more than 2,000"),
    ("contrast", {"sentences": ["a"], "objective": "infonce"}, 422, "expected 2 to 12"),
    ("contrast", {"sentences": SENTENCES, "objective": "magic"}, 422, 'unknown objective "magic"'),
    ("contrast", {"sentences": SENTENCES, "objective": "cosine"}, 422, "learns from labels"),
    ("contrast", {"sentences": SENTENCES, "objective": "infonce", "parameters": {"temperature": 0}}, 422, "above 0"),
    ("contrast", {"sentences": SENTENCES, "objective": "infonce", "parameters": {"heat": 1}}, 422, "no parameter"),
    ("contrast", {"sentences": SENTENCES, "objective": "infonce", "dropout": 1}, 422, "dropout"),
    ("errors", {"task": "taste"}, 404, "no dev set"),
    ("errors", {"task": "sentiment", "order": "size"}, 422, "order"),
    ("errors.csv", {"task": "sentiment", "start": -1}, 422, "start"),
]


@pytest.mark.parametrize(("path", "body", "status", "error"), MISTAKES)
def test_mistakes_are_explained(client, path, body, status, error):
    answer = client.post(f"/explore/{path}", json=body)
    assert answer.status_code == status
    assert error in answer.json()["error"]


def test_the_token_guards_all_but_the_page_itself(models):
    app = create_app(models, Limits(), token="sesame")
    add_page(app, {})
    with TestClient(app) as client:
        for path in ("/", *(f"/explore/assets/{name}" for name in ASSETS)):
            page = client.get(path)
            assert page.status_code == 200
            assert "sentiment" not in page.text
        assert client.get("/explore/setup").status_code == 401
        for path in ("predict", "neighbours", "contrast", "errors", "errors.csv"):
            assert client.post(f"/explore/{path}", json={}).status_code == 401
        assert client.get("/explore/setup", headers={"Authorization": "Bearer sesame"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:8000", 200),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_on_loopback_other_host_names_are_refused(models, host, status):
    with TestClient(create_app(models, Limits(), hosts=LOOPBACK)) as client:
        assert client.get("/healthz", headers={"Host": host}).status_code == status


def test_an_encoder_without_tasks_has_neighbours_and_contrasts(models, small_data):
    plain = models["one"]
    bare = MultitaskModel(plain.encoder, plain.tokenizer, {}, plain.pooling, plain.heads_config).eval()
    app = create_app({"bare": bare}, Limits())
    add_page(app, load_dev_sets({"bare": bare}, small_data, 10))
    with TestClient(app) as client:
        assert client.get("/explore/setup").json()["dev_sets"]["sentiment"]["models"] == []
        assert client.post("/explore/neighbours", json={"query": "a", "task": "paraphrase"}).status_code == 200
        asked = {"sentences": SENTENCES, "objective": "infonce"}
        assert client.post("/explore/contrast", json=asked).status_code == 200
        refused = client.post("/explore/errors", json={"task": "sentiment"})
        assert (refused.status_code, refused.json()["error"]) == (404, "bare has no task sentiment")
        assert client.post("/explore/predict", json={"texts": ["a"]}).status_code == 422
