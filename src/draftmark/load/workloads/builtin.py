"""The sets of prompts that come with Draftmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources

from draftmark.errors import UsageError
from draftmark.load.workloads.prose import chapters
from draftmark.model import Message, Prompt, Workload

_ABOUT = {
    "copy": "answers that repeat the prompt with a change: code edits, lists rewritten as JSON",
    "chat": "answers in new words: open questions, short stories, retellings",
    "code": "programs, tests and queries written from a description, in several languages",
    "math": "problems solved step by step",
    "extraction": "facts taken out of a text: JSON, tables, lists",
    "translation": "short texts from and into English",
    "long": "a question on a text of about 2300 tokens",
}
DEFAULT = ("copy", "chat")
"""What is asked where nothing is named: answers that a drafter can copy, and answers that it cannot."""

_LONG_TOKENS = 256
_QUESTIONS = (
    "Which person in these pages counts something, what does each of them count, and why?",
    "Tell the story of the clock in Marn in five sentences, and say what the cause of its fault was.",
    "Which measurements are made by hand in these pages, and which of them turned out to be wrong?",
    "List the dates, years and times of day that are mentioned, each with what happened then.",
    "Compare how the baker and the man on the night train know that something is sound.",
    "What did the people of Orsa do with their books, and by which rule did they keep them in order?",
    "Which of these texts speak of winter or cold, and what does the cold do in each?",
    "Summarise every chapter in one sentence, in the order in which they stand here.",
)


def load_workloads(names: Sequence[str] | None = None) -> tuple[Workload, ...]:
    """Built-in workloads in the order named; without names copy and chat.

    Raises:
        UsageError: There is none of that name.
    """
    unknown = [name for name in names or () if name not in _ABOUT]
    if unknown:
        raise UsageError(
            f"there is no built-in workload {unknown[0]!r}",
            next_step=f"use {', '.join(list(_ABOUT)[:-1])} or {list(_ABOUT)[-1]}, "
            "or --prompts FILE for prompts of your own",
        )
    return tuple(_built_in(name) for name in dict.fromkeys(names or DEFAULT))


def _built_in(name: str) -> Workload:
    prompts = _long() if name == "long" else _from_file(name)
    return Workload(name=name, prompts=prompts, about=_ABOUT[name])


def _from_file(name: str) -> tuple[Prompt, ...]:
    text = resources.files("draftmark.load").joinpath("builtin", f"{name}.jsonl").read_text(encoding="utf-8")
    category = None if name in DEFAULT else name
    return tuple(
        Prompt(
            id=entry["id"],
            messages=tuple(Message(m["role"], m["content"]) for m in entry["messages"]),
            max_tokens=entry["max_tokens"],
            temperature=entry["temperature"],
            seed=entry.get("seed"),
            category=category,
        )
        for entry in map(json.loads, text.splitlines())
    )


def _long() -> tuple[Prompt, ...]:
    """Each begins with another chapter, so that no two share a beginning that a server could keep."""
    pages = chapters()
    return tuple(
        Prompt(
            id=f"long-{i + 1}",
            messages=(Message("user", "\n\n".join((*pages[i:], *pages[:i], question))),),
            max_tokens=_LONG_TOKENS,
            category="long",
        )
        for i, question in enumerate(_QUESTIONS)
    )
