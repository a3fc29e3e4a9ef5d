"""`--cluster`: which nodes can run the service, what they say of it, and what each is told to run."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from draftmark import __version__
from draftmark.cli import compose
from draftmark.cli.engines import version_of
from draftmark.cli.hosts import is_remote
from draftmark.cli.output import progress_console
from draftmark.cli.target import CommandTarget, Target
from draftmark.errors import RefusedError, UsageError
from draftmark.model import Fit, Node
from draftmark.report.figures import plural
from draftmark.run.records import FORECAST, RunInfo, Slot, decode, encode_line
from draftmark.tune.job import Job, Look, Service, Sight, Word
from draftmark.tune.measuring import Axis, Limits

if TYPE_CHECKING:
    from draftmark.cluster.connection import Cluster

_FOREIGN_CORES = 0.25
_ADDRESS = re.compile(r"auto|(?:ray://)?(?:\[[0-9a-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}", re.ASCII | re.IGNORECASE)
_OF_ONE_HOST = ("unit:", "url:", "docker:", "pod:", "job:")
LOG = "cluster.log"
"""In a run directory: what Ray had to say here."""


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--cluster`."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="try the arms on the nodes of a Ray cluster, side by side: HOST:PORT, auto, or ray://HOST:PORT; "
        "for cmd: and embedded: (docs/cluster.md)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The nodes of a run, reserved for it.

    Attributes:
        nodes: That can run the service.
        sights: What each said, by name.
        wants: What a node is told of the service, but for its port.
        notes: For the user: which nodes are left out, and why.
        log: What Ray printed.
    """

    cluster: Cluster
    nodes: tuple[Node, ...]
    sights: dict[str, Sight]
    wants: Service
    notes: tuple[str, ...] = ()
    log: Path = field(default_factory=Path)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes, in the order in which they are given work."""
        return tuple(node.name for node in self.nodes)

    @property
    def fit(self) -> Fit | None:
        """Of the node with the least room: an arm is to start on any."""
        fits = [sight.fit for sight in self.sights.values() if sight.fit is not None]
        return min(fits, key=lambda fit: sum(arm.fits is not False for arm in fit.arms), default=None)

    @property
    def version(self) -> str | None:
        """Of the engine there; all nodes have the same."""
        return next((sight.engine_version for sight in self.sights.values()), None)

    @property
    def host(self) -> dict[str, Any]:
        """For `run.json`: what the nodes are."""
        return {"name": f"{len(self.nodes)} nodes of the cluster", "nodes": ", ".join(self.names)}

    def service(self, node: str) -> Service:
        """The service on a node."""
        index = next(each.index for each in self.nodes if each.name == node)
        return replace(self.wants, port_step=index)

    def job(
        self, info: RunInfo, axes: tuple[Axis, ...], node: str, slot: Slot, baseline_start_s: float | None
    ) -> Job:
        """One trial for a node."""
        settings = info.settings
        start_s, foreign = settings["start_timeout_s"], settings["max_foreign_cores"]
        shared = next(each.shared for each in self.nodes if each.name == node)
        if foreign is None and self.sights[node].cpu_bound and not shared:
            foreign = _FOREIGN_CORES
        limits = Limits(
            as_baseline_starts=start_s is None,
            request_timeout_s=settings["request_timeout_s"],
            max_foreign_cores=foreign,
        )
        return Job(
            service=self.service(node),
            node=node,
            slot=slot,
            axes=axes,
            limits=limits if start_s is None else replace(limits, start_timeout_s=start_s),
            api=settings["api"],
            baseline_start_s=baseline_start_s,
        )


class FieldNodes:
    """tune.parallel.Nodes of a field."""

    def __init__(self, found: Field) -> None:
        self._cluster = found.cluster
        self.names: Sequence[str] = found.names
        self.events = found.cluster.events
        self.release = found.cluster.release

    def begin(self, node: str, job: Job, into: Path) -> None:
        """Let a node run a trial."""
        self._cluster.begin(node, encode_line(job), into)


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Field | None]:
    """The nodes that the arguments ask for, reserved until the block ends; None where they ask for none.

    Raises:
        UsageError: The service is none that a cluster can run, the address is none, or Ray is not installed.
        HostError: The cluster cannot be reached.
        RefusedError: No node can run it, or the nodes have different versions of its engine.
    """
    address = getattr(args, "cluster", None)
    if address is None:
        yield None
        return
    _refuse(args)
    if str(args.service).startswith(_OF_ONE_HOST):  # before it is looked for here
        raise _of_one_host(args.service)
    target = compose.target(args)
    if not isinstance(target, CommandTarget):
        raise _of_one_host(target.shown)
    from draftmark.cluster.connection import Cluster

    with tempfile.TemporaryDirectory(prefix="draftmark-cluster-") as scratch:
        log = Path(scratch) / LOG
        console = progress_console()
        console.print(f"connecting to the Ray cluster at {address}", markup=False, soft_wrap=True, style="dim")
        with Cluster(address, log) as cluster:
            console.print(f"asking {plural(len(cluster.nodes), 'node')} about the service", style="dim")
            yield _looked(args, target, cluster, log)


def _of_one_host(shown: str) -> UsageError:
    return UsageError(
        "a cluster runs command lines, and this is a service of one host",
        evidence=(shown,),
        next_step='give its command line: cmd:"…"; or leave --cluster out',
    )


def _refuse(args: argparse.Namespace) -> None:
    if not _ADDRESS.fullmatch(args.cluster):
        raise UsageError(
            f"--cluster {args.cluster!r} is no address of a Ray cluster",
            next_step="HOST:PORT, auto, or ray://HOST:PORT; ray status on one of its hosts names it",
        )
    if is_remote(args):
        raise UsageError(
            "--host names one computer, --cluster many",
            evidence=(f"--host {args.host}", f"--cluster {args.cluster}"),
            next_step="leave one of them out",
        )
    if args.search == FORECAST:
        raise UsageError(
            "a forecast asks for one start after the other, a cluster runs many at once",
            evidence=("--search forecast --cluster",),
            next_step="leave --search out: every arm is started, in rounds, over all nodes",
        )
    if args.knob:
        raise UsageError(
            "a search of knobs asks for one start after the other, a cluster runs many at once",
            evidence=("--knob --cluster",),
            next_step="leave one of them out",
        )


def _looked(args: argparse.Namespace, target: CommandTarget, cluster: Cluster, log: Path) -> Field:
    _, arms = compose.arms(args, target)
    wants = Service(
        reference=args.service,
        engine=args.engine,
        method=args.method,
        cwd=os.getcwd(),  # noqa: PTH109 - as the user sees it
    )
    need = target.engine.gpus(target.command)
    on_gpu = bool(need) or (need is None and target.engine.cpu_bound(target.command) is False)
    able = [(node, taken) for node in cluster.nodes if (taken := _reserved(node, need, on_gpu)) is not None]
    if not able:
        raise _none_able(target, cluster, need, on_gpu)
    look = Look(service=wants, arms=arms, gpu=getattr(args, "gpu", None))
    asked = [
        (node, encode_line(replace(look, service=replace(wants, port_step=node.index))), *resources)
        for node, resources in able
    ]
    sights: dict[str, Sight] = {}
    unfit: dict[str, str] = {}
    for name, answer in cluster.look(asked).items():
        sight = _sight(answer)
        if isinstance(sight, str):
            unfit[name] = sight
        else:
            sights[name] = sight
    for name in unfit:
        cluster.release(name)
    if not sights:
        raise RefusedError(
            "no node of the cluster can run the service",
            evidence=tuple(f"{name}: {why}" for name, why in unfit.items()),
            next_step=f"on every node, into the Python that runs Ray: pip install draftmark=={__version__}; "
            f"and there the engine of {shlex.join(target.command[:3])}",
        )
    _same_version(sights)
    found = Field(
        cluster=cluster,
        nodes=tuple(node for node, _ in able if node.name in sights),
        sights=sights,
        wants=wants,
        notes=tuple(f"{name} is left out: {why}" for name, why in unfit.items()),
        log=log,
    )
    if (
        target.engine.name == "sglang"
        and found.version
        and found.version != version_of(target.engine, target.command)
    ):
        args.engine = f"sglang=={found.version}"
    return found


def _reserved(node: Node, need: int | None, on_gpu: bool) -> tuple[float, float] | None:
    """CPUs and GPUs to take of a node, which then runs one trial at a time; None where it has not enough."""
    if need and node.gpus >= need:
        return 0.0, float(need)
    if need is None and node.gpus:
        return 0.0, node.gpus
    if not on_gpu and node.cpus:
        return node.cpus, 0.0
    return None


def _none_able(target: Target, cluster: Cluster, need: int | None, on_gpu: bool) -> RefusedError:
    what = f"the {need} GPUs that the engine needs" if need and need > 1 else "the GPU that the engine needs"
    return RefusedError(
        f"no node of the cluster has {what if on_gpu else 'a CPU for the engine'}",
        evidence=(
            target.redactor.text(shlex.join(target.command))[:300],
            *(f"{node.name}: {node.gpus:g} GPUs, {node.cpus:g} CPUs" for node in cluster.nodes),
        ),
        next_step="ray status; nodes with GPUs join with: ray start --address HOST:PORT --num-gpus N",
    )


def _sight(answer: tuple[int, bytes, bytes] | str) -> Sight | str:
    """What a node said, or why it cannot be used."""
    if isinstance(answer, str):
        return answer
    status, said, complaint = answer
    sight = None
    for each in said.splitlines():
        try:
            sight = decode(each, Word).sight or sight
        except msgspec.DecodeError:
            continue
    if sight is None:
        last = next((t for t in reversed(complaint.decode("utf-8", "replace").splitlines()) if t.strip()), "")
        missing = "No module named" in last and "draftmark" in last
        return f"draftmark is not installed there ({last})" if missing else f"exit status {status}: {last[:200]}"
    if sight.draftmark != __version__:
        return f"it has draftmark {sight.draftmark}, here is {__version__}"
    return sight.missing or sight


def _same_version(sights: dict[str, Sight]) -> None:
    versions = {sight.engine_version for sight in sights.values()}
    if len(versions) > 1:
        raise RefusedError(
            "the nodes have different versions of the engine: their ratios are of different servers",
            evidence=tuple(f"{name}: {sight.engine_version or 'unknown'}" for name, sight in sights.items()),
            next_step="bring them to one version, or take nodes out of the cluster",
        )


def keep_log(found: Field, directory: Path) -> None:
    """What Ray printed, beside the records; nothing where it was silent."""
    if found.log.is_file() and found.log.stat().st_size:
        shutil.copyfile(found.log, directory / LOG)
