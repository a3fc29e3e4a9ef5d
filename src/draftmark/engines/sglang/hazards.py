"""What in a SGLang command line would spoil a tuning, or comes as a surprise after it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftmark.engines.sglang import arms, refusals
from draftmark.engines.sglang.flags import Parsed, parse
from draftmark.engines.sglang.versions import Rules, facts
from draftmark.errors import UsageError

Hazard = dict[str, str]


def hazards_of(command: Sequence[str], rules: Rules) -> list[Hazard]:
    """`what`, `evidence` and `next_step` of each, the weightiest first."""
    parsed = parse(command, rules)
    return [
        *_running_limit(parsed),
        *_shape(parsed),
        *_forced(command),
        *_unseen(parsed),
        *_flags(command, rules),
        *_version(rules),
    ]


def _running_limit(parsed: Parsed) -> Iterator[Hazard]:
    """The largest surprise of all: what speculation costs in concurrency, whatever the depth."""
    if parsed.value("--max-running-requests") is None:
        yield {
            "what": "with speculation on, SGLang runs at most 48 requests at once, whatever the depth",
            "evidence": "no --max-running-requests on the command line; speculation resets it to 48",
            "next_step": "set --max-running-requests to what you serve, so that off and on are held to the same",
        }


def _shape(parsed: Parsed) -> Iterator[Hazard]:
    method = arms.method_of(parsed)
    family = facts()["methods"].get(method or "", {}).get("family")
    try:
        left = family == "chain" and arms.chosen_by_server(parsed)
        if left and arms.architecture(parsed) is None and method != "STANDALONE":
            yield {
                "what": "the depth in force is SGLang's own choice by the architecture, which cannot be seen here",
                "evidence": f"{arms.ALGORITHM} {method} without {arms.STEPS}; 3 is assumed, some models get 5",
                "next_step": f"write {arms.STEPS}, {arms.TOPK} and {arms.TOKENS} on the command line",
            }
    except UsageError:
        return
    if arms.adaptive(parsed):
        yield {
            "what": "the server adapts its depth while it runs; an arm of one depth takes that out",
            "evidence": arms.ADAPTIVE,
            "next_step": "read the baseline as adaptive speculation, and a depth as one that stays",
        }


def _forced(command: Sequence[str]) -> Iterator[Hazard]:
    for word in command:
        name, _, value = word.partition("=")
        if name == "SGL_FORCE_SHUTDOWN" and value.lower() in ("1", "true", "yes", "y"):
            yield {
                "what": "a stop cuts requests instead of waiting for them",
                "evidence": word,
                "next_step": "take it out if others use the service",
            }


def _unseen(parsed: Parsed) -> Iterator[Hazard]:
    if not parsed.has("--enable-metrics"):
        yield {
            "what": "/metrics is off: rounds and acceptance are known only from native answers (--api sglang)",
            "evidence": "no --enable-metrics on the command line",
            "next_step": "add --enable-metrics",
        }
    if parsed.value("--api-key") and parsed.value("--admin-api-key"):
        yield {
            "what": "prompts cached for one measurement cannot be flushed before the next",
            "evidence": "/flush_cache wants the --admin-api-key, and requests the --api-key",
            "next_step": "nothing: each request is kept apart in the prompt cache by its own name",
        }
    path = parsed.value("--config")
    if path is not None:
        yield {
            "what": "flags in a file are not seen here, and what it says of speculation an arm cannot change",
            "evidence": f"--config {path}",
            "next_step": "write what it says of speculation, host, port and keys on the command line",
        }


def _flags(command: Sequence[str], rules: Rules) -> Iterator[Hazard]:
    for each in refusals.deprecated(command, rules):
        instead = each.option.instead if each.option else ""
        until = each.option.until if each.option else 0
        gone = f", and gone after 0.5.{until}" if until < max(facts()["read"]) else ""
        yield {
            "what": f"{each.spelled} is deprecated{gone}",
            "evidence": " ".join((each.spelled, *each.values)),
            "next_step": f"write {instead} in its place" if instead else "take it out before an upgrade",
        }


def _version(rules: Rules) -> Iterator[Hazard]:
    if rules.assumption is not None:
        yield {
            "what": "flags and shutdown are judged by the rules of another version than this may be",
            "evidence": rules.assumption,
            "next_step": "name the interpreter of SGLang's own environment in the command line",
        }
