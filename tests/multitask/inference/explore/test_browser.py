"""The page in Debian's Chromium, used as a person would: by keyboard and mouse, wide and narrow, light and dark."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multitask.inference.explore.dev_rows import Choice, chosen_rows
from multitask.inference.explore.routes import add_page
from multitask.inference.serve.app import create_app
from multitask.inference.serve.guard import LOOPBACK
from multitask.inference.serve.limits import Limits
from multitask.models.multitask_model import MultitaskModel
from tests.multitask.inference.serve.conftest import served

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
SCREENSHOTS = os.environ.get("SCREENSHOTS")
"""A folder for pictures to look at."""
EVIL = "<img src=x onerror=\"document.title='hacked'\"> <b>bold</b>"

Page = Any


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(models, dev_sets) -> Iterator[str]:
    app = create_app(models, Limits(), hosts=LOOPBACK)
    add_page(app, dev_sets)
    with served(app) as address:
        yield address


@pytest.fixture(params=["wide light", "narrow dark"])
def page(request, browser, address) -> Iterator[Page]:
    narrow = request.param == "narrow dark"
    context = browser.new_context(viewport=NARROW if narrow else WIDE, color_scheme="dark" if narrow else "light")
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto(address)
    page.wait_for_selector("#predictions h3")
    yield page
    if SCREENSHOTS:
        name = request.node.name.replace(" ", "-")
        page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=True)
    # A phone scrolls tables, not the page.
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert problems == []
    assert {url.startswith((address, "blob:", "data:")) for url in asked} == {True}
    context.close()


def quiet(page: Page) -> None:
    """Wait until nothing is computed."""
    page.wait_for_timeout(250)
    page.wait_for_function("document.querySelector('#status').textContent === ''")


def test_predict(page, models):
    page.locator("#first").fill(EVIL)
    page.get_by_role("button", name="Predict", exact=True).click()
    quiet(page)
    expected = {name: model.predict("sentiment", [EVIL])[0].label for name, model in models.items()}
    shown = page.locator("#predictions [data-task=sentiment] strong").all_inner_texts()
    assert shown == [expected["one"], expected["two"]]  # side by side
    assert page.locator("#predictions .word").count() == 2 * len(EVIL.split())
    assert page.title() != "hacked"
    assert page.locator("main img, main b").count() == 0


def test_a_pair_by_keyboard(page):
    page.locator("#first").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("Two dogs run.")
    page.keyboard.press("Tab")
    page.keyboard.type("Dogs are running.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    quiet(page)
    headings = page.locator("#predictions h3").all_inner_texts()
    assert [heading.partition(":")[0] for heading in headings] == ["paraphrase", "similarity"] * 2


def test_a_dev_example(page, dev_sets):
    page.get_by_label("Dev example").select_option(index=2)
    quiet(page)
    (text,) = dev_sets["sentiment"].rows["one"][1].texts
    assert page.locator("#first").input_value() == text
    assert page.locator("#predictions .words").first.inner_text().split() == text.split()


def test_neighbours(page, tmp_path):
    page.get_by_role("tab", name="Neighbours").click()
    page.wait_for_selector("#found svg circle")
    own = tmp_path / "own.txt"
    own.write_text(f"Two dogs run on the beach.\n{EVIL}\nA man plays.\nThe market fell.\n", encoding="utf-8")
    page.get_by_label("or a text file").set_input_files(str(own))
    quiet(page)
    first = page.locator("#found table").first
    assert first.locator("tr").nth(1).inner_text().startswith("1\tTwo dogs run") or "1.000" in first.inner_text()
    assert first.locator("td.text").count() == 4
    assert page.locator("#found svg").first.locator("circle").count() == 5
    page.locator("#found svg").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#found .point").first.inner_text() != ""


def test_contrast(page):
    page.get_by_role("tab", name="Contrast").click()
    page.wait_for_selector("#contrasted .matrix")
    quiet(page)
    assert page.locator("#contrasted .matrix").count() == 6  # three of each model
    assert page.locator("#contrasted .matrix").first.locator("td.heat").count() == 25
    before = page.locator("#contrasted .anchors").first.inner_text()
    page.get_by_label("temperature").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")  # a softer softmax
    quiet(page)
    assert page.locator("#contrasted .anchors").first.inner_text() != before
    page.get_by_label("Objective", exact=False).first.select_option("vicreg")
    quiet(page)
    assert page.get_by_label("use dissipation").is_checked() is False
    page.get_by_label("use dissipation").check()
    quiet(page)
    assert page.locator("#contrasted .anchors").count() == 2


def test_tabs_by_arrow_keys(page):
    page.get_by_role("tab", name="Predict").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "tab-errors"
    page.keyboard.press("Home")
    assert page.locator("[role=tabpanel]:visible").get_attribute("id") == "predict"


def test_errors(page, dev_sets):
    page.get_by_role("tab", name="Errors").click()
    page.wait_for_selector("#errors-table tbody tr")
    rows = dev_sets["sentiment"].rows["one"]
    page.get_by_role("button", name="Confidence").click()
    quiet(page)
    page.get_by_label("only errors").check()
    quiet(page)
    expected = chosen_rows(rows, Choice(only_wrong=True, order="confidence", descending=True))
    numbers = page.locator("#errors-table tbody tr td:first-child").all_inner_texts()
    assert numbers == [str(row.row) for row in expected]
    page.locator("#gold").select_option(expected[0].gold)
    quiet(page)
    kept = [row for row in expected if row.gold == expected[0].gold]
    assert page.locator("#errors-table tbody tr").count() == len(kept)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    written = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "sentiment-dev.csv"
    assert len(written.splitlines()) == len(kept) + 1
    page.get_by_role("button", name="predict row").first.click()
    quiet(page)
    assert page.locator("#first").input_value() == kept[0].texts[0]


def test_the_token_is_asked_for_and_not_kept(browser, models, dev_sets):
    app = create_app(models, Limits(), token="sesame", hosts=LOOPBACK)
    add_page(app, dev_sets)
    with served(app) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        for token in ("wrong", "sesame"):
            page.get_by_role("textbox", name="Token").fill(token)
            page.keyboard.press("Enter")
            page.wait_for_timeout(300)
        page.wait_for_selector("#predictions h3")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.reload()
        page.wait_for_selector("#token-dialog[open]")
        page.context.close()


def test_a_model_that_cannot_answer_does_not_hide_the_other(browser, models, dev_sets):
    one = models["one"]
    bare = MultitaskModel(one.encoder, one.tokenizer, {}, one.pooling, one.heads_config).eval()
    app = create_app({"one": one, "bare": bare}, Limits(), hosts=LOOPBACK)
    add_page(app, dev_sets)
    with served(app) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        page.wait_for_selector("#predictions h3")
        assert page.get_by_role("status").inner_text() == "bare: no task of the model reads sentences; it has no tasks"
        assert page.locator("#predictions h2").all_inner_texts() == ["one"]
        page.get_by_role("tab", name="Contrast").click()
        quiet(page)
        assert page.locator("#contrasted h2").all_inner_texts() == ["one", "bare"]
        page.context.close()
