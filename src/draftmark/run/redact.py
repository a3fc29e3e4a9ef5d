"""Secrets out of everything that is written: by the names they stand under, and by their values. Pure.

Two nets, because each has holes. Names (`--api-key`, `HF_TOKEN`, `X-Api-Key:`) are all there is to go by in a
command line that is seen for the first time; but a server may echo a key in an error body or a log line where no
name stands. `Redactor` therefore learns the values behind the names and hides them wherever they turn up.

Errs to hiding: what is hidden by mistake costs a word of a report, what is shown by mistake costs a key.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"
SHORTEST_VALUE = 4
"""Characters. Shorter values are hidden by name only: they would be found in half the words of a log."""

_Span = tuple[int, int]

# Names --------------------------------------------------------------------------------------------


def _these(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECRET_SHORT = frozenset({"-hft"})
_WORKING_DIRECTORIES = frozenset({"PWD", "OLDPWD", "--pwd"})
# Anywhere in a word of the name.
# `NOPASSWD` is a word of sudo's that says there is none.
_STRONG = re.compile(r"secret|(?<!\bno)passw(or)?d|passphrase|passcode|credential|authori[sz]ation$|cookies?$|jwt$")
_STRONG_KEY = re.compile(
    r"(api|access|private|secret|auth|ssh|signing|master|licen[cs]e|encryption|session|bearer)[-_ ]?keys?(?![a-z])"
)
_PASS = re.compile(r"(?<!by)(?<!com)(?<!tres)pass$|pwd$|^pw$")
_TOKEN = re.compile(r"tokens?$")
# A last word that makes it the place of a secret, not the secret.
_PLACE = re.compile(r"(file|files|path|paths|dir|directory|folder|sock|socket)$")
# A last word that makes it a figure or a property of what it names.
_PROPERTY = _these(
    "id ids limit limits budget count counts size length len type kind ttl timeout expiry ratio rate threshold "
    "usage level name names method mode enabled healing cache parallelism usec seconds throughput latency"
)
_COUNTED = _these("max min num n per bos eos eot pad unk mask sep cls special")
_OF_TOKENS = _these("api auth access bearer hf github gitlab refresh secret session")
_PLAIN_KEY = _these("public sort cache partition primary foreign group routing prefix")
_SWITCHES = ("--no-", "--enable-", "--disable-", "--require-")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(name: str) -> list[str]:
    parts = re.split(r"[^A-Za-z0-9]+", _CAMEL.sub(" ", name))
    words = [part.lower().rstrip("0123456789") or part for part in parts if part]
    return [word for index, word in enumerate(words) if index == 0 or not word.isdigit()]


def _is_secret(name: str) -> bool:
    if name in _SECRET_SHORT:
        return True
    words = _words(name)
    if not words or name in _WORKING_DIRECTORIES or name.startswith(_SWITCHES) or _PLACE.search(words[-1]):
        return False
    return _is_strong(words) or (words[-1] not in _PROPERTY and _is_weak(words))


def _is_strong(words: Sequence[str]) -> bool:
    return any(_STRONG.search(word) for word in words) or bool(_STRONG_KEY.search(" ".join(words)))


def _is_weak(words: Sequence[str]) -> bool:
    """Words that name a secret in most places, and something else in some."""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("key", "keys"):
        return before not in _PLAIN_KEY
    if last in ("auth", "sig", "signature", "bearer") or _PASS.search(last) or (last == "pat" and before):
        return True
    return any(_is_token(word, words[index - 1] if index else "") for index, word in enumerate(words))


def _is_token(word: str, before: str) -> bool:
    """One token is a secret, several are counted: `MY_TOKEN`, `--max-tokens`."""
    if not _TOKEN.search(word):
        return False
    return before not in _COUNTED if word.endswith("token") else before in _OF_TOKENS


def _needs_no_sign(name: str) -> bool:
    """Whether `name: value` in a line of prose is a secret; `EOS token = 2` and `key: 3` are none."""
    return _is_secret(name) and (len(_words(name)) > 1 or _is_strong(_words(name)))


# Where the values are -----------------------------------------------------------------------------

_USERINFO = re.compile(r"(?<=://)(?:[^/?#\s\"]*|[^/?#\s@:\"\[]*:(?!\d*(?:[/?#]|$))[^\s\"]{0,300})(?=@)")
_BEARER = re.compile(r"(?i)(?<![A-Za-z])bearer\s+(?P<value>(?:[^\s\"']|[\"'](?=[\w-]))+)")
# Keys that are known by their own form, wherever they stand: Hugging Face, OpenAI, Anthropic, GitHub, GitLab, AWS,
# Slack, NVIDIA, Google, and JSON web tokens.
_KNOWN_FORM = re.compile(
    r"(?<![A-Za-z0-9_-])(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|"
    r"glpat-[\w-]{12,}|A[KS]IA[0-9A-Z]{12,}|xox[abprs]-[\w-]{8,}|nvapi-[\w-]{12,}|AIza[\w-]{24,}|"
    r"eyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*)"
)
_CURL_USER = re.compile(r"(?:(?<=\s)|^)(?:-u|--user)(?:\s+|=)[\"']?[^\s:\"']+:(?P<value>[^\s\"']+)")
_SCHEMES = "bearer|basic|digest|token|apikey|negotiate"
_AUTHORIZATION = re.compile(
    rf"(?i)(?:authorization|cookie)\\*[\"']?\s*[:=]\s*\\*[\"']?(?:(?:{_SCHEMES})\s+)?(?P<value>[^\"'\r\n]*[^\"'\s\\])"
)
_SCHEME = re.compile(rf"(?i)(?:{_SCHEMES})")
_SCHEMED = re.compile(rf"(?is)\s*(?:{_SCHEMES})\s+(?P<value>\S.*)")
_NAME = re.compile(r"(?<![\w.-])-{0,2}[A-Za-z_][\w.-]*+|(?<=\\[nrt])--[A-Za-z_][\w.-]*+")
_SEPARATOR = re.compile(
    r"(?P<quoted>\\*[\"']\s*:\s*)|(?P<listed>\\*[\"']\s*,\s*)|(?P<equals>=\s*)|(?P<prose>\s+=\s*|\s*:(?![/:])\s*)|(?P<blank>\s+)"
)
_COUNT = re.compile(r"\d{1,12}(?![\w.-])")
_QUERY_VALUE = re.compile(r"(?:[^&#\s\"'<>]|'(?=\w))+")
_SHELL_VALUE = re.compile(r"(?:\\.|\"(?:\\.|[^\"\\])*\"|'[^']*'|\[[^\]]*\]|[^\s\"'\\])+", re.DOTALL)
_JSON_VALUE = re.compile(
    r"(?P<q>\\+[\"']).*?(?P=q)|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\[[^\]]*\]|[^\s,}\])\"'\[{]+", re.DOTALL
)
_AFTER_QUOTE = " \t\r\n,.;:!?)]}"
_QUOTES = re.compile(r"\\*[\"']|\[")
_NAME_WORD = re.compile(r"-{0,2}[A-Za-z_][\w.-]*")
_HEADER_FLAGS = frozenset({"-H", "--header", "--headers"})


def _spans(value: str) -> list[_Span]:
    """The places in a line that hold a secret, in order, none within another."""
    found = [match.span() for match in _USERINFO.finditer(value)]
    found += [match.span() for match in _KNOWN_FORM.finditer(value)]
    found += [match.span("value") for match in _CURL_USER.finditer(value)]
    found += [match.span("value") for match in _BEARER.finditer(value)]
    found += [match.span("value") for match in _AUTHORIZATION.finditer(value)]
    found += _named(value)
    return _merged(found)


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _named(value: str) -> Iterator[_Span]:
    covered = 0
    for name in _NAME.finditer(value):
        separator = _SEPARATOR.match(value, name.end())
        if name.start() < covered or separator is None or not _announces(name[0], separator):
            continue
        before = value[name.start() - 1 : name.start()]
        if before == "#" and separator["prose"] and _COUNT.match(value, separator.end()):
            continue  # SGLang's `#new-token: 8192`
        if separator["equals"] and before and before in "?&#;":
            pattern = _QUERY_VALUE
        else:
            pattern = _JSON_VALUE if separator["quoted"] or separator["listed"] else _SHELL_VALUE
        if _SCHEMED.match(value, separator.end()) and "authorization" in name[0].lower():
            continue  # the scheme stays: found as a header
        if span := _quoted_whole(value, name.start(), separator):
            covered = span[1]
            yield span
        elif found := pattern.match(value, separator.end()):
            span = _inside_quotes(value, _before_backtick(value, name.start(), found.span()))
            covered = span[1]
            yield span


def _quoted_whole(value: str, name_at: int, separator: re.Match[str]) -> _Span | None:
    """The value in `'NAME=value'`, with the blanks in it and without the closing quote; None where it is not so."""
    quote = value[max(0, name_at - 1) : name_at]
    if not quote or quote not in "\"'`" or not (separator["equals"] or separator["prose"]):
        return None
    end = value.find(quote, separator.end())
    if end < 0 or value[end - 1] == "\\" or value[end + 1 : end + 2].strip(_AFTER_QUOTE):
        return None
    return separator.end(), end


def _before_backtick(value: str, name_at: int, span: _Span) -> _Span:
    """Without the backtick that ends a quotation which began before the name, and what stands behind it."""
    start, end = span
    shown = len(value[start:end].rstrip(_AFTER_QUOTE))
    if value.endswith("`", start, start + shown) and value.count("`", 0, name_at) % 2:
        return start, start + shown - 1
    return span


def _announces(name: str, separator: re.Match[str]) -> bool:
    if separator["blank"] or separator["listed"]:
        return name.startswith("-") and _is_secret(name)
    return _needs_no_sign(name) if separator["prose"] else _is_secret(name)


def _inside_quotes(value: str, span: _Span) -> _Span:
    start, end = span
    opening = _QUOTES.match(value, start, end)
    if opening:
        closing = "]" if opening[0] == "[" else opening[0]
        inner = re.sub(r"\\.", "", value[opening.end() : end - len(closing)], flags=re.DOTALL)
        if end - start >= 2 * len(closing) and value.endswith(closing, start, end) and closing not in inner:
            return opening.end(), end - len(closing)
    return span


def _command_spans(words: Sequence[str]) -> Iterator[list[_Span]]:
    """For each word of a command line, the places in it that hold a secret."""
    pending = ""  # what the word before said of this one: "value", "header" or "credentials"
    for word in words:
        spans, following = _word_spans(word, pending)
        yield spans
        pending = following


def _word_spans(word: str, pending: str) -> tuple[list[_Span], str]:
    """A word's spans, and what it says of the next."""
    whole = [(0, len(word))] if word else []
    if pending == "credentials" and _SCHEME.fullmatch(word):
        return [], "credentials"
    if pending in ("value", "credentials"):
        schemed = _SCHEMED.fullmatch(word) if pending == "credentials" else None
        return ([schemed.span("value")] if schemed else whole), ""
    head, following = _header_spans(word) if pending == "header" else (None, "")
    if head is not None:
        return head, following
    name, equals, value = word.partition("=")
    if equals and _NAME_WORD.fullmatch(name) and _is_secret(name):
        return _merged([(len(name) + 1, len(word))]), "" if value or not name.startswith("-") else "value"
    if word.startswith("-") and not equals and _NAME_WORD.fullmatch(word) and _is_secret(word):
        return [], "credentials" if "authorization" in word.lower() else "value"
    if word in _HEADER_FLAGS:
        return [], "header"
    for start in (len(flag) for flag in ("--header=", "--headers=", "-H") if word.startswith(flag)):
        head, following = _header_spans(word, start)
        if head is not None:
            return head, following
    head, following = _header_spans(word)
    if head is not None and _needs_no_sign(word.partition(":")[0]):
        return head, following
    return _spans(word), "credentials" if word.lower() == "bearer" else ""


