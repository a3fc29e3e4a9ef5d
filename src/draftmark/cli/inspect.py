"""`draftmark inspect`: what is there, and what would make tuning unsafe. Touches nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from draftmark.cli import compose, options, roofline, services
from draftmark.cli.output import print_json, result_console
from draftmark.engines.detect import detect
from draftmark.model import Health, ServiceKind
from draftmark.service.host import listener_at, local_facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.service(parser)
    options.header(parser)
    roofline.add_argument(parser)
    parser.set_defaults(load_from="auto")  # says where `tune` would send them from


def run(args: argparse.Namespace) -> int:
    """Look, and say."""
    reference = services.reference(args)
    if reference is not None and reference.kind is ServiceKind.URL:
        document = _running(reference.target, options.headers(args))
    else:
        document = _startable(args)
    if args.json:
        print_json(document)
    else:
        from draftmark.report.terminal import print_inspect

        print_inspect(document, result_console())
    return 0


def _startable(args: argparse.Namespace) -> dict[str, Any]:
    target = compose.target(args)
    if target.may_run:
        from draftmark.cli.unit_inspect import inspect_unit
        from draftmark.cli.unit_target import UnitTarget

        assert isinstance(target, UnitTarget)  # noqa: S101 - the only live kind
        return {**inspect_unit(target), "roofline": roofline.described(target, args.measured)}
    base_url = target.engine.base_url(target.command)
    facts = target.engine.summary(target.command)
    hazards = target.engine.hazards(target.command)
    holder = listener_at(base_url)
    if holder is not None:
        hazards.append(
            {
                "what": "the port is taken: a start would fail",
                "evidence": holder,
                "next_step": "stop what listens there, or give the server another port",
            }
        )
    hazards.extend(_memory(facts.get("model")))
    return {
        "schema": "draftmark.inspect/1",
        "service": target.shown,
        "engine": {"name": target.engine.name, "version": target.version},
        "command": {
            "line": target.shown_line(target.command),
            "listens": base_url,
        },
        "speculation": {"depth": target.engine.depth(target.command), "method": facts.pop("method", None)},
        "flags": facts,
        "host": local_facts(),
        "roofline": roofline.described(target, args.measured),
        "hazards": hazards,
    }


def _memory(model: str | None) -> list[dict[str, str]]:
    """A model larger than the memory left is read from disk over and over, or killed."""
    try:
        size = Path(model).expanduser().stat().st_size if model else 0
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return []
    if size < available:
        return []
    return [
        {
            "what": "the model is larger than the memory that is free",
            "evidence": f"{size / 2**30:.1f} GiB against {available / 2**30:.1f} GiB available",
            "next_step": "free memory first: the kernel may kill the server",
        }
    ]


def _running(url: str, headers: dict[str, str]) -> dict[str, Any]:
    found = detect(url, headers)
    client = found.client
    health = client.health() if client else None
    state = client.speculation() if client else None
    counters = client.counters() if client else None
    activity = client.activity() if client else None
    hazards = []
    if health is not None and health is not Health.READY:
        hazards.append(
            {"what": "the server is not ready", "evidence": f"GET /health: {health.value}", "next_step": "wait"}
        )
    if activity and activity.running:
        hazards.append(
            {
                "what": "requests are in flight: others use this server",
                "evidence": f"{activity.running} running, {activity.queued or 0} queued",
                "next_step": "measure when it is idle, or the figures are theirs too",
            }
        )
    return {
        "schema": "draftmark.inspect/1",
        "service": f"url:{url}",
        "engine": {"name": found.engine, "version": found.version, "recognised_by": found.evidence},
        "health": health.value if health else None,
        "speculation": {"on": state.on, "depth": state.depth, "source": state.source} if state else None,
        "counters": {
            "drafts": counters.drafts,
            "drafted_tokens": counters.drafted_tokens,
            "accepted_tokens": counters.accepted_tokens,
            "output_tokens": counters.output_tokens,
        }
        if counters
        else None,
        "activity": {"running": activity.running, "queued": activity.queued} if activity else None,
        "hazards": hazards,
    }
