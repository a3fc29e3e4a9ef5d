"""`draftmark restore`: put a unit back, from its own host's backup alone."""

from __future__ import annotations

import argparse
import dataclasses

from draftmark.cli import hosts
from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.errors import BadInputError, RefusedError, UsageError
from draftmark.model import ServiceKind
from draftmark.ports import Host
from draftmark.service.elevation import check_elevation, elevated
from draftmark.service.reference import parse_reference
from draftmark.service.systemd.manager import Manager, find
from draftmark.service.systemd.restore import RestoreReport, restore

_ABOUT = """\
Puts a systemd unit back as it was: after a run that was cut off, at once; after `tune --keep`, by undoing what was
kept. It needs no run directory and no network but the one to the unit's host. With nothing to undo it does nothing.

  draftmark restore unit:llm.service
  draftmark restore unit:llm.service --host gpu1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = _ABOUT
    parser.add_argument("service", metavar="unit:NAME", help="the unit")
    hosts.add_argument(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also while another draftmark is at work on it, which is then shut out; never while it measures",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(args: argparse.Namespace) -> int:
    """Put it back, and say what was done."""
    reference = parse_reference(args.service)
    if reference.kind is not ServiceKind.UNIT:
        raise UsageError(
            f"a {reference.kind.value}: service is never changed, so there is nothing to put back",
            evidence=(args.service,),
            next_step="name the unit: draftmark restore unit:NAME",
        )
    console = progress_console()
    with console.status(f"putting {reference} back …") as status:
        host = hosts.host_of(args)
        manager = _manager(host, reference.target)
        if not manager.user:
            host = elevated(host)
            check_elevation(host)
        report = restore(
            host,
            manager.unit,
            user_scope=manager.user,
            force=args.force,
            progress=lambda what: status.update(f"putting {reference} back: {what}"),
        )
    if args.json:
        fields = dataclasses.asdict(report)
        print_json({"schema": "draftmark.restore/1", "service": f"unit:{manager.unit}", **fields})
    else:
        result_console().print("\n".join(told(manager.unit, report)), markup=False, soft_wrap=True)
    return 0


def _manager(host: Host, name: str) -> Manager:
    """Of the unit; also of one that was deleted or masked under a trial, whose host still has what is ours."""
    try:
        return find(host, name)[0]
    except (BadInputError, RefusedError):
        full = name if name.endswith(".service") else f"{name}.service"
        if "/" in full or not host.run(("test", "-d", f"/run/draftmark/{full}")).ok:
            raise
        return Manager(host, full)


def told(unit: str, report: RestoreReport) -> list[str]:
    """What a restore did, in lines."""
    if report.nothing:
        return [f"{unit}: nothing of draftmark's is there; it is {report.active}"]
    lines = [f"{unit} is as it was"]
    lines += [f"  removed {path}" for path in report.removed]
    lines += [f"  put back {path}" for path in report.put_back]
    lines += [f"  saved what somebody had edited as {path}" for path in report.saved]
    lines += [f"  changed by somebody else meanwhile, and left so: {path}" for path in report.changed]
    lines += [f"  removed by somebody else meanwhile: {path}" for path in report.missing]
    lines.append(f"  {'restarted' if report.restarted else 'not restarted'}; it is {report.active}")
    return lines