def _header_spans(word: str, start: int = 0) -> tuple[list[_Span] | None, str]:
    """The value of a header word, and what it says of the next word; None when it is no secret header."""
    name, colon, value = word[start:].partition(":")
    if not colon or not _NAME_WORD.fullmatch(name.strip()) or not _is_secret(name.strip()):
        return None, ""
    if not value.strip():
        return [], "credentials"
    if _SCHEME.fullmatch(value.strip()):
        return [], "credentials"
    schemed = _SCHEMED.fullmatch(value)
    begin = start + len(name) + 1
    begin += schemed.start("value") if schemed else len(value) - len(value.lstrip())
    return [(begin, len(word))], ""


# Hiding by name -----------------------------------------------------------------------------------


def _hide(value: str, spans: Iterable[_Span]) -> str:
    out, at = [], 0
    for start, end in spans:
        out += [value[at:start], HIDDEN]
        at = end
    return "".join((*out, value[at:]))


def text(value: str) -> str:
    """A line with what stands under a secret name, in a URL's user part or behind `Bearer` hidden."""
    return _hide(value, _spans(value))


def command(words: Sequence[str]) -> tuple[str, ...]:
    """A command line with the values of secret flags, NAME=value assignments, headers and URLs hidden."""
    return tuple(_hide(word, spans) for word, spans in zip(words, _command_spans(words), strict=True))


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with secret values hidden."""
    return {name: HIDDEN if _is_secret(name) else text(value) for name, value in variables.items()}


# Hiding by value ----------------------------------------------------------------------------------

_NO_SECRET = frozenset({"true", "false", "none", "null", *_SCHEMES.split("|")})
_LOOKS_LIKE_A_FLAG = re.compile(r"--?[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class Redactor:
    """Hides known secret values wherever they stand, and what the name rules find.

    Redact before cutting a text short: half a key is not found.

    Attributes:
        values: What is hidden, longest first; not in the repr.
    """

    values: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, command: Sequence[str], env: Mapping[str, str], extra: Iterable[str] = ()) -> Redactor:
        """Learn the values.

        Args:
            command: Command line, secrets in it.
            env: Environment; only what stands under a secret name or in a URL is learnt.
            extra: Further secrets or headers' values, such as `Bearer sk-1`, whatever they look like.
        """
        found = [
            word[start:end]
            for word, spans in zip(command, _command_spans(command), strict=True)
            for start, end in spans
        ]
        for name, value in env.items():
            found += [value] if _is_secret(name) else [value[start:end] for start, end in _spans(value)]
        found = [value for value in found if not _LOOKS_LIKE_A_FLAG.fullmatch(value)]
        values = {form for value in (*found, *extra) for part in _parts(value) for form in _forms(part)}
        return cls(tuple(sorted((v for v in values if len(v) >= SHORTEST_VALUE), key=lambda v: (-len(v), v))))

    def text(self, value: str) -> str:
        """A text with the values hidden, and what stands under a secret name."""
        return self._by_value(text(self._by_value(value)))

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """A command line with the values hidden, and what stands under a secret name."""
        return tuple(self._by_value(word) for word in command([self._by_value(word) for word in words]))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Environment variables, the same way."""
        return {name: self._by_value(value) for name, value in environment(variables).items()}

    def bytes(self, value: bytes) -> bytes:
        """A log file or a body, the same way; what is not UTF-8 stays as it is."""
        return self.text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _by_value(self, value: str) -> str:
        # Again until none is left: hiding one may join its surroundings to another. Ends, for each round shortens.
        while spans := _merged(span for known in self.values for span in _occurrences(known, value)):
            value = _hide(value, spans)
        return value


