"""llama-server's command line: what an arm means in it. Pure; the facts are in facts.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from draftmark.engines.flags import Flag, FlagGroup, render, value_of
from draftmark.engines.llamacpp.knobs import with_knobs
from draftmark.errors import UsageError
from draftmark.model import Arm, Refusal


@cache
def facts() -> dict[str, Any]:
    """facts.toml, read once."""
    return tomllib.loads(files(__package__).joinpath("facts.toml").read_text(encoding="utf-8"))


@cache
def _speculation() -> FlagGroup:
    return FlagGroup(Flag(tuple(f["names"]), f.get("arity", 1)) for f in facts()["speculation"])


def program_index(command: Sequence[str]) -> int | None:
    """Where llama-server stands in a command line, wrappers such as `numactl -N0` before it; None if nowhere.

    The embedded launcher is called by path and speaks the same flags.
    """
    for index, word in enumerate(command):
        name = PurePath(word).name
        if name in facts()["programs"] or PurePath(word).parts[-2:] == ("embedded", "launcher.py"):
            return index
    return None


def method_of(command: Sequence[str]) -> str | None:
    """The drafting method that the command line asks for; None when speculation is off.

    Raises:
        UsageError: Several methods at once, or one without a depth of its own: a depth would not be one number.
    """
    _, spec = _speculation().split(command)
    if "--spec-default" in spec:
        return "ngram-mod"
    named = [t for t in (spec.get("--spec-type") or "").split(",") if t and t != "none"]
    if len(named) > 1:
        raise UsageError(
            f"the command line combines several drafting methods ({', '.join(named)})",
            evidence=(f"--spec-type {spec['--spec-type']}",),
            next_step="leave one of them in --spec-type, so that a depth is one number",
        )
    if named:
        if named[0] not in facts()["methods"]:
            raise UsageError(
                f'the drafting method "{named[0]}" has no depth that a flag sets',
                evidence=(f"--spec-type {named[0]}",),
                next_step=f"use one of: {', '.join(sorted(facts()['methods']))}",
            )
        return named[0]
    if "--spec-type" not in spec and ("--spec-draft-model" in spec or "--spec-draft-hf" in spec):
        return "draft-simple"
    return None


def depth_of(command: Sequence[str]) -> int:
    """Depth in force; 0 when speculation is off."""
    method = method_of(command)
    if method is None:
        return 0
    _, spec = _speculation().split(command)
    if "--spec-default" in spec:
        return int(facts()["defaults"]["--spec-ngram-mod-n-max"])
    return _number(spec, facts()["methods"][method]["depth"])


def with_arm(command: Sequence[str], arm: Arm, *, bring: str | None = None) -> tuple[str, ...]:
    """The command line with the arm's flags, and every other word as it was.

    What asks for the arm already is left as it is. `bring` is the method to use when the command line names none.

    Depth 0 takes every flag of speculation out and says `--spec-type none`, so that a LLAMA_ARG_SPEC_TYPE in the
    environment does not switch it on again.
    """
    if arm.depth == depth_of(command):
        return with_knobs(command, arm) if arm.knobs else tuple(command)
    rest, spec = _speculation().split(command)
    method = method_of(command)
    if arm.depth == 0:
        spec = {"--spec-type": "none"}
    else:
        if method is None:
            method = _brought(spec, bring)
            # Only what was missing is added: a size the user chose for this method stays.
            added = facts()["bring"]["flags"] if method == facts()["bring"]["method"] else {}
            spec = {"--spec-type": method, **added, **_without_type(spec)}
        else:
            spec = {"--spec-type": method, **_without_type(spec)}
        spec[facts()["methods"][method]["depth"]] = str(arm.depth)
    return with_knobs((*rest, *render(spec)), arm)


def refusal(command: Sequence[str], arm: Arm, *, bring: str | None = None) -> Refusal | None:
    """Why an arm need not be started: it would draft nothing, so its figure would be the baseline's."""
    if arm.depth == 0:
        return None
    rewritten = with_arm(command, arm, bring=bring)
    method = method_of(rewritten)
    limit = facts()["methods"][method]["min_from"] if method and "min_from" in facts()["methods"][method] else None
    if limit is None:
        return None
    _, spec = _speculation().split(rewritten)
    least = _number(spec, limit)
    if arm.depth >= least:
        return None
    return Refusal("dead-depth", f"depth {arm.depth} drafts nothing: {method} needs at least {limit} ({least})")


def removed_flags(command: Sequence[str]) -> dict[str, str]:
    """Flags on the command line that this engine refuses at parse time, with what replaced them."""
    return {word: facts()["removed"][word] for word in command if word in facts()["removed"]}


def summary(command: Sequence[str]) -> dict[str, str]:
    """Facts of the command line for `inspect`, those that are given."""
    found = {key: value_of(command, names) for key, names in facts()["facts"].items() if key != "api_key"}
    shown = {key: value for key, value in found.items() if value is not None}
    shown["method"] = method_of(command) or "none"
    return shown


def _brought(spec: dict[str, str | None], bring: str | None) -> str:
    if bring is not None:
        if bring not in facts()["methods"]:
            raise UsageError(
                f'llama-server has no drafting method "{bring}" with a depth',
                next_step=f"use one of: {', '.join(sorted(facts()['methods']))}",
            )
        return bring
    if "--spec-draft-model" in spec or "--spec-draft-hf" in spec:
        return "draft-simple"
    return str(facts()["bring"]["method"])


def _without_type(spec: dict[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in spec.items() if name not in ("--spec-type", "--spec-default")}


def _number(spec: dict[str, str | None], flag: str) -> int:
    text = spec.get(flag)
    if text is None:
        return int(facts()["defaults"][flag])
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag} takes a whole number", evidence=(f"{flag} {text}",)) from None
