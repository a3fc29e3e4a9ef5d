"""Service references, such as `unit:sglang.service` or `cmd:"llama-server -m x.gguf"`, and command lines in them.

Pure, but for looking up what `~` stands for.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from draftmark.errors import UsageError
from draftmark.model import ServiceKind, ServiceRef

FORMS = 'unit:NAME, cmd:"COMMAND LINE", docker:NAME, url:http://HOST:PORT, or embedded:'
"""The forms of a reference, for people."""

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NAME = re.compile(r"[^\s/]+")
_TILDE = re.compile(r"~[A-Za-z0-9._-]*(?=[/\s]|$)")
_EXPANSION = re.compile(r"\$[A-Za-z_{(0-9@*#?$!-]|`")
_OPERATORS = "|&;<>()\n"


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command line taken apart.

    Attributes:
        argv: Program and arguments.
        env: Variables that were assigned in front of it.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def parse_reference(text: str) -> ServiceRef:
    """Read a service reference. A `cmd:` target is checked, and stays one string: `parse_cmd` takes it apart.

    Raises:
        UsageError: Not one of the forms.
    """
    scheme, colon, target = text.strip().partition(":")
    if not colon or scheme not in set(ServiceKind):
        raise UsageError(
            f'"{text}" is not a service reference', evidence=(text,), next_step=_form_advice(text, scheme)
        )
    kind, target = ServiceKind(scheme), target.strip()
    if kind is ServiceKind.EMBEDDED:
        if target:
            raise UsageError("embedded: takes no name", evidence=(text,), next_step="write `embedded:` alone")
        return ServiceRef(kind, "")
    if not target:
        raise UsageError(f"{kind}: names nothing", evidence=(text,), next_step=f"use {FORMS}")
    if kind is ServiceKind.URL:
        return ServiceRef(kind, _checked_url(target, text))
    if kind is ServiceKind.CMD:
        target = _without_own_quotes(target)
        parse_cmd(target)
    elif not _NAME.fullmatch(target):
        raise UsageError(
            f"a {kind} name holds no blank and no slash", evidence=(text,), next_step=f"use {kind}:NAME, or {FORMS}"
        )
    return ServiceRef(kind, target)


def _form_advice(text: str, scheme: str) -> str:
    if scheme in ("http", "https"):
        return f"did you mean url:{text}? The forms are {FORMS}"
    close = difflib.get_close_matches(scheme, [str(kind) for kind in ServiceKind], n=1)
    if scheme in ("command", "exec", "run"):
        close = ["cmd"]
    return f"did you mean {close[0]}:…? The forms are {FORMS}" if close else f"use {FORMS}"


def _checked_url(target: str, text: str) -> str:
    try:
        parts = urlsplit(target)
        port = parts.port  # raises when it is no number, or above 65535
    except ValueError as error:
        raise UsageError(
            f"not a URL: {error}",
            evidence=(text,),
            next_step="use url:http://HOST:PORT, such as url:http://127.0.0.1:8080",
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or re.search(r"\s", target):
        raise UsageError(
            "a url: reference is http:// or https:// with a host",
            evidence=(text,),
            next_step="use url:http://HOST:PORT, such as url:http://127.0.0.1:8080",
        )
    return target.rstrip("/")


def _without_own_quotes(target: str) -> str:
    """`cmd:"a b"` as it stands in a file, where no shell has taken the double quotes away."""
    if len(target) > 1 and target[0] == target[-1] == '"':
        try:
            words = shlex.split(target)
        except ValueError:
            return target
        if len(words) == 1 and words[0].strip():
            return words[0].strip()
    return target


def parse_cmd(text: str, *, expand: Callable[[str], str] = os.path.expanduser) -> CommandSpec:
    """Take a command line apart: leading `VAR=value` words go to the environment.

    Args:
        text: Command line, quoted as for a POSIX shell.
        expand: What `~` and `~user` become.

    Raises:
        UsageError: As for `split_command`, or there is no program after the assignments.
    """
    words = list(split_command(text, expand=expand))
    env: dict[str, str] = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        env[match[1]] = match[2]
        words.pop(0)
    if not words or not words[0]:
        raise UsageError(
            "the command names no program", evidence=(text,), next_step="put the program behind the assignments"
        )
    return CommandSpec(tuple(words), env)


def split_command(text: str, *, expand: Callable[[str], str] = os.path.expanduser) -> tuple[str, ...]:
    """Split a command line into words as a POSIX shell would, but run nothing of it through a shell.

    Quotes, backslashes, a backslash at the end of a line and a leading `~` mean what they mean to a shell. What
    only a shell can do is refused, because passing it on literally would start something other than was meant.

    Raises:
        UsageError: Empty, unbalanced quotes, a NUL byte, or shell syntax.
    """
    prepared = _prepare(text.strip(), text, expand)
    try:
        words = shlex.split(prepared)
    except ValueError as error:
        raise _unbalanced(text) from error
    if not words:
        raise UsageError("the command is empty", evidence=(text,), next_step='use cmd:"PROGRAM ARGUMENTS"')
    return tuple(words)


def _unbalanced(text: str) -> UsageError:
    return UsageError(
        "the command's quotes are not balanced",
        evidence=(text,),
        next_step=f"close the quote; the forms are {FORMS}",
    )


def _prepare(source: str, text: str, expand: Callable[[str], str]) -> str:
    """Refuse shell syntax, join continued lines and expand `~`; what remains is for shlex.

    Args:
        source: Command line, stripped.
        text: As the user wrote it, for the error.
        expand: What `~` becomes.
    """
    if "\0" in source:
        raise UsageError("the command holds a NUL byte", evidence=(repr(text),), next_step="remove it")
    out: list[str] = []
    quote, word_start, index = "", True, 0
    while index < len(source):
        char = source[index]
        taken = char
        if char == "\\" and quote != "'":
            taken = source[index : index + 2]
            out.append(_escape(taken, quote))
        elif quote:
            _refuse_expansion(source, index, quote, text)
            quote = "" if char == quote else quote
            out.append(char)
        elif char in "'\"":
            quote = char
            out.append(char)
        else:
            _refuse_syntax(source, index, text)
            tilde = _TILDE.match(source, index) if word_start else None
            taken = tilde[0] if tilde else char
            out.append(shlex.quote(expand(taken)) if tilde else char)
        word_start = not quote and (taken in (" ", "\t", "\\\n") or _assigns(source[: index + 1]))
        index += len(taken)
    if quote:
        raise _unbalanced(text)
    return "".join(out)


def _escape(pair: str, quote: str) -> str:
    """An escape, for shlex: it would keep a joined line's end, and in double quotes the backslash before a `$`."""
    if pair == "\\\n":
        return ""
    return pair[1] if quote == '"' and pair in ("\\$", "\\`") else pair


def _assigns(head: str) -> bool:
    """Whether an unquoted `NAME=` has just been read: `~` is expanded behind it too."""
    return head.endswith("=") and bool(re.search(r"(?:^|\s)[A-Za-z_][A-Za-z0-9_]*=$", head))


def _refuse_syntax(source: str, index: int, text: str) -> None:
    if source[index] in _OPERATORS:
        for operator in ("&&", "||", ">>", "<<"):
            if source.startswith(operator, index):
                raise _needs_shell(operator, text)
        raise _needs_shell("a line end" if source[index] == "\n" else source[index], text)
    _refuse_expansion(source, index, "", text)


def _refuse_expansion(source: str, index: int, quote: str, text: str) -> None:
    if quote != "'" and (match := _EXPANSION.match(source, index)):
        raise _needs_shell(match[0], text)


def _needs_shell(what: str, text: str) -> UsageError:
    shown = what if what == "a line end" else f"`{what}`" if what != "`" else "a backtick"
    return UsageError(
        f"the command needs a shell for {shown}, and is run without one",
        evidence=(text,),
        next_step="put it in a script that ends in `exec`, or write cmd:\"bash -lc '… exec PROGRAM …'\"; "
        "put it in single quotes if it is meant literally",
    )
