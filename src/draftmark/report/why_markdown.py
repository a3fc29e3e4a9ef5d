"""A verdict as Markdown: what one pastes into a ticket.

Log lines stand in code, where nothing is markup, a mention or a reference to an issue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from draftmark.model import Evidence
from draftmark.postmortem.model import Moment, Verdict
from draftmark.report import why_words as words
from draftmark.report.figures import plural, visible
from draftmark.report.markdown import code
from draftmark.report.markdown import text as escaped

MOST_MOMENTS = 200
"""Rows of the timeline: a ticket takes 65,536 characters."""
_LONGEST_LINE = 1000
# What a forge turns into a link or a notice even behind a backslash: `@name`, `#12`, `GH-12`, a URL.
_LINKS = re.compile(r"@|#(?=\d)|\bGH-(?=\d)|\b(?:https?|www)(?=[:.])", re.IGNORECASE)
_APART = "&#8203;"  # of no width: the sign and the word after it are no longer one


def render_markdown(verdict: Verdict) -> str:
    """The whole verdict. It has gone through `why_safe.safe` before."""
    parts = [
        f"## {_title(verdict)}",
        text(verdict.summary),
        _strong(words.root(verdict)),
        _facts(verdict),
        _evidence(verdict),
        _list(words.SETTLE, [_with_command(c.cause, c.because, c.command) for c in verdict.candidates]),
        _ruled_out(verdict),
        _followed(verdict),
        _list(words.NOT_EXAMINED, [_with_command(u.source, u.because, u.command) for u in verdict.not_examined]),
        _list(words.ADVICE, [text(said) for said in verdict.advice]),
        _timeline(verdict.timeline),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(said: str) -> str:
    """Foreign text as text: no markup, mention, reference or link comes of it."""
    return _LINKS.sub(lambda match: f"{match[0]}{_APART}", escaped(visible(said)))


def fenced(lines: Iterable[str]) -> str:
    """Lines of code, the fence longer than any row of backticks in them."""
    shown = [visible(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *shown, fence])


def _title(verdict: Verdict) -> str:
    name = f" of {_code(verdict.service)}" if verdict.service else ""
    return f"Post-mortem{name}: {_code(verdict.cause)}"


def _code(said: str) -> str:
    return code(visible(said)) if said.strip() else ""


def _strong(said: str | None) -> str | None:
    return f"**{text(said)}**" if said else None


def _facts(verdict: Verdict) -> str:
    rows = [
        ("Cause", _code(verdict.cause)),
        ("Confidence", text(words.SURE[verdict.confidence])),
        ("Phase", text(words.DOING[verdict.phase]) if verdict.phase else None),
        ("Service", _code(verdict.service) if verdict.service else None),
        ("Engine", text(words.engine(verdict) or "") or None),
        ("Time, as logged", _code(words.when(verdict) or "") or None),
        ("State", words.state(verdict)),
        (words.EXAMINED, ", ".join(_code(name) for name in verdict.examined) or None),
    ]
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {said} |" for name, said in rows if said)])


def _evidence(verdict: Verdict) -> str | None:
    if not verdict.evidence:
        return None
    return f"### {words.EVIDENCE}\n\n{_proofs(verdict.evidence)}"


def _proofs(evidence: Sequence[Evidence]) -> str:
    """Lines in one block, each behind its place."""
    return fenced(f"{words.place(item)}: {_cut(item.text)}" for item in evidence)


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def _ruled_out(verdict: Verdict) -> str | None:
    entries = []
    for item in verdict.ruled_out:
        entry = f"{_code(item.cause)}: {text(item.because)}"
        if item.evidence:
            entry += "\n\n" + _indented(_proofs(item.evidence))
        entries.append(entry)
    return _list(words.RULED_OUT, entries)


def _followed(verdict: Verdict) -> str | None:
    return _list(
        words.FOLLOWED,
        [f"{text(item.what)} ({_code(words.place(item.evidence))})" for item in verdict.consequences],
    )


def _with_command(name: str, because: str, command: str) -> str:
    entry = f"{_code(name)}: {text(because)}"
    return entry + ("\n\n" + _indented(fenced(command.splitlines())) if command.strip() else "")


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" for line in block.splitlines())


def _list(title: str, entries: Sequence[str]) -> str | None:
    if not entries:
        return None
    return "\n".join([f"### {title}", "", *(f"- {entry}" for entry in entries)])


def _timeline(moments: Sequence[Moment]) -> str | None:
    if not moments:
        return None
    rows = [
        f"| {_code(moment.evidence.time or '')} | {words.ROLE.get(moment.role, text(moment.role))} "
        f"| {text(moment.what)} | {_code(words.place(moment.evidence))} |"
        for moment in moments[:MOST_MOMENTS]
    ]
    more = len(moments) - MOST_MOMENTS
    return "\n".join(
        [
            f"<details><summary>Timeline ({plural(len(moments), 'line')})</summary>",
            "",
            "| time, as logged | role | what | where |",
            "| --- | --- | --- | --- |",
            *rows,
            *([f"\n… and {more} more"] if more > 0 else []),
            "",
            "</details>",
        ]
    )
