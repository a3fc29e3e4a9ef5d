"""The HTML report in a real browser: drawn, without a network, and no wider than a phone."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.report.html import render_html

Load = Callable[[str], dict[str, Any]]

CHROMIUM = shutil.which("chromium")
WIDTHS = (1600, 1280, 390, 360)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",
)  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")

# Written into the page by the test: what a reader's browser measured after the plots were drawn.
PROBE = """<script>
const all = [...document.querySelectorAll("body *")];
const view = document.documentElement.clientWidth;
const inScroller = (e) => e.closest(".scroll") !== null;
frameElement.dataset.probe = JSON.stringify({
  width: innerWidth,
  scroll: document.documentElement.scrollWidth,
  plots: [...document.querySelectorAll(".plot")].map((box) => ({
    kind: box.dataset.plot,
    marks: box.querySelectorAll("svg circle, svg path, svg line, svg rect").length,
    small: Math.min(...[...box.querySelectorAll("svg text")].map((t) => parseFloat(getComputedStyle(t).fontSize))),
    cut: [...box.querySelectorAll("svg text")].filter((t) => {
      const a = t.getBoundingClientRect(), b = box.closest("figure").getBoundingClientRect();
      return a.width && (a.left < b.left || a.right > b.right);
    }).map((t) => t.textContent),
  })),
  beyond: all.filter((e) => !inScroller(e) && !e.closest(".skip") && e.getBoundingClientRect().right > view + 0.5)
    .map((e) => `${e.tagName} in ${e.parentElement.className || e.parentElement.tagName}`),
  errors: window.failures ?? [],
  loaded: performance.getEntriesByType("resource").map((e) => e.name),
});
</script>"""
CATCH = '<script>window.failures = []; addEventListener("error", (e) => window.failures.push(e.message));</script>'


def probed(document: dict[str, Any], folder: Path) -> dict[int, dict[str, Any]]:
    """What the browser saw of a run's report, per width."""
    return probed_page(render_html(document, title="Draftmark tune"), folder)


def probed_page(page: str, folder: Path) -> dict[int, dict[str, Any]]:
    """What the browser saw, per width. The policy is relaxed for the test's two scripts and for nothing else."""
    page, replaced = re.subn(r"script-src [^;]*;", "script-src 'unsafe-inline';", page, count=1)
    assert replaced
    page = page.replace("</head>", f"{CATCH}</head>", 1).replace("</body>", f"{PROBE}</body>", 1)
    # A window has a least width, a frame has none; a `srcdoc` frame may write into the page around it.
    frame = '<iframe width="{}" height="900" style="border:0" srcdoc="{}"></iframe>'
    frames = "".join(frame.format(width, html.escape(page)) for width in WIDTHS)
    found = re.findall(r'data-probe="([^"]*)"', dumped(f"<!doctype html>{frames}", folder))
    seen = [json.loads(html.unescape(probe)) for probe in found]
    assert [probe["width"] for probe in seen] == list(WIDTHS), "the page's scripts did not run"
    return dict(zip(WIDTHS, seen, strict=True))


def dumped(page: str, folder: Path) -> str:
    """The page as the browser has it after its scripts ran."""
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1700,900", "--dump-dom",
         file.as_uri()],
        capture_output=True, timeout=60, check=True, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    return done.stdout.decode()


@pytest.mark.parametrize("stem", ["normal", "inconclusive", "eleven", "unmeasured"])
def test_plots_are_drawn_and_nothing_is_wider_than_the_page(load: Load, tmp_path: Path, stem: str) -> None:
    for width, seen in probed(load(stem), tmp_path).items():
        assert seen["errors"] == []
        assert seen["loaded"] == []
        expected = {"normal": 13, "inconclusive": 13, "eleven": 4, "unmeasured": 0}[stem]
        assert len(seen["plots"]) == expected
        for plot in seen["plots"]:
            assert plot["marks"] >= 5, plot
            assert plot["small"] >= 11, plot
            assert plot["cut"] == [], plot
        assert seen["beyond"] == []
        assert seen["scroll"] <= width


def test_a_document_full_of_gaps_is_drawn_as_far_as_it_goes(load: Load, tmp_path: Path) -> None:
    document = load("normal") | {"baseline": None, "choice": None, "tie_margin": None}
    for axis in document["axes"]:
        axis |= {"best": None, "choice": None, "ties": [], "because": None}
        axis["ratios"]["d8"] |= {"low": None, "high": None}
    for arm in document["arms"]:
        arm["depth"] = arm["depth"] and 4
        arm["label"] = f"{arm['label']}, mem-fraction=0.85"
        for figure in arm["axes"].values():
            figure |= dict.fromkeys(("ratio", "low", "high", "accept_len"))
    document["arms"][1]["axes"]["copy@1"] = {}
    for trial in document["trials"][:6]:
        trial |= dict.fromkeys(("start_s", "measure_s", "stop_s", "round"))
    for seen in probed(document, tmp_path).values():
        assert seen["errors"] == []
        assert len(seen["plots"]) == 13
        assert all(plot["marks"] >= 3 and plot["cut"] == [] for plot in seen["plots"])
        assert seen["beyond"] == []


def test_it_draws_under_its_own_policy(load: Load, tmp_path: Path) -> None:
    dom = dumped(render_html(load("normal"), title="t"), tmp_path)
    assert 'data-plots="13"' in dom
    assert dom.count('role="img"') == 13


def test_hostile_text_runs_nothing(hostile: dict[str, Any], tmp_path: Path) -> None:
    for width, seen in probed(hostile, tmp_path).items():
        assert seen["errors"] == []
        assert seen["loaded"] == []
        assert seen["beyond"] == []
        assert seen["scroll"] <= width
        assert all(plot["marks"] >= 5 for plot in seen["plots"])
