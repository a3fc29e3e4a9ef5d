"""What `watch` says of a watch of which something is gone."""

from __future__ import annotations

from typing import Any

from draftmark.cli.watch import _lines

SETTINGS = "/var/lib/draftmark/watch/llm.service/settings.json"
DOCUMENT: dict[str, Any] = {
    "action": "status", "unit": "llm.service", "asked": "unit:llm.service", "installed": True, "effective": True,
    "missing": [], "drop_in": "/etc/x.conf", "reports": "/var/lib/r", "keep": 20, "webhook": None, "last": [],
}  # fmt: skip


def test_a_file_that_is_gone_is_put_right_by_an_install() -> None:
    lines = _lines({**DOCUMENT, "missing": ["/etc/systemd/system/draftmark-watch@.service"]})
    assert lines[0] == "llm.service is watched in part only"
    assert "  what is missing: draftmark watch install unit:llm.service puts it right" in lines
    assert not [line for line in _lines(DOCUMENT) if "puts it right" in line]


def test_where_reports_are_is_not_left_to_root_who_asks() -> None:
    gone = _lines({**DOCUMENT, "missing": [SETTINGS], "reports": None})
    assert "  reports  not known: what was installed is not on record any more" in gone
    hidden = _lines({**DOCUMENT, "reports": None})
    assert "  reports  root knows where" in hidden
