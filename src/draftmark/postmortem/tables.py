"""What lines mean and what causes are called: the data of the judge, loaded from TOML.

`signs/*.toml` and each engine's own `signs.toml` hold the signs, `causes.toml` the causes. Nothing here sees a log.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

ANY = "any"
_WINDOW = 1500  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One kind of line and what it means.

    Attributes:
        says: Regular expression, searched in a line's text.
        hints: One of these stands in every line that `says` finds: a cheap test before the regular expression.
        voice: Who must have said it: `app` (the server or anything it prints), `systemd`, `kernel`, …, or `any`.
        role: `fault` when the line itself can name a cause; otherwise what it tells (see `events`).
        cause: For faults.
        strength: `certain` or `likely`: how sure the line alone makes the cause.
        wrapper: It names a cause but yields to any other fault: it is a message about a failure elsewhere.
        symptom: It yields to a deeper cause even when that was logged later.
        request: It ends one request, not the server.
        client: A client's words, not the server's.
        only_in: `exception`: only the last line of a traceback counts.
        target: The group that names the victim, which has to be ours: `comm` or `cgroup`.
        phase: What the server was doing, when the line alone tells.
        what: In plain words, for the timeline.
        flood: Ordinary traffic: too frequent to be looked for in large files.
        message_ids: journald's identifiers of the same message.
    """

    id: str
    says: str
    hints: tuple[str, ...]
    voice: str = "app"
    engine: str = ""
    role: str = "fault"
    cause: str = ""
    strength: str = "certain"
    wrapper: bool = False
    symptom: bool = False
    request: bool = False
    client: bool = False
    only_in: str = ""
    target: str = ""
    phase: str = ""
    what: str = ""
    flood: bool = False
    message_ids: tuple[str, ...] = ()

    def search(self, text: str) -> re.Match[str] | None:
        """Find it in a line's text. Compiled when first needed: most signs never are.

        A long line is searched at its beginning and around the first place of each hint, so that no text makes an
        expression slow.
        """
        pattern = _compiled(self.says)
        if len(text) <= _WINDOW:
            return pattern.search(text)
        places = sorted({0, *(max(0, at - _WINDOW // 2) for hint in self.hints if (at := text.find(hint)) >= 0)})
        return next((found for at in places if (found := pattern.search(text, at, at + _WINDOW))), None)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One entry of the taxonomy: see `causes.toml`."""

    name: str
    family: str
    title: str
    proves: str
    against: str
    confused_with: tuple[str, ...]
    advice: tuple[str, ...]
    settle: str
    memory: bool = False


@dataclass(frozen=True)
class Tables:
    """All signs and causes."""

    signs: tuple[Sign, ...]
    causes: Mapping[str, Cause]

    @cached_property
    def by_hint(self) -> Mapping[str, tuple[Sign, ...]]:
        """Signs by each of their hints."""
        found: dict[str, list[Sign]] = {}
        for sign in self.signs:
            for hint in sign.hints:
                found.setdefault(hint, []).append(sign)
        return {hint: tuple(signs) for hint, signs in found.items()}

    @cached_property
    def hints(self) -> tuple[str, ...]:
        """Every hint, once."""
        return tuple(self.by_hint)

    @cached_property
    def by_id(self) -> Mapping[str, Sign]:
        """Signs by name."""
        return {sign.id: sign for sign in self.signs}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {sign.id: place for place, sign in enumerate(self.signs)}

    def place(self, sign: Sign) -> int:
        """Where a sign stands among all: the order in which a line's meanings are given."""
        return self._places[sign.id]

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """What to look for in a file too large to be read line by line."""
        wanted = {
            hint for sign in self.signs if not sign.flood and sign.only_in != "exception" for hint in sign.hints
        }
        return tuple(sorted(wanted))

    def of_message_id(self, message_id: str) -> Sign | None:
        """The sign that journald's message id stands for."""
        return self._message_ids.get(message_id)

    @cached_property
    def _message_ids(self) -> Mapping[str, Sign]:
        return {message_id: sign for sign in self.signs for message_id in sign.message_ids}

    def memory(self, cause: str) -> bool:
        """Whether a cause is one of memory."""
        entry = self.causes.get(cause)
        return bool(entry and entry.memory)


def load_tables(engine_files: Iterable[Traversable] = ()) -> Tables:
    """Read the tables.

    Args:
        engine_files: The engines' own `signs.toml`; whoever knows the engines hands them in.
    """
    room = files("draftmark.postmortem")
    own = sorted((room / "signs").iterdir(), key=lambda entry: entry.name)
    signs = [
        sign
        for entry in [*engine_files, *own]
        if entry.name.endswith(".toml")
        for sign in _signs(entry.read_bytes())
    ]
    causes = {
        name: _cause(name, entry)
        for name, entry in tomllib.loads((room / "causes.toml").read_text("utf-8")).items()
    }
    return Tables(tuple(signs), causes)


def _signs(data: bytes) -> Iterable[Sign]:
    document = tomllib.loads(data.decode())
    engine = document.get("engine", "")
    for entry in document["sign"]:
        yield Sign(
            id=entry["id"],
            says=entry["says"],
            hints=tuple(entry["hints"]),
            voice=entry.get("voice", "app"),
            engine=entry.get("engine", engine),
            role=entry.get("role", "fault"),
            cause=entry.get("cause", ""),
            strength=entry.get("strength", "certain"),
            wrapper=entry.get("wrapper", False),
            symptom=entry.get("symptom", False),
            request=entry.get("request", False),
            client=entry.get("client", False),
            only_in=entry.get("only_in", ""),
            target=entry.get("target", ""),
            phase=entry.get("phase", ""),
            what=entry.get("what", ""),
            flood=entry.get("flood", False),
            message_ids=tuple(entry.get("message_id", ())),
        )


def _cause(name: str, entry: Mapping[str, object]) -> Cause:
    def words(key: str) -> tuple[str, ...]:
        value = entry[key]
        assert isinstance(value, list)  # noqa: S101 - our own data, held by a test
        return tuple(str(word) for word in value)

    return Cause(
        name=name,
        family=str(entry["family"]),
        title=str(entry["title"]),
        proves=str(entry["proves"]),
        against=str(entry["against"]),
        confused_with=words("confused_with"),
        advice=words("advice"),
        settle=str(entry["settle"]),
        memory=bool(entry.get("memory", False)),
    )
