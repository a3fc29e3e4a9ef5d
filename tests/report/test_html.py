"""The HTML report as a document: complete, self-contained, escaped, the same every time."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from draftmark.report.html import render_html
from draftmark.report.page import embedded_json
from draftmark.report.tags import Markup, tag

Load = Callable[[str], dict[str, Any]]
VOID = {"meta", "br", "img", "link", "input", "hr", "path", "circle", "line", "rect"}


class Page(HTMLParser):
    """Elements with their attributes, scripts, and the text that a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.comments: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def render(document: dict[str, Any]) -> str:
    return render_html(document, title="Draftmark tune")


def test_the_verdict_is_the_headline(document: dict[str, Any]) -> None:
    expected = document["verdict"] or "No verdict: nothing was measured yet."
    assert re.search(r"<h1[^>]*>([^<]*)</h1>", render(document)).group(1) == expected  # type: ignore[union-attr]


def test_tables_tell_everything_without_a_script(document: dict[str, Any]) -> None:
    page = Page(re.sub(r"(?s)<script.*?</script>", "", render(document)))
    for arm in document["arms"]:
        assert arm["label"] in page.text
        assert (arm["because"] or "") in page.text
        for figure in arm["axes"].values():
            assert f"{figure['tok_s']:.1f}" in page.text
            for value in figure["values"]:
                assert f"{value:.1f}" in page.text
    for trial in document["trials"]:
        for reason in trial["disturbed"]:
            assert reason in page.text
    for workload in document["workloads"]:
        assert workload["sha256"] in page.text
    for warning in document["warnings"]:
        assert warning in page.text
    assert document["engine"]["version"] in page.text
    assert "Setting: max loop lag ms 20" in page.text
    assert "The plots need JavaScript" in page.text


def test_it_is_well_formed(document: dict[str, Any]) -> None:
    page = Page(render(document))
    assert page.unbalanced == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in page.all("a"):
        assert attributes["href"][1:] in ids  # type: ignore[index]


