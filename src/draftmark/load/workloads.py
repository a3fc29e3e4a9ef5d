"""What is asked: the built-in prompts, and readers for the user's own.

Prompts are real text: random tokens may not choose a depth, since what is drafted and accepted depends on the text.
"""

from __future__ import annotations

import codecs
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from draftmark.errors import BadInputError, UsageError
from draftmark.model import Message, Prompt, Workload

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_TOKENS = 9_999_999  # longer than any context
_SEEDS = range(-(2**63), 2**64)  # what servers read into 64 bits, and JSON writers write

_ABOUT = {
    "copy": "answers that repeat the prompt with a change: code edits, lists rewritten as JSON",
    "chat": "answers in new words: open questions, short stories, retellings",
}
_SAVE = "save it as UTF-8 JSON Lines"
_FORMS = '{"messages": [...]}, {"conversations": [...]} or {"prompt": "..."}'
_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


def load_workloads(names: Sequence[str] | None = None) -> tuple[Workload, ...]:
    """The built-in workloads, all or those named, in the order named.

    Raises:
        UsageError: There is none of that name.
    """
    unknown = [name for name in names or () if name not in _ABOUT]
    if unknown:
        raise UsageError(
            f"there is no built-in workload {unknown[0]!r}",
            next_step=f"use {' or '.join(_ABOUT)}, or --prompts FILE for prompts of your own",
        )
    return tuple(_built_in(name) for name in dict.fromkeys(names or _ABOUT))


def _built_in(name: str) -> Workload:
    text = resources.files("draftmark.load").joinpath("builtin", f"{name}.jsonl").read_text(encoding="utf-8")
    prompts = []
    for line in text.splitlines():
        entry = json.loads(line)
        prompts.append(
            Prompt(
                id=entry["id"],
                messages=tuple(Message(m["role"], m["content"]) for m in entry["messages"]),
                max_tokens=entry["max_tokens"],
                temperature=entry["temperature"],
                seed=entry.get("seed"),
            )
        )
    return Workload(name=name, prompts=tuple(prompts), about=_ABOUT[name])


# --- the user's own ---------------------------------------------------------------------------------------


class _UnusableError(Exception):
    """Why one entry is no prompt, in words."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One parsed entry of a file and where it stands."""

    line: int
    number: int
    value: object
    raw: str


def workload_from_file(path: Path, *, max_tokens: int) -> Workload:
    """Prompts from a file: JSON Lines, or one JSON list.

    Each entry is one of: `{"messages": [{"role", "content"}, …]}` with optional `max_tokens` (or
    `max_completion_tokens`), `temperature`, `seed` and `id`; ShareGPT's `{"conversations": [{"from", "value"}, …]}`
    of which the turns up to the last human one are sent; or `{"prompt": "…"}` with the same options. An answer at
    the end of `messages` is left out, for it is what is asked for.

    Args:
        path: The file.
        max_tokens: For entries that do not say it themselves.

    Raises:
        BadInputError: The file or an entry cannot be used; says where and why.
    """
    prompts: list[Prompt] = []
    ids: set[str] = set()
    for entry in _entries(path, _read(path)):
        try:
            prompt = _prompt(entry, max_tokens)
        except _UnusableError as error:
            raise _bad_line(path, entry.line, str(error), entry.raw) from None
        if prompt.id in ids:
            raise _bad_line(path, entry.line, f"the id {prompt.id!r} was used before", entry.raw)
        ids.add(prompt.id)
        prompts.append(prompt)
    if not prompts:
        raise BadInputError(f"{path} has no prompts", next_step=f"each line should be {_FORMS}")
    # `all` names the axis over all workloads
    name = "prompts" if path.stem in ("", "all") else path.stem
    return Workload(name=_storable(name), prompts=tuple(prompts), source=_storable(path.name))


def _storable(name: str) -> str:
    """A file's name as it can be written down: the bytes of one need not be text."""
    return os.fsencode(name).decode("utf-8", "replace")


