"""The small drawings of the legends, in the shapes and classes that the plots use."""

from __future__ import annotations

from draftmark.report.tags import Markup, tag

DOT = '<circle cx="9" cy="9" r="4" class="dot"/>'
RING = '<circle cx="9" cy="9" r="7.5" class="ring"/>'
DASHED = '<line x1="0" x2="18" y1="9" y2="9" class="dash"/>'
SWATCH = '<rect y="3" width="18" height="12" class="{}"/>'

SHAPES = {
    "point": '<line x1="9" x2="9" y1="0" y2="18" class="ink"/>' + DOT,
    "trials": '<circle cx="4" cy="12" r="2" class="faint"/><circle cx="11" cy="6" r="2" class="faint"/>',
    "tie": '<path d="M9 3 15 9 9 15 3 9Z" class="dot"/>',
    "choice": DOT + RING,
    "ring": RING,
    "baseline": '<rect y="4" width="18" height="10" class="base"/>' + DASHED,
    "tie-band": '<rect x="0.5" y="2.5" width="17" height="13" class="tieband"/>',
    "better": '<path d="M9 3 15 14H3Z" class="better"/>',
    "level": '<circle cx="9" cy="9" r="5" class="level"/>',
    "worse": '<path d="M9 15 15 4H3Z" class="worse"/>',
    "accept-len": '<line x1="0" x2="18" y1="9" y2="9" class="ink"/>' + DOT,
    "per-step": DASHED + '<rect x="5.5" y="5.5" width="7" height="7" class="level"/>',
    "start": SWATCH.format("start"),
    "measure": SWATCH.format("measure"),
    "stop": SWATCH.format("stop"),
    "void": SWATCH.format("hatched"),
    "dead": '<rect x="0.5" y="3.5" width="17" height="11" class="outline"/>'
    '<path d="M6 6 12 12M12 6 6 12" class="cross"/>',
    "disturbed": '<path d="M9 3V11M9 13V15.5" class="cross"/>',
    "line": '<line x1="0" x2="18" y1="9" y2="9" class="ink"/>',
    "dashed": DASHED,
    "window": SWATCH.format("base"),
    "error": '<path d="M5 5 13 13M13 5 5 13" class="cross"/>',
}


def glyph(name: str) -> Markup:
    """The drawing of that name; its meaning is in the text beside it."""
    shapes = Markup(SHAPES[name])
    return tag("svg", shapes, viewBox="0 0 18 18", width="18", height="18", aria_hidden="true", focusable="false")
