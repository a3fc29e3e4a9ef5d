"""A load run's page: whole without a script, drawn in a real browser, and no wider than a phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.report import bench_documents as made
from tests.report.conftest import HOSTILE
from tests.report.test_browser import CHROMIUM, dumped, probed_page

from draftmark.load.journal import Measured
from draftmark.report.bench_html import render_bench

browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")


def rendered(*runs: Any) -> str:
    return render_bench(*made.documented(*runs))


def hostile() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Every text that may come from elsewhere is an attack."""
    document, drawn = made.documented(made.open_run())
    document |= dict.fromkeys(("service", "engine", "model", "api", "started_at", "draftmark"), HOSTILE)
    document["settings"] = {HOSTILE: HOSTILE}
    level = document["levels"][0]
    level |= {"workload": HOSTILE, "errors": {HOSTILE: 1}, "unsent": {HOSTILE: 1}, "prompts_sha256": HOSTILE}
    level |= {"arrival": {"kind": HOSTILE}, "stopped_because": HOSTILE}
    level |= {key: [HOSTILE] for key in ("disturbed", "notes", "assumptions")}
    for kind in level["categories"]:
        kind["name"] = HOSTILE
    drawn[0]["course"]["errors"] = {HOSTILE: [1.0]}
    return document, drawn


def test_every_figure_is_there_without_a_script() -> None:
    page = re.sub(r"<script.*?</script>", "", rendered(made.open_run()), flags=re.DOTALL)
    for said in (
        "Open loop:", "Time to first token", "waiting to be sent", "http-503", "goodput", "Goodput", "coding",
        "Interval", "What the figures mean", "not sent: the run was stopped", "sha256 f00d", "poisson",
    ):  # fmt: skip
        assert said.lower() in page.lower(), said


def test_the_same_run_gives_the_same_bytes() -> None:
    assert rendered(made.closed_run()) == rendered(made.closed_run())


def test_it_loads_nothing() -> None:
    page = rendered(made.closed_run(), made.open_run())
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=\"(?!#)", without)
    assert "default-src &#x27;none&#x27;" in page


def test_a_run_in_which_nothing_completed_has_a_page() -> None:
    run = Measured(
        records=(made.failed(0, "dns", 0.0, intended=None, concurrency=4),), ending=made.closed_run().ending
    )
    page = rendered(run)
    assert "dns" in page
    assert "\u2013 tok/s" in page


def test_hostile_text_is_shown_not_obeyed() -> None:
    page = re.sub(r"<script.*?</script>", "", render_bench(*hostile()), flags=re.DOTALL)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u202e" not in page


@browser
@pytest.mark.parametrize(
    ("runs", "plots"),
    [
        ((made.closed_run(),), 8),
        ((made.open_run(),), 8),
        ((made.closed_run(1, 8), made.closed_run(16, 40), made.open_run()), 24),
    ],
    ids=["closed", "open", "several"],
)
def test_plots_are_drawn_and_nothing_is_wider_than_the_page(runs: Any, plots: int, tmp_path: Path) -> None:
    for width, seen in probed_page(rendered(*runs), tmp_path).items():
        assert seen["errors"] == []
        assert seen["loaded"] == []
        assert len(seen["plots"]) == plots
        for plot in seen["plots"]:
            assert plot["marks"] >= 4, plot
            assert plot["small"] >= 11, plot
            assert plot["cut"] == [], plot
        assert seen["beyond"] == []
        assert seen["scroll"] <= width


@browser
def test_it_draws_under_its_own_policy(tmp_path: Path) -> None:
    dom = dumped(rendered(made.open_run()), tmp_path)
    assert 'data-plots="8"' in dom
    assert dom.count('role="img"') == 8


@browser
def test_hostile_text_runs_nothing(tmp_path: Path) -> None:
    for width, seen in probed_page(render_bench(*hostile()), tmp_path).items():
        assert seen["errors"] == []
        assert seen["loaded"] == []
        assert seen["beyond"] == []
        assert seen["scroll"] <= width
