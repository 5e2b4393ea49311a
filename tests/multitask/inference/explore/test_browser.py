"""The page in Debian's Chromium, used as a person would: by keyboard and mouse, wide and narrow, light and dark.

axe-core checks each view against the rules of WCAG that a program can check.
"""

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multitask.inference.explore.contrast import contrast, dropout_views
from multitask.inference.explore.dev_rows import Choice, chosen_rows
from multitask.inference.explore.routes import add_page
from multitask.inference.serve.app import create_app
from multitask.inference.serve.guard import LOOPBACK
from multitask.inference.serve.limits import Limits
from multitask.models.multitask_model import MultitaskModel
from multitask.objectives import build_objective
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

AXE = importlib.util.find_spec("axe_playwright_python")
"""The package brings axe-core's script."""

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
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto(address)
    quiet(page)
    yield page
    if SCREENSHOTS:
        name = request.node.name.replace(" ", "-")
        page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=True)
    # A phone scrolls tables, not the page.
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert page.problems == []
    assert {url.startswith((address, "blob:", "data:")) for url in asked} == {True}
    context.close()


def quiet(page: Page) -> None:
    """Wait until nothing is computed. The status says so from the event on that asks for it.

    `wait_for_function` would evaluate text as a script again and again, which the page's policy forbids.
    """
    page.locator("#status:empty").wait_for(state="attached")