def test_nothing_is_loaded(document: dict[str, Any]) -> None:
    html = render(document)
    page = Page(html)
    for name, attributes in page.elements:
        assert name not in {"link", "iframe", "object", "embed", "img", "base", "form", "audio", "video", "source"}
        assert not {"src", "srcset", "action", "formaction", "poster", "data", "ping"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(key.startswith("on") for key in attributes)
    styles = "".join(re.findall(r"(?s)<style>(.*?)</style>", html))
    assert not re.search(r"@import|https?:|url\((?!#)", styles)


def test_only_the_pages_own_scripts_may_run(document: dict[str, Any]) -> None:
    page = Page(render(document))
    (policy,) = [
        attributes["content"]
        for attributes in page.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    data, *code = page.scripts
    assert json.loads(data)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in code]
    assert len(code) == 3
    assert all(f"'sha256-{digest}'" in policy for digest in hashes)


def test_hostile_text_is_only_ever_text(hostile: dict[str, Any], load: Load) -> None:
    page, tame = Page(render_html(hostile, title=hostile["service"])), Page(render(load("eleven")))
    assert [name for name, _ in page.elements].count("script") == 4
    assert {name for name, _ in page.elements} == {name for name, _ in tame.elements}
    assert page.comments == []
    assert page.unbalanced == []
    assert "\u202e" not in page.text
    assert "<script>alert(1)</script>" in page.text
    data = page.scripts[0]
    assert "<" not in data
    assert json.loads(data)["timeline"]


def test_embedded_json_cannot_leave_its_element() -> None:
    said = embedded_json({"a": "</script><!-- \u2028 & ]]>"})
    assert not set("<>&\u2028") & set(said)
    assert json.loads(said) == {"a": "</script><!-- \u2028 & ]]>"}


def test_the_same_document_gives_the_same_bytes_in_another_process(load: Load, tmp_path: Path) -> None:
    source = tmp_path / "result.json"
    source.write_text(json.dumps(load("normal")), encoding="utf-8")
    program = (
        "import json,sys; from draftmark.report.html import render_html; "
        "sys.stdout.buffer.write(render_html(json.load(open(sys.argv[1])), title='Draftmark tune').encode())"
    )
    environment = {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    other = subprocess.run(
        [sys.executable, "-c", program, str(source)], env=environment, capture_output=True, check=True
    )
    assert other.stdout == render(load("normal")).encode()


def test_a_large_run_stays_under_700_kb(load: Load) -> None:
    document = load("normal")
    arms = [
        json.loads(json.dumps(document["arms"][1]).replace('"d4"', f'"d{depth}"')) | {"depth": depth}
        for depth in range(1, 25)
    ]
    document["arms"] = [document["arms"][0], *arms]
    document["trials"] *= 10
    assert len(render(document).encode()) < 700_000


@pytest.mark.parametrize(
    "key", ["ratio", "low", "high", "accept_len", "tokens_per_step", "ttft_ms_p50", "tpot_ms_p50"]
)
def test_null_is_never_drawn_or_written_as_zero(load: Load, key: str) -> None:
    document = load("eleven")
    for arm in document["arms"]:
        for figure in arm["axes"].values():
            figure[key] = None
    for axis in document["axes"]:
        for ratio in axis["ratios"].values():
            if key in ratio and key != "ratio":
                ratio[key] = None
    page = Page(render(document))
    data = json.loads(page.scripts[0])
    points = (
        data["speed"][0]["points"] + data["ratio"][0]["rows"] + [p for a in data["acceptance"] for p in a["points"]]
    )
    assert not any(
        value == 0 and value is not False and name != "depth" for p in points for name, value in p.items()
    )
    assert "0.00x" not in page.text


def test_plots_come_with_a_label_a_caption_and_a_table(load: Load) -> None:
    page = Page(render(load("normal")))
    boxes = [attributes for attributes in page.all("div") if "data-plot" in attributes]
    kinds = [attributes["data-plot"] for attributes in boxes]
    assert {kind: kinds.count(kind) for kind in kinds} == {"speed": 4, "ratio": 6, "acceptance": 2, "timeline": 1}
    assert all(attributes["data-label"] for attributes in boxes)
    assert len(page.all("caption")) == len(page.all("table"))
    assert len(page.all("details")) == 3  # the timeline's table is that of the trials
    for attributes in page.all("th"):
        assert attributes["scope"] in {"col", "row"}


@pytest.mark.parametrize(
    ("change", "tone", "said"),
    [
        ({"exit_status": 51, "restored": False}, "alarm", "Failed, not restored"),
        ({"exit_status": 50}, "alarm", "Failed and restored"),
        ({"exit_status": 40}, "caution", "Inconclusive"),
        ({"exit_status": 10}, "good", "Better configuration found, not kept"),
        ({"exit_status": 0}, "neutral", "Done"),
        ({"complete": False}, "caution", "Incomplete run"),
    ],
)
def test_the_outcome_is_said_in_words_beside_its_colour(
    load: Load, change: dict[str, Any], tone: str, said: str
) -> None:
    assert f'<span class="chip {tone}">{said}</span>' in render(load("normal") | change)


def test_memory_and_its_verdict_have_a_column_where_known(load: Load) -> None:
    document = load("eleven")
    assert "does not fit, 398,000 KV tokens, 44 requests" in Page(render(document)).text
    document["arms"][0]["fit"] = "measured at boot"
    assert "measured at boot" in Page(render(document)).text
    assert "Memory" not in [word.strip() for word in Page(render(load("normal"))).words]


def test_a_run_without_figures_has_no_plots_and_says_so(load: Load) -> None:
    page = Page(render(load("unmeasured")))
    assert not [attributes for attributes in page.all("div") if "data-plot" in attributes]
    assert "Incomplete run" in page.text
    assert "No trial was started yet." in page.text


def test_markup_is_escaped_unless_made_here() -> None:
    assert tag("p", "<b>", Markup("<i></i>"), None, title='"&') == '<p title="&quot;&amp;">&lt;b&gt;<i></i></p>'
    assert tag("details", open=True, hidden=False, id=None) == "<details open></details>"


def test_how_much_an_arm_takes_at_once_is_in_the_tables_where_it_is_known(load: Load) -> None:
    result = load("normal")
    assert "Requests at\u00a0once" not in Page(render_html(result, title="t")).words
    result["arms"][0]["limits"] = {"max_running_requests": 1181, "kv_tokens": 638839}
    result["trials"][0]["limits"] = {"max_running_requests": 1180, "kv_tokens": None}
    page = Page(render_html(result, title="t"))
    assert page.words.count("Requests at\u00a0once") == 2
    assert {"1,181", "638,839", "1,180"} <= set(page.words)
    assert not page.unbalanced


def test_an_adaptive_arm_beside_the_same_depth_is_told_apart(load: Load) -> None:
    result = load("normal")
    drafting = next(arm for arm in result["arms"] if arm["depth"])
    name, label = f"{drafting['arm']}-speculative-adaptive", f"{drafting['label']}, adaptive"
    result["arms"].append({**drafting, "arm": name, "label": label})
    words = Page(render_html(result, title="t")).words
    depth = drafting["depth"]
    assert f"{drafting['label']} ({depth}a)" in words
    assert f"{label} ({depth}b)" in words
