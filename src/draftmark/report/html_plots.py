"""The plots' places in the HTML report: headings, legends, captions, and the table behind every plot.

The script fills the empty `plot` boxes; without it they stay hidden and the tables speak.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import groupby
from typing import Any

from draftmark.report.figures import duration, plural
from draftmark.report.glyphs import glyph
from draftmark.report.html_plot_tables import acceptance_table, decisions_table, figures_table
from draftmark.report.html_tables import section
from draftmark.report.tags import Markup, Node, tag
from draftmark.report.view import ResultView
from draftmark.report.words import at_once, in_headline, unit

SPEED_LEDE = (
    "Tokens per second of every arm. The bar through a point is the interval of its ratio to the baseline, "
    "given in tok/s; the scale does not start at zero."
)
RATIO_LEDE = (
    "Right of the line is faster than the baseline. The intervals are simultaneous: they hold for all arms at "
    "once. Every panel has its own scale."
)
TRIAL_GLYPHS = {"void": "void", "did-not-start": "dead", "disturbed": "disturbed"}
ACCEPTANCE_LEDE = (
    "Accept length is tokens gained per verification round, the bonus token included. Tokens per step counts "
    "every pass of the model, those without a draft too, and bounds the gain."
)


def plot_sections(view: ResultView, data: dict[str, Any]) -> list[Markup | None]:
    """Speed, ratio, acceptance, timeline; a section with nothing to show is left out.

    Args:
        view: The run.
        data: What the plots will draw.
    """
    return [_speed(view, data), _ratio(view, data), _acceptance(view, data), _timeline(view, data)]


def _speed(view: ResultView, data: dict[str, Any]) -> Markup | None:
    panels: list[dict[str, Any]] = data["speed"]
    if not panels:
        return None
    axes = {axis.name: axis for axis in view.own_axes}
    blocks: list[Node] = []
    told = [axes[panel["axis"]].because for panel in panels]
    for slots, members in groupby(enumerate(panels), key=lambda entry: int(entry[1]["concurrency"])):
        found = []
        for place, panel in members:
            axis = axes[panel["axis"]]
            label = f"Speed by depth: {panel['title']}"
            redundant = in_headline(view, axis.because) or (len(told) > 1 and len(set(told)) == 1)
            found.append(_figure("speed", place, axis.workload, None if redundant else axis.because, label))
        blocks.append(tag("h3", at_once(slots), tag("span", f"tok/s, {unit(slots)}")))
        blocks.append(tag("div", *found, class_="panels"))
    return section(
        "speed",
        "Speed by depth",
        tag("p", SPEED_LEDE, class_="lede"),
        _legend(
            {
                "point",
                "trials",
                "baseline",
                *_roles(panels),
                *({"tie-band"} if any(p["tie"] for p in panels) else ()),
            },
            ("point", "arm, with its interval"),
            ("trials", "single trials"),
            ("tie", "tie"),
            ("choice", "choice"),
            ("baseline", "baseline, lowest to highest trial"),
            ("tie-band", "tie band: level with the best"),
        ),
        *blocks,
        _details("Table: figures of every arm", figures_table(view)),
    )


def _ratio(view: ResultView, data: dict[str, Any]) -> Markup | None:
    panels: list[dict[str, Any]] = data["ratio"]
    if not panels:
        return None
    return section(
        "ratio",
        "Ratio to the baseline",
        tag("p", RATIO_LEDE, class_="lede"),
        _legend(
            {row["reading"] for panel in panels for row in panel["rows"]}
            | ({"ring"} if _chosen(panels) else set()),
            ("better", "faster beyond noise"),
            ("level", "no difference shown"),
            ("worse", "slower beyond noise"),
            ("ring", "choice"),
        ),
        _panels("ratio", "Ratio to the baseline", panels),
        _details("Table: decision on every axis", decisions_table(view)),
    )


def _acceptance(view: ResultView, data: dict[str, Any]) -> Markup | None:
    panels: list[dict[str, Any]] = data["acceptance"]
    if not panels:
        return None
    return section(
        "acceptance",
        "Acceptance by depth",
        tag("p", ACCEPTANCE_LEDE, class_="lede"),
        _legend({"accept-len", "per-step"}, ("accept-len", "accept length"), ("per-step", "tokens per step")),
        _panels("acceptance", "Acceptance by depth", panels),
        _details("Table: acceptance on every axis", acceptance_table(view)),
    )


def _timeline(view: ResultView, data: dict[str, Any]) -> Markup | None:
    """Its table is the table of trials."""
    if not data["timeline"]:
        return None
    down = "downtime not recorded" if view.downtime_s is None else f"{duration(view.downtime_s)} of downtime in all"
    counted = f"{plural(len(view.trials), 'trial')}, {plural(view.restarts, 'restart')}, {down}."
    return section(
        "timeline",
        "Timeline of the run",
        tag("p", f"{counted} Numbered as in the table of trials.", class_="lede"),
        _legend(
            {"start", "measure", "stop"}
            | {TRIAL_GLYPHS.get(trial["status"], "") for trial in data["timeline"]["trials"]},
            ("start", "start"),
            ("measure", "measure"),
            ("stop", "stop"),
            ("void", "void"),
            ("dead", "did not start"),
            ("disturbed", "disturbed in part"),
        ),
        tag("figure", _box("timeline", 0, "Timeline of the run"), class_="wide"),
    )


# --- parts ------------------------------------------------------------------------------------------------


def _panels(plot: str, heading: str, panels: list[dict[str, Any]]) -> Markup:
    found = [
        _figure(plot, place, panel["title"], None, f"{heading}: {panel['title']}")
        for place, panel in enumerate(panels)
    ]
    return tag("div", *found, class_=f"panels {plot}")


def _figure(plot: str, place: int, name: str, because: str | None, label: str) -> Markup:
    caption = tag("figcaption", tag("strong", name), tag("span", because) if because else None)
    return tag("figure", caption, _box(plot, place, label))


def _box(plot: str, place: int, label: str) -> Markup:
    return tag("div", class_="plot", data_plot=plot, data_index=str(place), data_label=label)


def _details(summary: str, content: Node) -> Markup:
    return tag("details", tag("summary", summary), content)


def _roles(panels: list[dict[str, Any]]) -> set[str]:
    """Which of choice and tie occur in the speed plots."""
    return {str(point.get("role")) for panel in panels for point in panel["points"]}


def _chosen(panels: list[dict[str, Any]]) -> bool:
    return any(row["role"] == "choice" for panel in panels for row in panel["rows"])


def _legend(shown: Set[str], *entries: tuple[str, str]) -> Markup:
    """Of the entries, those that occur in the plots."""
    items = [tag("li", glyph(name), tag("span", words)) for name, words in entries if name in shown]
    return tag("ul", *items, class_="legend", aria_label="Legend")
