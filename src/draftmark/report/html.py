"""The HTML report of a run of `tune`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmark.report.figures import visible
from draftmark.report.html_head import head_sections
from draftmark.report.html_plots import plot_sections
from draftmark.report.html_tables import table_sections
from draftmark.report.knob_table import knobs_in
from draftmark.report.page import page
from draftmark.report.plots import plot_data
from draftmark.report.reading import read_result
from draftmark.report.tags import join


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
    tables = table_sections(view, knobs_in(result))
    body = join([*head_sections(view, title), *plot_sections(view, data), *tables], "\n")
    return page(title, body, data, script="report.js")
