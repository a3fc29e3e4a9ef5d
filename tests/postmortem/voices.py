"""Other services between the lines of a case, and many lines around it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from . import carriers, traffic
from .carriers import CONTAINER_FORMS, JOURNAL_FORMS, Entry, body, encoded
from .change import Change, Changed, NotApplicableError, applications, as_changed, entries, logs, need
from .corpus import Files


def foreign(form: str, how: str) -> Change:
    """Other services between the lines, with their own errors, and one that dies.

    In journald's form the host's journal is merged into one; in compose's form it is the log of all containers.
    """

    def change(files: Files, rng: random.Random) -> Changed:
        names = applications(files)
        journals = [n for n in logs(files) if carriers.is_journal(files[n]) and not carriers.is_kernel(files[n])]
        if form in JOURNAL_FORMS:
            names += journals
        render = JOURNAL_FORMS.get(form) or CONTAINER_FORMS[form]
        result = dict(files)
        for name in need(names, "no log in which other services would stand"):
            own = entries(files, name, "python3" if form in JOURNAL_FORMS else "server", rng)
            merged = list(_interleaved(own, how if name == names[-1] else "", rng))
            lines = [render(entry) for entry in merged]
            if form == "compose":
                lines.insert(rng.randrange(len(lines) + 1), "postgres-1 exited with code 137")
            result[name] = encoded([*lines, ""])
        return as_changed(result)

    return change


def _interleaved(own: list[Entry], how: str, rng: random.Random) -> Iterator[Entry]:
    host = own[0].host
    death = rng.randrange(len(own)) if how else -1
    if how == "stop timeout":
        asked = own[death].at - timedelta(seconds=90)
        yield Entry(min(asked, own[0].at), host, "systemd", 1, "Stopping reportd.service - Report builder...")
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
