"""The grammar of SGLang's log (`grammar.toml`), compiled, and which versions a wording leaves possible."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

_SEARCHED: Final = 8192
"""Characters of a record that are searched: what tells its kind stands at its beginning, and no search is long."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one kind of line looks like. The fields are those of grammar.toml."""

    name: str
    use: str
    hints: tuple[str, ...]
    says: str
    since: str | None
    until: str | None
    starts: bool
    open: bool
    whole: bool

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when it is first needed: of a start's log, few kinds are there."""
        return _compiled(self.says)

    def search(self, text: str) -> re.Match[str] | None:
        """The match in one record's text; None if this is another kind of line."""
        for hint in self.hints:
            if hint in text:
                return self.pattern.search(text)
        return None


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions that a wording leaves possible, both ends included; None: open on that side.

    Both ends are versions whose sources were read. One between two of them (0.5.13) counts as the older.
    """

    since: str | None = None
    until: str | None = None

    def narrowed(self, since: str | None, until: str | None) -> VersionRange:
        """The range with one more wording: the newest beginning and the oldest end win."""
        return VersionRange(
            max((v for v in (self.since, since) if v), key=_order, default=None),
            min((v for v in (self.until, until) if v), key=_order, default=None),
        )

    @property
    def contradictory(self) -> bool:
        """Whether wordings of versions were seen that no single version has: a patched or unknown build."""
        return bool(self.since and self.until and _order(self.since) > _order(self.until))


@dataclass(frozen=True, slots=True)
class Grammar:
    """The rules in the order in which they are tried, and what the names of arguments say about the version."""

    versions: tuple[str, ...]
    rules: tuple[Rule, ...]
    by_head: Mapping[str, Rule]
    arguments: Mapping[str, VersionRange]
    secrets: frozenset[str]

    def find(self, text: str) -> tuple[Rule, re.Match[str]] | None:
        """The first rule that a record fits, with its match; None: not a line that SGLang is known to write.

        The few kinds that make up nearly all of a long log are known by their first word.
        """
        rule = self.by_head.get(text[: text.find(" ")])
        if rule is not None:
            match = rule.pattern.search(text)
            if match is not None:
                return rule, match
        start = text[:_SEARCHED]
        for rule in self.rules:
            match = rule.search(start)
            if match is not None and rule.whole:
                match = rule.pattern.search(text)
            if match is not None:
                return rule, match
        return None

    def versions_of(self, arguments: Iterable[str], *, complete: bool) -> VersionRange:
        """What the names of the arguments say about the version.

        A name that is missing counts only if the list is `complete`, that is not cut.
        """
        names = set(arguments)
        found = VersionRange()
        for name, known in self.arguments.items():
            if name in names:
                found = found.narrowed(known.since, known.until)
            elif complete and names:
                found = found.narrowed(self._after(known.until), self._before(known.since))
        return found

    def _before(self, version: str | None) -> str | None:
        place = self.versions.index(version) if version else 0
        return self.versions[place - 1] if place else None

    def _after(self, version: str | None) -> str | None:
        place = self.versions.index(version) + 1 if version else len(self.versions)
        return self.versions[place] if place < len(self.versions) else None


@cache
def _compiled(says: str) -> re.Pattern[str]:
    return re.compile(says)


@cache
def grammar() -> Grammar:
    """The grammar, read once."""
    table = tomllib.loads(files(__package__).joinpath("grammar.toml").read_text(encoding="utf-8"))
    rules = tuple(_rule(entry) for entry in table["rule"])
    heads = {entry["head"]: rule for entry, rule in zip(table["rule"], rules, strict=True) if "head" in entry}
    arguments = {a["name"]: VersionRange(a.get("since"), a.get("until")) for a in table["argument"]}
    return Grammar(tuple(table["versions"]), rules, heads, arguments, frozenset(table["secrets"]))


def _rule(entry: Mapping[str, Any]) -> Rule:
    return Rule(
        name=entry["name"],
        use=entry["use"],
        hints=tuple(entry["hints"]),
        says=entry["says"],
        since=entry.get("since"),
        until=entry.get("until"),
        starts=entry.get("starts", False),
        open=entry.get("open", False),
        whole=entry.get("whole", False),
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
