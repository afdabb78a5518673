"""The page of `tilewright explain` in a browser: it draws, links, answers keys, and runs nothing but its own script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, Page, chromium
from test_explain import HOSTILE, hostile_model
from tilewright.driver.main import main

BROWSER = chromium()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
VIEWS = ("overview", "passes", "program", "kernels", "run", "memory")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a network whose nodes are called as no node should be."""
    folder = tmp_path_factory.mktemp("report")
    model = hostile_model(folder)
    assert main(["explain", str(model), "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert BROWSER is not None
    with Browser(BROWSER, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, report: Path) -> Page:
    browser.events.clear()
    return browser.open(report)


def lit(page: Page, pane: str, mark: str = "exact") -> list[int]:
    """The numbers of the lines of a pane that are lit."""
    found: list[int] = page.evaluate(
        f"[...document.querySelectorAll('[aria-label=\"{pane}\"] .{mark}')].map((l) => Number(l.dataset.n))"
    )
    return found


@pytest.mark.slow
def test_every_view_draws_and_nothing_leaves_the_file(page: Page) -> None:
    drawn = {
        "overview": ".tile", "passes": ".row.add", "program": "svg.graph .node", "kernels": ".ln", "run": "circle.dot",
        "memory": "rect.value",
    }
    for view in VIEWS:
        page.evaluate(f"location.hash = '{view}'")
        page.until(f"document.querySelector('{drawn[view]}')")
        assert page.evaluate("document.querySelector('.tabs [aria-current]').textContent").lower() == view
    page.evaluate("location.hash = 'passes/1/graph'")
    page.until("document.querySelectorAll('svg.graph').length === 2")
    seen = (
        "[...document.querySelectorAll('.canvas')].map((c) => { const f = c.getBoundingClientRect(); return "
        "[...c.querySelectorAll('.node')].some((n) => { const b = n.getBoundingClientRect(); return b.left >= f.left "
        "&& b.right <= f.right && b.top >= f.top && b.bottom <= f.bottom; }); })"
    )
    assert page.evaluate(seen) == [True, True]
    page.evaluate("location.hash = 'program'")
    page.until("document.querySelectorAll('.canvas').length === 1")
    assert page.evaluate(seen) == [True]
    assert page.complaints == []


def test_a_line_lights_what_it_came_from_and_what_it_became(page: Page) -> None:
    page.evaluate("location.hash = 'kernels/0'")
    page.until("document.querySelector('[aria-label=Assembly] .exact')")  # the busiest line is shown at once
    chosen = page.evaluate("document.querySelector('[aria-label=Assembly] .exact').dataset.n")
    page.click(f"[aria-label=Assembly] [data-n='{chosen}']")
    assert lit(page, "Assembly") == [int(chosen)]
    assert len(lit(page, "LLVM")) == len(lit(page, "TIR")) == 1
    assert lit(page, "Relay")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=4, y=4)  # what is under the pointer lights up, too
    page.evaluate("document.querySelector('[aria-label=TIR]').focus()")
    page.press("ArrowDown")
    first = lit(page, "TIR")
    page.press("ArrowDown")
    assert lit(page, "TIR") == [first[0] + 1]
    page.press("Escape")
    assert lit(page, "TIR") == []


def test_keys_and_search_find_their_way(page: Page) -> None:
    page.press("2")
    page.until("location.hash === '#passes'")
    page.until("document.querySelector('.menu [aria-current]')")
    before = page.evaluate("document.querySelector('.menu [aria-current]').textContent")
    page.press("j")
    page.until(f"(document.querySelector('.menu [aria-current]')?.textContent ?? {before!r}) !== {before!r}")
    page.press("/")
    page.until("document.activeElement.type === 'search'")
    page.write("residual")
    page.until("document.querySelectorAll('.found [data-target]').length > 0")
    page.press("Enter")
    page.until("location.hash.startsWith('#program/')")
    page.until("document.querySelector('.node.chosen')")
    page.until("document.querySelector('.detail')?.textContent.includes('residual')")
    page.press("t")
    page.until("document.documentElement.dataset.theme === 'light'")
    page.press("?")
    page.until("document.querySelector('dialog').open")
    assert page.complaints == []


def test_a_step_that_is_clicked_is_explained(page: Page) -> None:
    page.evaluate("location.hash = 'run'")
    page.until("document.querySelector('rect.span')")
    page.click("rect.span")
    page.until("document.querySelector('.detail .operations')")
    page.click(".detail a[href^='#kernels/']")
    page.until("location.hash.startsWith('#kernels/') && document.querySelector('.ln')")


def test_names_of_the_model_are_text(page: Page) -> None:
    for view in VIEWS:
        page.evaluate(f"location.hash = '{view}'")
        page.until(f"document.querySelector('.tabs [aria-current]').textContent.toLowerCase() === '{view}'")
    page.evaluate("location.hash = 'program/0'")
    page.until("document.querySelector('.detail .operations')")
    assert HOSTILE in page.evaluate("document.querySelector('.detail').textContent")
    assert page.evaluate(
        "window.pwned === undefined && document.querySelectorAll('body img, main script').length === 0"
    )


def test_the_policy_lets_no_other_script_run(page: Page) -> None:
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.pwned = 1\">')")
    page.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 2'; "
        "document.body.append(s); })()"
    )
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert page.evaluate("window.pwned === undefined")


@pytest.mark.slow
def test_controls_have_names_and_colours_follow_the_system(browser: Browser, report: Path) -> None:
    nameless = (
        "[...document.querySelectorAll('button, a, input, [role=button], [role=listbox], [role=group]')].filter((e) => "
        "!(e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    browser.open(report).evaluate("localStorage.clear()")  # what was chosen before is kept
    light, dark = browser.open(report), browser.open(report, dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(ground) != dark.evaluate(ground)
    for view in VIEWS:
        light.evaluate(f"location.hash = '{view}'")
        light.until(f"document.querySelector('.tabs [aria-current]').textContent.toLowerCase() === '{view}'")
        assert light.evaluate(nameless) == 0