def _read(path: Path) -> str:
    data = _bytes(path)
    if not data.strip():
        raise BadInputError(f"{path} is empty", next_step=f"each line should be {_FORMS}")
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise BadInputError(
            f"{path}, line 1: UTF-16, not UTF-8",
            evidence=(f"it begins with the bytes {data[:2].hex(' ')}",),
            next_step=f"{_SAVE}, for example: iconv -f utf-16 -t utf-8",
        )
    start = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        if len(line) > MAX_LINE_BYTES and not data.lstrip().startswith(b"["):
            raise BadInputError(
                f"{path}, line {number}: {len(line) / 2**20:.1f} MiB in one line, over the limit of 8 MiB",
                next_step="a prompt as long as this fits no context; cut it, or write one JSON object a line",
            )
        if b"\0" in line:
            raise BadInputError(
                f"{path}, line {number}: a zero byte, so this is not a text file",
                evidence=(f"at offset {start + line.index(0)}",),
                next_step=_SAVE,
            )
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadInputError(
                f"{path}, line {number}: not UTF-8",
                evidence=(f"byte 0x{line[error.start]:02x} at offset {start + error.start}: {error.reason}",),
                next_step="convert it, for example: iconv -f latin1 -t utf-8",
            ) from None
        start += len(line) + 1
    return data.decode("utf-8-sig")


