"""The page in a real browser: no wider than a phone, no network, no script error, usable by keyboard."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftmark.postmortem.model import Verdict
from draftmark.report.why_html import render_html
from draftmark.testing import verdicts

CHROMIUM = shutil.which("chromium")
WIDTHS = (1280, 390, 320)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",
)  # fmt: skip
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>" + "w" * 300

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")

CATCH = '<script>window.failures = []; addEventListener("error", (e) => window.failures.push(e.message));</script>'
# Written into the page by the test: what a reader's browser measured, and what the arrow keys did.
PROBE = """<script>
const view = document.documentElement.clientWidth;
const dots = [...document.querySelectorAll("a.dot")];
const line = document.getElementById("line");
const walked = [];
if (dots.length) {
  const order = [...dots].sort((a, b) => a.dataset.order - b.dataset.order);
  order[0].focus();
  for (let i = 0; i < order.length; i += 1) {
    walked.push(line.querySelector("code").textContent);
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  }
}
frameElement.dataset.probe = JSON.stringify({
  width: innerWidth,
  scroll: document.documentElement.scrollWidth,
  beyond: [...document.querySelectorAll("body *")]
    .filter((e) => !e.closest(".skip") && e.getBoundingClientRect().right > view + 0.5)
    .map((e) => `${e.tagName}.${e.className} in ${e.parentElement.className}`),
  labels: [...document.querySelectorAll(".scale")].flatMap((row) => {
    const boxes = [...row.children].map((e) => e.getBoundingClientRect()).filter((b) => b.width);
    return boxes.slice(1).filter((b, i) => b.left < boxes[i].right).length;
  }),
  walked,
  errors: window.failures,
  loaded: performance.getEntriesByType("resource").map((e) => e.name),
});
</script>"""


def probed(verdict: Verdict, folder: Path) -> dict[int, dict[str, Any]]:
    """What the browser saw, per width. The policy is relaxed for the test's two scripts and for nothing else."""
    page, replaced = re.subn(r"script-src [^;]*;", "script-src 'unsafe-inline';", render_html(verdict), count=1)
    assert replaced
    page = page.replace("</head>", f"{CATCH}</head>", 1)
    head, _, tail = page.rpartition("</body>")
    page = f"{head}{PROBE}</body>{tail}"
    frame = '<iframe width="{}" height="900" style="border:0" srcdoc="{}"></iframe>'
    frames = "".join(frame.format(width, html.escape(page)) for width in WIDTHS)
    found = re.findall(r'data-probe="([^"]*)"', dumped(f"<!doctype html>{frames}", folder))
    seen = [json.loads(html.unescape(probe)) for probe in found]
    assert [probe["width"] for probe in seen] == list(WIDTHS), "the page's scripts did not run"
    return dict(zip(WIDTHS, seen, strict=True))


def dumped(page: str, folder: Path) -> str:
    """The page as the browser has it after its scripts ran."""
    file = folder / "why.html"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900", "--dump-dom",
         file.as_uri()],
        capture_output=True, timeout=60, check=True, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    return done.stdout.decode()


@pytest.mark.parametrize(
    "make",
    [verdicts.stop_timeout, verdicts.unsettled, lambda: verdicts.crowded(60), lambda: verdicts.everywhere(HOSTILE)],
    ids=["settled", "unsettled", "crowded", "hostile"],
)
def test_nothing_is_wider_than_the_page_and_nothing_is_loaded(make: Callable[[], Verdict], tmp_path: Path) -> None:
    for width, seen in probed(make(), tmp_path).items():
        assert seen["errors"] == []
        assert seen["loaded"] == []
        assert seen["beyond"] == []
        assert seen["scroll"] <= width
        assert not any(seen["labels"]), "labels of the axis overlap"


def test_arrow_keys_walk_through_what_happened(tmp_path: Path) -> None:
    verdict = verdicts.stop_timeout()
    for seen in probed(verdict, tmp_path).values():
        assert seen["walked"] == [moment.evidence.text for moment in verdict.timeline]


def test_it_runs_under_its_own_policy(tmp_path: Path) -> None:
    dom = dumped(render_html(verdicts.stop_timeout()), tmp_path)
    assert '<html lang="en" class="js">' in dom
    assert re.search(r'id="line"[^>]*><b>[^<]*cause, the stop took too long', dom)


def test_the_first_of_several_decisive_lines_is_shown_first(tmp_path: Path) -> None:
    verdict = verdicts.stop_timeout()
    late = replace(verdict.timeline[-1], role="cause", what="the second one")
    early = replace(verdict.timeline[2], role="cause", what="the first one")
    dom = dumped(render_html(replace(verdict, timeline=(verdict.timeline[0], early, late))), tmp_path)
    assert re.search(r'id="line"[^>]*><b>[^<]*the first one', dom)


def test_a_page_without_a_timeline_is_quiet(tmp_path: Path) -> None:
    for seen in probed(replace(verdicts.stop_timeout(), timeline=()), tmp_path).values():
        assert seen["errors"] == []
