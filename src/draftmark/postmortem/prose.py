"""Texts for people among the evidence: a README, a ticket, a report. What they quote proves nothing. Pure."""

from __future__ import annotations

import re

from draftmark.postmortem.model import Kind, Source

_PAGE = re.compile(r"(?i)^\s*(?:<!doctype html|<html\b)")
_MARKUP = re.compile(r"^(?:#{1,5} \S|```|\|[ :-]+\||[-*] \S|> )")
_SUFFIXES = (".md", ".markdown", ".rst", ".html", ".htm")
_MOST = 200  # lines that are looked at


def is_prose(source: Source) -> bool:
    """Whether a source is a web page or a Markdown text, by its form; a name alone is not enough."""
    if source.kind is not Kind.LOG or not source.lines:
        return False
    lines = source.lines[:_MOST]
    if _PAGE.match(lines[0].text):
        return True
    if any(line.time is not None for line in lines[:5]):
        return False
    marked = sum(bool(_MARKUP.match(line.text)) for line in lines)
    if source.name.lower().endswith(_SUFFIXES):
        return marked > 0
    return lines[0].text.startswith("# ") and any(line.text.startswith("```") for line in lines)
