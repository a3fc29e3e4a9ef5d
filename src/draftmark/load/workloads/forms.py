"""From one entry of a file to a prompt, in each of the forms that data sets come in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from draftmark.load.workloads.entries import Entry
from draftmark.load.workloads.prose import estimated_tokens
from draftmark.model import Message, Prompt

MAX_TOKENS = 9_999_999  # longer than any context
FORMS = '{"messages": [...]}, {"conversations": [...]}, {"turns": [...]} or {"prompt": "..."}'

_SEEDS = range(-(2**63), 2**64)  # what servers read into 64 bits, and JSON writers write
_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
_LONGEST_CATEGORY = 80


class UnusableError(Exception):
    """Why one entry is no prompt, in words."""

    def __init__(self, why: str, next_step: str = f"each entry should be {FORMS}") -> None:
        super().__init__(why)
        self.next_step = next_step


class NothingAskedError(UnusableError):
    """A recorded conversation in which nothing is asked: data sets have such, and they are left out, and told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How entries become prompts.

    Attributes:
        max_tokens: Longest answer, for entries that do not say it.
        multi_turn: Later turns of the user become follow-ups, each asked once the answer before it is there. Else
            one request is made of an entry: a recorded conversation up to its last question, answers included, or
            the first of several `turns`, whose answers nobody knows yet.
        lengths_from_data: Answers are forced to the length of the answer in the data: to its number of tokens where
            that stands there, else to an estimate from its text.
    """

    max_tokens: int
    multi_turn: bool = False
    lengths_from_data: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """What one entry says.

    Attributes:
        messages: To send.
        follow_ups: What the user says later.
        answer: The text that was answered to `messages`, where it was recorded.
    """

    messages: tuple[Message, ...]
    follow_ups: tuple[str, ...] = ()
    answer: str | None = None


def prompt_of(entry: Entry, reading: Reading) -> Prompt:
    """The prompt that an entry is.

    Raises:
        UnusableError: It is none; says why.
    """
    value = entry.value
    if not isinstance(value, dict):
        raise UnusableError(f"an object was expected, not {_kind(value)}")
    limit, temperature, seed = _options(value)
    found = _found(value, reading)
    for message in found.messages:
        _sendable(message.role, "a role")
        _sendable(message.content, "the text")
    for text in found.follow_ups:
        _sendable(text, "the text")
    length = _length(value, found.answer, "conversations" in value) if reading.lengths_from_data else None
    return Prompt(
        id=_id(entry, value),
        messages=found.messages,
        max_tokens=length or limit or reading.max_tokens,
        temperature=float(temperature or 0.0),
        seed=seed,
        category=_category(value),
        follow_ups=found.follow_ups if reading.multi_turn else (),
        forced=length is not None,
    )


def _found(value: dict[str, object], reading: Reading) -> _Found:
    readers: dict[str, Callable[[object], _Found]] = {
        # SPEED-Bench as NeMo-Skills prepares it: one message a turn, and a member that says how to read them
        "messages": _turns_of_messages if isinstance(value.get("multiturn"), bool) else _openai(reading.multi_turn),
        "conversations": _sharegpt(reading.multi_turn),
        "turns": _turns,
        "prompt": _plain,
    }
    form = next((key for key in readers if key in value), None)
    if form is None:
        raise UnusableError("neither messages, conversations, turns nor prompt")
    return readers[form](value[form])


def _options(value: dict[str, object]) -> tuple[int | None, float | None, int | None]:
    limit = value.get("max_tokens", value.get("max_completion_tokens"))
    temperature, seed = value.get("temperature"), value.get("seed")
    if limit is not None and not _is_length(limit):
        raise UnusableError(f"max_tokens must be a whole number from 1 to {MAX_TOKENS}")
    if temperature is not None and not (_number(temperature) and 0 <= temperature <= 100):
        raise UnusableError("temperature must be a number from 0 to 100")
    if seed is not None and not (_whole(seed) and seed in _SEEDS):
        raise UnusableError("seed must be a whole number that fits 64 bits")
    return limit, temperature, seed


def _id(entry: Entry, value: dict[str, object]) -> str:
    name = value.get("id", value.get("question_id"))
    if isinstance(name, str):
        _sendable(name, "the id")
    return str(name) if isinstance(name, str | int) and str(name) else f"p{entry.number}"


def _category(value: dict[str, object]) -> str | None:
    name = value.get("category")
    if not isinstance(name, str) or not name.strip():
        return None
    _sendable(name, "the category")
    return name.strip()[:_LONGEST_CATEGORY]


def _length(value: dict[str, object], answer: str | None, recorded: bool) -> int:
    """Tokens of the answer in the data."""
    told = value.get("output_tokens")
    if told is not None:
        if not _is_length(told):
            raise UnusableError(f"output_tokens must be a whole number from 1 to {MAX_TOKENS}")
        return told
    if answer is None or not answer.strip():
        why = "no answer whose length could be taken"
        raise NothingAskedError(why) if recorded else UnusableError(why, "give a length: --output-tokens N")
    return min(MAX_TOKENS, estimated_tokens(answer))


# --- the forms ----------------------------------------------------------------------------------------------


def _openai(multi_turn: bool) -> Callable[[object], _Found]:
    def read(value: object) -> _Found:
        turns = [_turn(turn, "role", "content") for turn in _list(value, "messages")]
        return _conversation([Message(role, _text(content)) for role, content in turns], multi_turn)

    return read


def _sharegpt(multi_turn: bool) -> Callable[[object], _Found]:
    def read(value: object) -> _Found:
        messages = []
        for speaker, content in (_turn(turn, "from", "value") for turn in _list(value, "conversations")):
            if speaker not in _SHAREGPT_ROLES:
                raise NothingAskedError(f"unknown speaker {speaker[:40]!r} in conversations")
            messages.append(Message(_SHAREGPT_ROLES[speaker], _text(content)))
        try:
            return _conversation(messages, multi_turn)
        except UnusableError as error:
            raise NothingAskedError(str(error)) from None

    return read


def _conversation(messages: list[Message], multi_turn: bool) -> _Found:
    asked = [i for i, message in enumerate(messages) if message.role == "user"]
    if not asked:
        raise UnusableError("no human turn, so nothing is asked")
    at = asked[0] if multi_turn else asked[-1]
    if not messages[at].content.strip():
        raise UnusableError(f"the {'first' if multi_turn else 'last'} human turn is empty")
    after = messages[at + 1 : at + 2]
    return _Found(
        tuple(messages[: at + 1]),
        tuple(messages[i].content for i in asked if i > at and messages[i].content.strip()),
        after[0].content if after and after[0].role == "assistant" else None,
    )


def _turns_of_messages(value: object) -> _Found:
    turns = [_turn(turn, "role", "content") for turn in _list(value, "messages")]
    if any(role != "user" for role, _ in turns):
        return _conversation([Message(role, _text(content)) for role, content in turns], multi_turn=False)
    return _turns([_text(content) for _, content in turns])


def _turns(value: object) -> _Found:
    """MT-Bench, Spec-Bench and SPEED-Bench: what the user says, turn by turn."""
    turns = _list(value, "turns")
    if not turns:
        raise UnusableError("turns is empty, so nothing is asked")
    said = []
    for turn in turns:
        if not isinstance(turn, str) or not turn.strip():
            raise UnusableError("turns must be texts with something in them")
        if turn.startswith(_PLACEHOLDER):
            raise UnusableError(
                "a placeholder of SPEED-Bench, not the prompt, whose text has to be fetched from its own source",
                "prepare the data first, as SPEED-Bench says (specdec_bench's prepare_data.py, or NeMo-Skills' "
                "speed-bench/prepare.py), and give the file that this writes, as JSON Lines",
            )
        said.append(turn)
    return _Found((Message("user", said[0]),), tuple(said[1:]))


def _plain(value: object) -> _Found:
    if not isinstance(value, str) or not value.strip():
        raise UnusableError("prompt must be a text with something in it")
    return _Found((Message("user", value),))


def _sendable(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnusableError(
            f"{what} has half a character, the lone surrogate \\u{ord(text[error.start]):04x}, which is not UTF-8"
        ) from None


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise UnusableError(f"{what} must be a list, not {_kind(value)}")
    return value


def _turn(turn: object, who: str, what: str) -> tuple[str, object]:
    if not isinstance(turn, dict) or not isinstance(turn.get(who), str) or what not in turn:
        raise UnusableError(f'each turn needs "{who}" and "{what}"')
    return turn[who], turn[what]


def _text(content: object) -> str:
    """Plain text, or OpenAI's list of parts when all of them are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(parts) == len(content) and all(isinstance(part, str) for part in parts):
            return "".join(str(part) for part in parts)
    raise UnusableError("a turn's content must be text")


def _is_length(value: object) -> TypeGuard[int]:
    return _whole(value) and 1 <= value <= MAX_TOKENS


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
