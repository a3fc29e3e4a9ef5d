"""`draftmark report RUN --adaptive FILE`: what a run measured, as a configuration of --speculative-adaptive."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftmark.engines.sglang import adaptive, arms
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.flags import parse
from draftmark.engines.sglang.versions import Rules
from draftmark.errors import InconclusiveError, StorageError, UsageError
from draftmark.model import Arm
from draftmark.run.records import RunInfo
from draftmark.sim.engine import SimulatedSGLang


def write_adaptive(path: Path, info: RunInfo, result: Mapping[str, Any]) -> str:
    """Write the file; how to start the server with it.

    Args:
        path: A file that is not there yet.
        info: The run.
        result: What it says.

    Raises:
        UsageError: The run's engine has no adaptive speculation, or the service cannot use it; the file exists.
        InconclusiveError: The run does not tell a best depth at each concurrency, or it is the same at all.
        StorageError: The file cannot be written.
    """
    found = adaptive.configuration(best_depths(info, result), _rules(info))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(found.json())
    except FileExistsError:
        raise UsageError(f"{path} exists", next_step="name a file that is not there yet") from None
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written", evidence=(error.strerror or str(error),), next_step="name another place"
        ) from None
    return f"{path}: for SGLang, in the place of its speculative steps\n  {shlex.join(found.flags(str(path)))}"


def _rules(info: RunInfo) -> Rules:
    """Of the run's version, if the service could be started with adaptive speculation."""
    if info.engine != SGLang.name:
        raise UsageError(
            f"{info.engine} does not adapt its depth while it serves",
            evidence=(f"the run is of {info.service}",),
            next_step="--adaptive is for runs of SGLang, 0.5.12 and later",
        )
    method, command = info.settings.get("method"), info.command
    engine = SGLang(method=method, version=info.engine_version)
    simulated = SimulatedSGLang(method=method)
    if simulated.recognises(command):
        engine, command = simulated.stands_for(command)
    refusal = engine.refuse(command, engine.adaptive(command))
    if refusal is not None:
        raise UsageError(
            "this service cannot use adaptive speculation",
            evidence=(refusal.because,),
            next_step="keep the depth that is best for you",
        )
    rules = engine.rules(command)
    parsed = parse(command, rules)
    if arms.method_of(parsed) is not None and (branches := arms.shape_of(parsed, rules).topk) > 1:
        raise UsageError(
            "the depths were measured with a tree of drafts, and adaptive speculation drafts chains",
            evidence=(f"{arms.TOPK} {branches}",),
            next_step=f"tune with {arms.TOPK} 1 in the command line",
        )
    return rules


def best_depths(info: RunInfo, result: Mapping[str, Any]) -> dict[int, int]:
    """Concurrency to the depth that the run chose there, over all workloads.

    Raises:
        InconclusiveError: It is not finished, chose none at a concurrency, or one that is adaptive already.
    """
    if not result["complete"]:
        raise InconclusiveError(
            "the run is not finished", next_step="go on with it first: draftmark tune --resume RUN"
        )
    named = {arm.name: arm for arm in info.arms}
    return {level: _chosen(named, _axis(result, level, info)).depth for level in info.concurrency}


def _axis(result: Mapping[str, Any], level: int, info: RunInfo) -> Mapping[str, Any]:
    """The decision of all workloads together, or of the only one."""
    wanted = "all" if len(info.workloads) > 1 else info.workloads[0].name
    for axis in result["axes"]:
        if (axis["workload"], axis["concurrency"]) == (wanted, level):
            found: Mapping[str, Any] = axis
            return found
    raise InconclusiveError(f"nothing was measured with {level} requests at once", next_step="begin a new run")


def _chosen(named: Mapping[str, Arm], axis: Mapping[str, Any]) -> Arm:
    arm = named.get(axis["choice"] or "")
    if arm is None:
        raise InconclusiveError(
            f"no depth was settled with {axis['concurrency']} requests at once",
            evidence=(axis["because"],),
            next_step="a quieter host, more rounds (--rounds), or more and longer answers (--requests)",
        )
    if arm.knobs:
        raise InconclusiveError(
            f"with {axis['concurrency']} requests at once {arm.label} is chosen, which is no single depth",
            evidence=(axis["because"],),
            next_step="keep it, or tune fixed depths: --depth 0..8",
        )
    return arm