def open_view(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()
    quiet(page)


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
    tab_to(page, page.get_by_role("button", name="Predict", exact=True))
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


def test_neighbours_among_ones_own_sentences(page, tmp_path):
    open_view(page, "Neighbours")
    assert page.locator("#own-sentences").is_hidden()
    page.get_by_label("Search in").select_option("your own sentences")
    quiet(page)
    assert page.locator("#found table").first.locator("td.text").count() == 4
    assert page.locator("#found table").first.locator("th").all_inner_texts() == ["Cosine", "Sentence"]
    page.locator("#own-sentences").fill("One.\nTwo.\n\n  Three.\nFour.\nTwo.")
    page.locator("#query").fill("Three.")
    page.get_by_role("button", name="Find").click()
    quiet(page)
    assert nearest(page) == ("1.000", "Three.")
    assert sorted(page.locator("#found table").first.locator("td.text").all_inner_texts()) == [
        "Four.",
        "One.",
        "Three.",
        "Two.",
    ]
    own = tmp_path / "own.txt"
    own.write_text(f"Two dogs run on the beach.\r\n{EVIL}\r\nA man plays.\r\n", encoding="utf-8")
    page.locator("#query").fill(EVIL)
    page.get_by_label("or from a text file").set_input_files(str(own))
    page.locator("#found td.text", has_text="Two dogs run").first.wait_for()
    quiet(page)
    assert nearest(page) == ("1.000", EVIL)
    assert page.locator("#found svg").first.locator("circle").count() == 4
    assert page.title() != "hacked"


def nearest(page: Page) -> tuple[str, str]:
    """Cosine and text of the first row."""
    cells = page.locator("#found table").first.locator("tr").nth(1).locator("td").all_inner_texts()
    return cells[0], cells[1]


def test_two_sentences_of_ones_own_are_too_few(page):
    open_view(page, "Neighbours")
    page.get_by_label("Search in").select_option("your own sentences")
    page.locator("#own-sentences").fill("One.\nTwo.")
    page.get_by_role("button", name="Find").click()
    page.locator("#status.error", has_text="2 different sentences; expected at least 3 for a map").wait_for()
    page.locator("#own-sentences").fill("")
    page.get_by_role("button", name="Find").click()
    page.locator("#status.error", has_text="0 different sentences; expected at least 3 for a map").wait_for()
    page.problems.clear()  # the browser's own lines about status 422


def test_neighbours_by_keyboard(page, dev_sets):
    """From the tab to the query, to the button, to the map."""
    page.get_by_role("tab", name="Predict").focus()
    page.keyboard.press("ArrowRight")
    quiet(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    text = dev_sets["sentiment"].corpus.sentences[3]
    page.keyboard.type(text)
    tab_to(page, page.get_by_role("button", name="Find"))
    page.keyboard.press("Enter")
    quiet(page)
    assert nearest(page) == ("1.000", text)
    tab_to(page, page.locator("#found svg").first)
    shown = []
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        shown.append(page.locator("#found .point").first.inner_text())
    labels = dev_sets["sentiment"].corpus.labels
    assert sorted(shown) == sorted(
        f"{each} ({label})" for each, label in zip(dev_sets["sentiment"].corpus.sentences, labels, strict=True)
    )


def tab_to(page: Page, goal: Any) -> None:
    """Press the tab key until this element has the focus."""
    for _ in range(30):
        if goal.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail("the tab key does not lead there")


def test_contrast(page):
    open_view(page, "Contrast")
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


def cells(page: Page, matrix: int) -> list[str]:
    return page.locator("#contrasted .matrix").nth(matrix).locator("td.heat").all_inner_texts()


def test_what_a_step_does_to_the_matrix_by_keyboard(page, encoder):
    open_view(page, "Contrast")
    before = cells(page, 0)
    assert any("▲" in cell for cell in cells(page, 1))
    page.get_by_role("tab", name="Contrast").focus()
    tab_to(page, page.get_by_role("slider", name="step"))
    page.keyboard.press("Home")
    quiet(page)
    assert cells(page, 1) == cells(page, 0) == before
    page.keyboard.press("End")
    quiet(page)
    sentences = page.locator("#sentences").input_value().splitlines()
    expected = contrast(build_objective("infonce"), *dropout_views(encoder, sentences, 0.1, seed=0), length=1)
    for matrix, values in enumerate((expected.similarity, expected.similarity_after)):
        shown = [float(cell.rstrip(" ▲▼")) for cell in cells(page, matrix)]
        assert shown == pytest.approx(values.flatten().tolist(), abs=0.0051)
    assert cells(page, 2)[::6] == ["–"] * 5  # a positive is no negative


def test_errors_by_keyboard(page, dev_sets):
    """Sort, filter and try a row."""
    page.get_by_role("tab", name="Predict").focus()
    page.keyboard.press("End")
    quiet(page)
    tab_to(page, page.get_by_label("only errors"))
    page.keyboard.press("Space")
    quiet(page)
    tab_to(page, page.get_by_role("button", name="Confidence"))
    page.keyboard.press("Enter")
    quiet(page)
    page.keyboard.press("Enter")  # the button keeps the focus
    quiet(page)
    expected = chosen_rows(dev_sets["sentiment"].rows["one"], Choice(only_wrong=True, order="confidence"))
    numbers = page.locator("#errors-table tbody tr td:first-child").all_inner_texts()
    assert numbers == [str(row.row) for row in expected]
    assert page.get_by_role("columnheader", name="Confidence").get_attribute("aria-sort") == "ascending"
    tab_to(page, page.get_by_role("button", name="predict row").first)
    page.keyboard.press("Enter")
    quiet(page)
    assert page.evaluate("document.activeElement.id") == "first"
    assert page.locator("#first").input_value() == expected[0].texts[0]


def test_tabs_by_arrow_keys(page):
    page.get_by_role("tab", name="Predict").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "tab-errors"
    page.keyboard.press("Home")
    assert page.locator("[role=tabpanel]:visible").get_attribute("id") == "predict"


def test_errors(page, dev_sets):
    open_view(page, "Errors")
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
        page.wait_for_selector("#predictions h3")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.reload()
        page.wait_for_selector("#token-dialog[open]")
        page.context.close()


def with_tasks(model: MultitaskModel, *names: str) -> MultitaskModel:
    tasks = {name: model.tasks[name] for name in names}
    return MultitaskModel(model.encoder, model.tokenizer, tasks, model.pooling, model.heads_config).eval()


def test_a_model_that_cannot_answer_does_not_hide_the_other(browser, models, dev_sets):
    one = models["one"]
    app = create_app({"one": one, "films": with_tasks(one, "sentiment")}, Limits(), hosts=LOOPBACK)
    add_page(app, dev_sets)
    with served(app) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        quiet(page)
        assert page.locator("#predictions h2").all_inner_texts() == ["one", "films"]
        page.locator("#second").fill("Dogs run.")
        page.get_by_role("button", name="Predict", exact=True).click()
        page.locator("#status.error", has_text="films: no task of the model reads pairs of sentences").wait_for()
        assert page.locator("#predictions h2").all_inner_texts() == ["one"]
        page.context.close()


def test_a_model_without_tasks_says_so(browser, models, dev_sets):
    app = create_app({"one": models["one"], "bare": with_tasks(models["one"])}, Limits(), hosts=LOOPBACK)
    add_page(app, dev_sets)
    with served(app) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        quiet(page)
        assert page.locator("#predictions h2").all_inner_texts() == ["one", "bare"]
        assert page.get_by_text("This model has no tasks").count() == 1
        open_view(page, "Contrast")
        assert page.locator("#contrasted h2").all_inner_texts() == ["one", "bare"]
        page.context.close()


def test_integrated_gradients_show_whether_they_add_up(page):
    pytest.importorskip("captum", reason="needs: pip install captum")
    page.get_by_label("Effects of words by").select_option("integrated gradients")
    quiet(page)
    texts = page.locator("#predictions .completeness").all_inner_texts()
    assert len(texts) == 2
    for text in texts:
        sums, values = re.findall(r"add up to (\S+)\. Text \S+ minus baseline \S+ is (\S+);", text)[0]
        assert float(sums.replace("−", "-")) == pytest.approx(float(values.replace("−", "-")), abs=0.01)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing(browser, address, size, colours):
    if AXE is None:
        pytest.skip("needs: pip install axe-playwright-python")
    script = Path(*AXE.submodule_search_locations, "axe.min.js").read_text(encoding="utf-8")
    page = browser.new_context(viewport=size, color_scheme=colours).new_page()
    page.goto(address)
    quiet(page)
    page.evaluate(script)
    for view in ("Predict", "Neighbours", "Contrast", "Errors"):
        open_view(page, view)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        found = page.evaluate("axe.run()")
        problems = [
            f"{view}: {rule['id']}: {rule['help']}: {node['html'][:200]} {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]
        assert problems == []
        assert len(found["passes"]) > 20
    page.context.close()
