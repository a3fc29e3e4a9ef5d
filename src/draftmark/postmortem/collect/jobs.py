"""A job of Slurm: what the accounting says, and the job's output files, where this host can read them."""

from __future__ import annotations

import re

from draftmark.errors import BadInputError
from draftmark.ports import Host
from draftmark.postmortem.collect.files import read_file
from draftmark.postmortem.collect.gathering import Collected, Gathering, Reader
from draftmark.postmortem.collect.journal import sight
from draftmark.postmortem.collect.kernel import NAME as KERNEL_LOG
from draftmark.postmortem.collect.kernel import Span, collect_kernel

_COLUMNS = "JobID,JobName,State,ExitCode,DerivedExitCode,MaxRSS,ReqMem,Elapsed,Timelimit,Start,End,NodeList,Reason"
_FILES = re.compile(r"^\s*Std(?:Out|Err)=(\S.*?)\s*$", re.MULTILINE)
_WAIT_S = 60.0


def collect_job(
    host: Host,
    name: str,
    *,
    read: Reader,
    runs: int = 3,  # noqa: ARG001 - a job runs once; every collector takes the same
    since: str | None = None,  # noqa: ARG001
) -> Collected:
    """Read all that this user may read of a job.

    Args:
        host: Where Slurm's commands are.
        name: Job id, `123` or `123_4`.
        read: Makes a source of a name and of bytes.
        runs: For units.
        since: For units.

    Raises:
        BadInputError: There is no sacct and no scontrol, or no such job.
    """
    gathering = Gathering(host, read)
    sacct = ("sacct", f"--jobs={name}", f"--format={_COLUMNS}", "--parsable2")
    scontrol = ("scontrol", "show", "job", name)
    accounted, shown = host.run(sacct, timeout_s=_WAIT_S), host.run(scontrol, timeout_s=_WAIT_S)
    if accounted.missing and shown.missing:
        raise BadInputError(
            "there is neither sacct nor scontrol here",
            next_step="run this on the cluster, or hand over the job's output: draftmark why slurm-ID.out",
        )
    rows = accounted.stdout.decode("utf-8", "replace").splitlines()[1:] if accounted.ok else []
    if accounted.ok and not rows and not shown.ok:
        raise BadInputError(
            f"Slurm knows no job {name}",
            evidence=("sacct lists no row of it, and scontrol forgets a job some minutes after its end",),
            next_step="sacct --allocations --starttime=now-7days",
        )
    if rows:
        gathering.add(f"sacct of job {name}", accounted.stdout)
    elif not accounted.ok:
        gathering.failed("Slurm accounting", accounted, sacct)
    if shown.ok:
        gathering.add(f"scontrol show job {name}", shown.stdout)
    _output(gathering, name, shown.stdout.decode("utf-8", "replace") if shown.ok else "")
    _nodes(gathering, rows)
    return gathering.done(name)


def _output(gathering: Gathering, name: str, shown: str) -> None:
    """The job's output files: as scontrol names them, or as newer accounting does, or by Slurm's default."""
    paths = _FILES.findall(shown) or _accounted_paths(gathering, name)
    for path in dict.fromkeys(paths):
        if path != "/dev/null":
            read_file(gathering, path)
    if not paths:
        because = "scontrol no longer knows the job, and the accounting does not hold the paths"
        gathering.miss("job output", because, f"draftmark why slurm-{name}.out   # in the job's directory")


def _accounted_paths(gathering: Gathering, name: str) -> list[str]:
    argv = ("sacct", f"--jobs={name}", "--allocations", "--noheader", "--parsable2")
    ended = gathering.host.run((*argv, "--format=StdOut,StdErr"), timeout_s=_WAIT_S)  # since Slurm 24.05
    fields = ended.stdout.decode("utf-8", "replace").replace("\n", "|").split("|") if ended.ok else []
    if paths := [field for field in fields if field.startswith("/") and "%" not in field]:
        return paths
    ended = gathering.host.run((*argv, "--format=WorkDir"), timeout_s=_WAIT_S)
    folder = ended.stdout.decode("utf-8", "replace").splitlines()[:1] if ended.ok else []
    return [f"{folder[0]}/slurm-{name}.out"] if folder and folder[0].startswith("/") else []


def _nodes(gathering: Gathering, rows: list[str]) -> None:
    """The kernel log of the job's node, where this is it."""
    columns = _COLUMNS.split(",")
    values = dict(zip(columns, rows[0].split("|"), strict=False)) if rows else {}
    node, start = values.get("NodeList", ""), values.get("Start", "")
    since = start.replace("T", " ") + " UTC" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", start) else None
    if node and gathering.host.name.partition(".")[0] == node.partition(".")[0]:
        seen, _ = sight(gathering.host)
        collect_kernel(gathering, seen, Span(since))
        return
    where = f"on {node}" if node and "assigned" not in node else "on the job's nodes"
    because = f"it is {where}"
    gathering.miss(KERNEL_LOG, because, f"sudo journalctl -k{f' --since={since!r}' if since else ''}   # {where}")
