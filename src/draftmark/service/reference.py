"""Service references, such as `unit:sglang.service` or `cmd:"llama-server -m x.gguf"`, and command lines in them.

Pure, but for looking up what `~` stands for.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit, urlunsplit

from draftmark.errors import UsageError
from draftmark.model import ServiceKind, ServiceRef

FORMS = 'unit:NAME, cmd:"COMMAND LINE", docker:NAME, url:http://HOST:PORT, or embedded:'
"""The forms of a reference, for people."""

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NAME = re.compile(r"[^\s/]+")
_TILDE = re.compile(r"~[A-Za-z0-9._-]*(?=[/\s]|$)")
_EXPANSION = re.compile(r"\$[A-Za-z_{(0-9@*#?$!-]|`")
_OPERATORS = "|&;<>()\n"
_URL_ADVICE = "use url:http://HOST:PORT, such as url:http://127.0.0.1:8080"
_KEPT_IN_URL = "/%:@!$&'()*+,;=~?"
_BRACKETS = re.compile(r"\[[^\[\]]*\](?::\d*)?|[^\[\]]*")
# Up to the last @ of the authority; beyond its first slash where a `:` is followed by no port.
_USERINFO = re.compile(r"(?<=://)(?:[^/?#]*@|[^/?#@:\[]*:(?!\d*(?:[/?#]|$)).*@)", re.DOTALL)


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
        shown = _without_userinfo(text)
        raise UsageError(
            f'"{shown}" is not a service reference', evidence=(shown,), next_step=_form_advice(shown, scheme)
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
        raise UsageError(f"a {kind} name holds no blank and no slash", evidence=(text,), next_step=f"use {FORMS}")
    return ServiceRef(kind, target)


def _form_advice(text: str, scheme: str) -> str:
    if scheme in ("http", "https"):
        return f"did you mean url:{text}? The forms are {FORMS}"
    close = difflib.get_close_matches(scheme, [str(kind) for kind in ServiceKind], n=1)
    if scheme in ("command", "exec", "run"):
        close = ["cmd"]
    return f"did you mean {close[0]}:…? The forms are {FORMS}" if close else f"use {FORMS}"


def _checked_url(target: str, text: str) -> str:
    """The URL in ASCII: a name's other letters as IDNA has them, a path's percent-encoded.

    Raises:
        UsageError: It cannot be reached as it stands, or holds a user name or password.
    """
    shown = _without_userinfo(text)
    if shown != text:
        raise UsageError(
            "a url: reference holds no user name and no password: it is written to records",
            evidence=(shown,),
            next_step="leave out what stands before the @, and give it as --header 'Authorization: Bearer …'",
        )
    try:
        parts = urlsplit(target)
        port = parts.port  # raises when it is no number, or above 65535
        if not _BRACKETS.fullmatch(parts.netloc):
            raise ValueError("brackets belong around an IPv6 address, and a port alone behind them")
        host = _ascii_host(parts.hostname or "")
        path, query, fragment = (
            quote(part, safe=_KEPT_IN_URL, errors="surrogateescape")
            for part in (parts.path, parts.query, parts.fragment)
        )
    except ValueError as error:
        raise UsageError(f"not a URL: {error}", evidence=(text,), next_step=_URL_ADVICE) from error
    if parts.scheme not in ("http", "https") or not host or port == 0 or re.search(r"[\s\x00-\x1f\x7f]", target):
        raise UsageError(
            "a url: reference is http:// or https:// with a host", evidence=(text,), next_step=_URL_ADVICE
        )
    netloc = host if port is None else f"{host}:{port}"
    return urlunsplit((parts.scheme, netloc, path, query, fragment)).rstrip("/?#")


def _without_userinfo(text: str) -> str:
    """A reference without what stands before the @ of its URL, also where a `/` in a password hides that @."""
    return _USERINFO.sub("***@", text)


def _ascii_host(host: str) -> str:
    """A host name or address as it goes into a URL.

    Raises:
        ValueError: A label is empty, longer than 63, or has characters that no name can have.
    """
    if ":" in host:
        ipaddress.IPv6Address(host)
        return f"[{host}]"
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"{host[:80]!r} cannot be a host name ({_idna_reason(host, error)})") from error
    if not re.fullmatch(r"[A-Za-z0-9._-]*", name):
        raise ValueError(f"{host[:80]!r} cannot be a host name (a character in it)")
    return name


def _idna_reason(host: str, error: UnicodeError) -> str:
    labels = re.split("[.\u3002\uff0e\uff61]", host)
    if "" in labels[:-1] or host == ".":
        return "an empty label"
    return "a label over 63 characters" if "too long" in str(error) else "a character in it"


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
