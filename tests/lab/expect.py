"""What is wrong with a played death: with the evidence it left, and with what `draftmark why` said about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from .play import Played

SETTLED, UNSETTLED, USAGE = 0, 40, 2


def wrong_evidence(played: Played) -> list[str]:
    """What the death should have left and did not."""
    death = played.death
    faults = [
        f"{key}={played.properties.get(key)}, not {value}"
        for key, value in death.properties.get(played.cgroups, {}).items()
        if not re.fullmatch(value, played.properties.get(key, ""))
    ]
    faults += [f"not in the journal: {pattern}" for pattern in _missing(death.journal, played.journal)]
    return faults + [f"not in the kernel log: {pattern}" for pattern in _missing(death.kernel, played.kernel)]


def _missing(patterns: Iterable[str], lines: Iterable[str]) -> list[str]:
    """Those that no line matches after the line of the one before."""
    left = list(patterns)
    for line in lines:
        if left and re.search(left[0], line):
            left.pop(0)
    return left


def wrong_answers(played: Played, user: str) -> list[str]:
    """What is wrong with the answer to that user."""
    answer, document = played.answers[user], played.answers[user].document
    if not played.death.cause:
        return _wrong_refusal(played, user)
    if document is None:
        return [f"no JSON document: exit status {answer.status}, {answer.errors.strip()[-300:]}"]
    faults = []
    if answer.status != (UNSETTLED if document["confidence"] == "unsettled" else SETTLED):
        faults.append(f"exit status {answer.status} for {document['confidence']}")
    settled = document["cause"] == played.death.cause and document["confidence"] != "unsettled"
    if settled:
        faults += _wrong_proof(played, document, user)
    elif user == "root":
        faults.append(f"cause {document['cause']}, not {played.death.cause}: {document['summary']}")
    if user == "root":
        if played.death.certain and settled and document["confidence"] != "certain":
            faults.append(f"root's answer is only {document['confidence']}")
    elif not (settled and document["confidence"] == "certain"):
        faults += _wrong_doubt(played, document)
    return faults


def _wrong_refusal(played: Played, user: str) -> list[str]:
    answer = played.answers[user]
    faults = []
    if answer.status != USAGE:
        faults.append(f"exit status {answer.status}, not {USAGE}")
    if played.unit not in answer.errors + str(answer.document):
        faults.append("the unit is not named")
    if "Traceback" in answer.errors:
        faults.append("a traceback")
    return faults


def _wrong_proof(played: Played, document: dict[str, Any], user: str) -> list[str]:
    """Cited lines must really be there, and must be the telling ones."""
    death, faults = played.death, []
    cited = [entry["text"] for entry in document["evidence"]]
    logged = [entry["text"] for entry in document["evidence"] if entry["file"].startswith(("journal", "kernel"))]
    there = [message for message in played.everything if message.strip()]
    foreign = [text for text in logged if not any(_quotes(text, message) for message in there)]
    faults += [f"cited, but not of this death: {_plain(text)}" for text in foreign]
    if user == "root" and death.cited and not any(re.search(death.cited, text) for text in cited):
        faults.append(f"no cited line matches {death.cited}: {list(map(_plain, cited))}")
    if (
        user == "root"
        and death.consequence
        and not any(re.search(death.consequence, str(c)) for c in document["consequences"])
    ):
        faults.append(f"no consequence matches {death.consequence}")
    if death.died is not None and document["died"] is not death.died:
        faults.append(f"died is {document['died']}, not {death.died}")
    return faults


def _quotes(text: str, message: str) -> bool:
    """A cited line is as its carrier wrote it: plain, or within JSON."""
    return (
        message in text
        or json.dumps(message)[1:-1] in text
        or json.dumps(message, ensure_ascii=False)[1:-1] in text
    )


def _plain(text: str) -> str:
    """Of an entry in JSON the message alone: what a person who reads the failure needs."""
    try:
        return str(json.loads(text)["MESSAGE"])
    except (ValueError, TypeError, KeyError):
        return text


def _wrong_doubt(played: Played, document: dict[str, Any]) -> list[str]:
    """Who sees less may be less sure, never wrong, and is told what was not seen and how to see it."""
    faults = []
    if document["cause"] not in (played.death.cause, "unsettled", played.death.seems):
        faults.append(f"cause {document['cause']}, not {played.death.cause}: {document['summary']}")
    if document["confidence"] == "certain":
        faults.append(f"certain of {document['cause']}")
    unseen = document["not_examined"]
    if not unseen or not all(entry["command"] for entry in unseen):
        faults.append(f"what was not seen is not told with a command: {unseen}")
    return faults
