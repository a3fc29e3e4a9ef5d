"""Other services between the lines of a case, and many lines around it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from . import carriers, traffic
from .carriers import CONTAINER_FORMS, JOURNAL_FORMS, Entry, body, encoded
from .change import Change, Changed, NotApplicableError, applications, as_changed, entries, logs, need
from .corpus import Files

CONTAINER_FILE = re.compile(r"docker|kubectl|events")


def foreign(form: str, how: str = "", *, named: bool = True) -> Change:
    """Other services between the lines, with errors of their own, and one that dies.

    In journald's forms it is the host's journal, all units in one; in a container form the log of all containers.

    Args:
        form: The carrier's.
        how: The other one's death (`traffic.ENDS`); any when empty.
        named: Whether systemd's line that it started the server is in the journal too. Without it only the words
            of the processes tell, in the text forms, who is who.
    """

    def change(files: Files, rng: random.Random) -> Changed:
        names, result = applications(files), dict(files)
        if form in JOURNAL_FORMS:
            if any(CONTAINER_FILE.search(name) for name in files):
                raise NotApplicableError("a container's lines are not in the host's journal")
            names += [n for n in logs(files) if carriers.is_journal(files[n]) and not carriers.is_kernel(files[n])]
        death = how or rng.choice(list(traffic.ENDS))
        render = JOURNAL_FORMS.get(form) or CONTAINER_FORMS[form]
        for name in need(names, "no log in which other services would stand"):
            own = entries(files, name, "python3" if form in JOURNAL_FORMS else "server", rng)
            told = form in JOURNAL_FORMS and name == names[-1]
            merged = list(_interleaved(own, death if told else "", rng))
            if told and named and not carriers.is_journal(files[name]):
                merged.insert(0, _started(own[0]))
            lines = [render(entry) for entry in merged]
            if form == "compose":
                lines.insert(rng.randrange(len(lines) + 1), "postgres-1 exited with code 137")
            result[name] = encoded([*lines, ""])
        return as_changed(result)

    return change


def _started(first: Entry) -> Entry:
    text = f"Started {first.unit} - LLM server."
    return Entry(first.at - timedelta(seconds=3), first.host, "systemd", 1, text, first.unit)


def _interleaved(own: list[Entry], how: str, rng: random.Random) -> Iterator[Entry]:
    host = own[0].host
    death = rng.randrange(len(own)) if how else -1
    if how == "stop timeout":
        asked = min(own[death].at - timedelta(seconds=90), own[0].at)
        yield Entry(asked, host, "systemd", 1, "Stopping reportd.service - Report builder...", "reportd.service")
    for n, entry in enumerate(own):
        if n == death:
            yield from traffic.neighbour_ends(how, entry.at, host)
        for _ in range(rng.randrange(3)):
            yield traffic.neighbour(entry.at, host, rng)
        yield entry


def crowded(count: int = 10_000) -> Change:
    """Many lines of normal traffic before what happened, and many that are none of ours after it.

    A log that shows a start has the traffic after its ready line; one that shows a start and never became ready
    has no traffic of its own, so another service's stands before it.
    """

    def change(files: Files, rng: random.Random) -> Changed:
        result = dict(files)
        for name in need(logs(files), "no log"):
            content = files[name]
            if carriers.is_kernel(content) or name.startswith("client"):
                continue
            lines, _ = body(content)
            at = carriers.moments(lines, files)
            first, last = (at[0], at[-1]) if at else (carriers.DEFAULT, carriers.DEFAULT)
            before, after = _earlier(first, count), _later(last, count)
            if carriers.is_journal(content):
                place = 0
                form = carriers.short_iso if lines[0].startswith("20") else carriers.short
                where = carriers.host_of(files)
                head = [form(e) for e in traffic.chores(before, where, rng)]
                tail = [form(e) for e in traffic.chores(after, where, rng)]
            else:
                place, own = _place(lines)
                before = [at[place - 1]] * count if place else before
                text = "\n".join(lines)
                head = traffic.normal(text, before, rng) if own else traffic.web(before, rng)
                tail = traffic.web(after, rng)
            result[name] = encoded([*lines[:place], *head, *lines[place:], *tail, ""])
        if result == files:
            raise NotApplicableError("only kernel lines and documents")
        return as_changed(result)

    return change


def _place(lines: list[str]) -> tuple[int, bool]:
    """Where traffic belongs, and whether it can be the server's own."""
    for sign in (traffic.READY, traffic.STARTED):
        for n, line in enumerate(lines):
            if sign.search(line):
                return n + 1, True
    starts = any(traffic.STARTING.search(line) for line in lines)
    works = any(traffic.WORKING.search(line) for line in lines)
    return 0, works and not starts


def _earlier(first: datetime, count: int) -> list[datetime]:
    return [first - timedelta(seconds=(count - n) // 20 + 1) for n in range(count)]


def _later(last: datetime, count: int) -> list[datetime]:
    return [last + timedelta(seconds=n // 20 + 5) for n in range(count)]