def _occurrences(known: str, value: str) -> Iterator[_Span]:
    start = value.find(known)
    while start >= 0:  # those that overlap too
        yield start, start + len(known)
        start = value.find(known, start + 1)


def _parts(value: str) -> Iterator[str]:
    """A value and what in it is a secret by itself: keys of a list, a URL's password, what a scheme precedes."""
    found = {value, value.strip()}
    if schemed := _SCHEMED.fullmatch(value):
        found.add(schemed["value"].strip())
    if re.search(r"\s-", value):  # `TOKEN=x serve --port 1` as one word
        found.add(value.split()[0])
    for piece in tuple(found):
        found |= {part.strip().strip("\"'[]").strip() for part in re.split(r"[,\r\n]", piece)}
        found |= {piece[start:end] for start, end in _spans(piece)}
        if len(user := piece.split(":")) == 2 and "/" not in piece:
            found.add(user[1])
        found |= _from_basic(piece)
    yield from (part for part in found if part.lower() not in _NO_SECRET and part.strip("*"))


def _from_basic(value: str) -> set[str]:
    """`user:password` in base64, as Basic authorization has it."""
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return set()
    return {f"{user}:{password}", password} if colon and password.isprintable() else set()


def _forms(value: str) -> Iterator[str]:
    """How a value is written in URLs, JSON, HTML, a shell and Python's repr."""
    yield from (value, unquote(value), unquote_plus(value), html.escape(value))
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (repr(value)[1:-1], shlex.quote(value)[1:-1] if shlex.quote(value) != value else value)
    data = value.encode("utf-8", "surrogateescape" if _only_escapes(value) else "surrogatepass")
    yield from (quote(data), quote(data, safe=""), quote_plus(data), repr(data)[2:-1])


def _only_escapes(value: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in value)
