"""`draftmark restore`: put a unit back, from its own host's backup alone."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from draftmark.cli import hosts, services
from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.errors import BadInputError, RefusedError, UsageError
from draftmark.model import ServiceRef
from draftmark.ports import Host
from draftmark.service.elevation import check_elevation, elevated
from draftmark.service.systemd.manager import Manager, find
from draftmark.service.systemd.restore import restore

SCHEMA = "draftmark.restore/1"

_ABOUT = """\
Puts a systemd unit back as it was: after a run that was cut off, at once; after `tune --keep`, by undoing what was
kept. It needs no run directory and no network but the one to the unit's host. With nothing to undo it does nothing.

  draftmark restore unit:llm.service
  draftmark restore unit:llm.service --host gpu1
  draftmark restore qwen                          by its name in draftmark.toml: each of its units, in rank order
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = _ABOUT
    parser.add_argument("service", metavar="SERVICE", help="unit:NAME, or a name of draftmark.toml")
    hosts.add_argument(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also while another draftmark is at work on it, which is then shut out; never while it measures",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(args: argparse.Namespace) -> int:
    """Put it back, and say what was done."""
    members = services.units(args, _refused)

    def tell(document: dict[str, Any]) -> None:
        if not args.json:
            result_console().print("\n".join(told(document)), markup=False, soft_wrap=True)

    documents = services.for_each(members, lambda member: _restored(member, force=args.force), tell)
    if args.json:
        print_json({"schema": SCHEMA, **_document(args.service, documents)})
    return 0


def _refused(reference: ServiceRef) -> UsageError:
    return UsageError(
        f"a {reference.kind.value}: service is never changed, so there is nothing to put back",
        evidence=(str(reference),),
        next_step="name the unit: draftmark restore unit:NAME",
    )


def _document(asked: str, documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one unit, or of a service of several."""
    return documents[0] if len(documents) == 1 else {"service": asked, "members": documents}


def _restored(member: services.Member, *, force: bool) -> dict[str, Any]:
    with progress_console().status(f"putting {member} back …") as status:
        host = hosts.host_at(member.host)
        manager = _manager(host, member.unit)
        if not manager.user:
            host = elevated(host)
            check_elevation(host)
        report = restore(
            host,
            manager.unit,
            user_scope=manager.user,
            force=force,
            progress=lambda what: status.update(f"putting {member} back: {what}"),
        )
    return {"service": f"unit:{manager.unit}", "host": member.host, **dataclasses.asdict(report)}


def _manager(host: Host, name: str) -> Manager:
    """Of the unit; also of one that was deleted or masked under a trial, whose host still has what is ours."""
    try:
        return find(host, name)[0]
    except (BadInputError, RefusedError):
        full = name if name.endswith(".service") else f"{name}.service"
        if "/" in full or not host.run(("test", "-d", f"/run/draftmark/{full}")).ok:
            raise
        return Manager(host, full)


def _outcome(document: dict[str, Any]) -> str:
    """What is true of it now: what was kept may stand in for a configuration that has changed since."""
    if document["undone_keep"]:
        again = "the choice before it" if document["put_back"] else "its own configuration, as it is now,"
        return f": what was kept is undone, and {again} is in force again"
    others = any(document[key] for key in ("changed", "added", "missing"))
    return " is as it was" + (", but for what somebody else did to it" if others else "")


def told(document: dict[str, Any]) -> list[str]:
    """What a restore did, in lines."""
    unit = document["service"].removeprefix("unit:") + (f" on {document['host']}" if document["host"] else "")
    if document["nothing"]:
        return [f"{unit}: nothing of draftmark's is there; it is {document['active']}"]
    lines = [f"{unit}{_outcome(document)}"]
    lines += [f"  removed {path}" for path in document["removed"]]
    lines += [f"  put back {path}" for path in document["put_back"]]
    lines += [f"  saved what somebody had edited as {path}" for path in document["saved"]]
    lines += [f"  changed by somebody else meanwhile, and left so: {path}" for path in document["changed"]]
    lines += [f"  added by somebody else meanwhile, and left so: {path}" for path in document["added"]]
    lines += [f"  removed by somebody else meanwhile: {path}" for path in document["missing"]]
    lines.append(f"  {'restarted' if document['restarted'] else 'not restarted'}; it is {document['active']}")
    return lines
