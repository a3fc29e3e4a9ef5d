"""The HTML report: one file that opens anywhere, loads nothing, and can be forwarded with a ticket."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from draftmark.report.figures import visible
from draftmark.report.html_head import head_sections
from draftmark.report.html_plots import plot_sections
from draftmark.report.html_tables import table_sections
from draftmark.report.plots import plot_data
from draftmark.report.reading import read_result
from draftmark.report.tags import escape, join


def render_html(result: Mapping[str, Any], *, title: str) -> str:
    """A whole page from the result document of `tune`. The same document gives the same bytes.

    Args:
        result: The result document.
        title: The page's title.

    Raises:
        BadInputError: The document is of another kind.
    """
    view, title = read_result(result), visible(title)
    data = plot_data(view)
    page = Template(_packaged("template.html"))
    return page.substitute(
        policy=escape(content_policy()),
        title=escape(title),
        css=_packaged("report.css"),
        body=join([*head_sections(view, title), *plot_sections(view, data), *table_sections(view)], "\n"),
        data=embedded_json(data),
        **{name: _packaged(path) for name, path in SCRIPTS.items()},
    )


SCRIPTS = {"d3": "vendor/d3.min.js", "plot": "vendor/plot.umd.min.js", "js": "report.js"}


@cache
def content_policy() -> str:
    """Nothing is loaded, and no script runs but the page's own three, whatever the data says.

    A browser that knows hashes ignores `'unsafe-inline'` for scripts beside them; older ones need it. Plot
    writes style elements and attributes, so styles cannot be hashed.
    """
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in map(_packaged, SCRIPTS.values()))
    return (
        f"default-src 'none'; script-src 'unsafe-inline' {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor start a comment, nor break a line."""
    said = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _packaged(path: str) -> str:
    return resources.files("draftmark.report").joinpath(path).read_text(encoding="utf-8")
