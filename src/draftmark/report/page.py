"""One HTML file that opens anywhere, loads nothing, and can be forwarded with a ticket: what its kinds share."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from draftmark.report.tags import Node, escape

_LIBRARIES = ("vendor/d3.min.js", "vendor/plot.umd.min.js")


def page(title: str, body: Node, data: Any, *, script: str) -> str:
    """A whole page with plots. The same content gives the same bytes.

    Args:
        title: Shown by the browser; its invisible characters written out.
        body: What is in it.
        data: What the script draws.
        script: The packaged file that draws it.
    """
    d3, plot = map(_packaged, _LIBRARIES)
    return Template(_packaged("template.html")).substitute(
        policy=escape(_policy(script)),
        title=escape(title),
        css=_packaged("report.css"),
        body=body,
        data=embedded_json(data),
        d3=d3,
        plot=plot,
        js=_plots(script),
    )


@cache
def _policy(script: str) -> str:
    """Nothing is loaded, and no script runs but the page's own three, whatever the data says.

    A browser that knows hashes ignores `'unsafe-inline'` for scripts beside them; older ones need it. Plot
    writes style elements and attributes, so styles cannot be hashed.
    """
    texts = (*map(_packaged, _LIBRARIES), _plots(script))
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in texts)
    return (
        f"default-src 'none'; script-src 'unsafe-inline' {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _plots(script: str) -> str:
    """A page's own script: what draws its plots, behind what those of all pages share."""
    return _packaged("plots.js") + _packaged(script)


def embedded_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor start a comment, nor break a line."""
    said = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _packaged(path: str) -> str:
    return resources.files("draftmark.report").joinpath(path).read_text(encoding="utf-8")