def _bytes(path: Path) -> bytes:
    """The file's bytes; what never ends or is too large is not read at all."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError
        if not stat.S_ISREG(found.st_mode):
            raise BadInputError(
                f"{path} is not a regular file but {_file_kind(found.st_mode)}",
                next_step="write the prompts to a file first and give that to --prompts",
            )
        if found.st_size > MAX_FILE_BYTES:
            raise _too_large(path, f"it has {found.st_size} bytes")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)  # a file of the kernel's says 0 bytes, another may be growing
    except FileNotFoundError:
        raise BadInputError(
            f"there is no prompt file {path}", next_step="check the path given to --prompts"
        ) from None
    except IsADirectoryError:
        raise BadInputError(
            f"{path} is a directory, not a prompt file", next_step="give one file; several can be joined with cat"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInputError(f"{path} cannot be read", evidence=(str(error),)) from error
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(path, "it went on after that")
    return data


def _file_kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a character device"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _too_large(path: Path, evidence: str) -> BadInputError:
    return BadInputError(
        f"{path} is over the limit of {MAX_FILE_BYTES // 2**20} MiB",
        evidence=(evidence,),
        next_step="take a part of it: a few hundred prompts settle a measurement, for example head -n 500",
    )


def _entries(path: Path, text: str) -> Iterator[_Entry]:
    if text.lstrip().startswith("["):
        yield from _list_entries(path, text)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _bad_line(path, number, _why(error), line) from None
        yield _Entry(number, number, value, line)


def _list_entries(path: Path, text: str) -> Iterator[_Entry]:
    """Entries of a JSON list, with the line each begins on."""
    decoder = json.JSONDecoder()
    at, number = text.index("[") + 1, 0
    line, seen = 1, 0  # the line of `seen`: counted on from entry to entry
    try:
        while True:
            at = _skip_space(text, at)
            if text[at : at + 1] == "]":
                rest = _skip_space(text, at + 1)
                if rest < len(text):
                    raise json.JSONDecodeError("text after the end of the list", text, rest)
                return
            if number:
                if text[at : at + 1] != ",":
                    raise json.JSONDecodeError("',' or ']' expected", text, at)
                at = _skip_space(text, at + 1)
            begin = at
            line, seen = line + text.count("\n", seen, begin), begin
            value, at = decoder.raw_decode(text, begin)
            if at - begin > MAX_LINE_BYTES:
                raise _bad_line(path, line, "an entry over the limit of 8 MiB", "")
            number += 1
            yield _Entry(line, number, value, text[begin:at])
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else line
        raise _bad_line(path, line, _why(error), text.split("\n")[line - 1]) from None


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "not JSON: nested too deeply"
    return f"a number of more than {sys.get_int_max_str_digits()} digits"


def _bad_line(path: Path, line: int, why: str, raw: str) -> BadInputError:
    shown = " ".join(raw[:400].split())
    return BadInputError(
        f"{path}, line {line}: {why}",
        evidence=(shown if len(shown) <= 120 else shown[:117] + "…",) if shown else (),
        next_step=f"each entry should be {_FORMS}",
    )


def _prompt(entry: _Entry, max_tokens: int) -> Prompt:
    value = entry.value
    if not isinstance(value, dict):
        raise _UnusableError(f"an object was expected, not {_kind(value)}")
    forms: dict[str, Callable[[object], tuple[Message, ...]]] = {
        "messages": _openai_messages,
        "conversations": _sharegpt_messages,
        "prompt": _plain_prompt,
    }
    form = next((key for key in forms if key in value), None)
    if form is None:
        raise _UnusableError("neither messages, conversations nor prompt")
    limit = value.get("max_tokens", value.get("max_completion_tokens"))
    temperature, seed = value.get("temperature"), value.get("seed")
    if limit is not None and (not _whole(limit) or not 1 <= limit <= MAX_TOKENS):
        raise _UnusableError(f"max_tokens must be a whole number from 1 to {MAX_TOKENS}")
    if temperature is not None and (not _number(temperature) or not 0 <= temperature <= 100):
        raise _UnusableError("temperature must be a number from 0 to 100")
    if seed is not None and (not _whole(seed) or seed not in _SEEDS):
        raise _UnusableError("seed must be a whole number that fits 64 bits")
    name = value.get("id", value.get("question_id"))
    if isinstance(name, str):
        _sendable(name, "the id")
    messages = forms[form](value[form])
    for message in messages:
        _sendable(message.role, "a role")
        _sendable(message.content, "the text")
    return Prompt(
        id=str(name) if isinstance(name, str | int) and str(name) else f"p{entry.number}",
        messages=messages,
        max_tokens=limit or max_tokens,
        temperature=float(temperature or 0.0),
        seed=seed,
    )


def _sendable(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _UnusableError(
            f"{what} has half a character, the lone surrogate \\u{ord(text[error.start]):04x}, which is not UTF-8"
        ) from None


def _openai_messages(value: object) -> tuple[Message, ...]:
    turns = [_turn(turn, "role", "content") for turn in _list(value, "messages")]
    return _until_last_user([Message(role, _text(content)) for role, content in turns])


def _sharegpt_messages(value: object) -> tuple[Message, ...]:
    messages = []
    for speaker, content in (_turn(turn, "from", "value") for turn in _list(value, "conversations")):
        if speaker not in _SHAREGPT_ROLES:
            raise _UnusableError(f"unknown speaker {speaker!r} in conversations")
        messages.append(Message(_SHAREGPT_ROLES[speaker], _text(content)))
    return _until_last_user(messages)


def _plain_prompt(value: object) -> tuple[Message, ...]:
    if not isinstance(value, str) or not value.strip():
        raise _UnusableError("prompt must be a text with something in it")
    return (Message("user", value),)


def _until_last_user(messages: list[Message]) -> tuple[Message, ...]:
    last = max((i for i, m in enumerate(messages) if m.role == "user"), default=None)
    if last is None:
        raise _UnusableError("no human turn, so nothing is asked")
    if not messages[last].content.strip():
        raise _UnusableError("the last human turn is empty")
    return tuple(messages[: last + 1])


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise _UnusableError(f"{what} must be a list, not {_kind(value)}")
    return value


def _turn(turn: object, who: str, what: str) -> tuple[str, object]:
    if not isinstance(turn, dict) or not isinstance(turn.get(who), str) or what not in turn:
        raise _UnusableError(f'each turn needs "{who}" and "{what}"')
    return turn[who], turn[what]


def _text(content: object) -> str:
    """Plain text, or OpenAI's list of parts when all of them are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(parts) == len(content) and all(isinstance(part, str) for part in parts):
            return "".join(str(part) for part in parts)
    raise _UnusableError("a turn's content must be text")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
