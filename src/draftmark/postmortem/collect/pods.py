"""A pod of Kubernetes: its state, events, description and logs. Its node's kernel log is elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from draftmark.errors import BadInputError
from draftmark.ports import Completed, Host
from draftmark.postmortem.collect.gathering import Collected, Gathering, Reader, close_names, reason
from draftmark.postmortem.collect.journal import sight
from draftmark.postmortem.collect.kernel import NAME as KERNEL_LOG
from draftmark.postmortem.collect.kernel import Span, collect_kernel
from draftmark.postmortem.collect.merged import merged_log

_MAX_LINES = 200_000
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod by its name.

    Attributes:
        namespace: `` for the one that kubectl takes by itself.
        name: Of the pod.
        document: What the API server said of it; empty when it is gone.
    """

    namespace: str
    name: str
    document: dict[str, Any]

    def kubectl(self, *words: str) -> list[str]:
        """A command in its namespace."""
        return ["kubectl", *((f"--namespace={self.namespace}",) if self.namespace else ()), *words]

    @property
    def title(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def node(self) -> str:
        """Where it runs or ran; `` when nobody says."""
        return str(_object(self.document, "spec").get("nodeName") or "")

    def containers(self) -> Iterator[tuple[str, int]]:
        """Names of its containers that have started, with how often each was started again."""
        status = _object(self.document, "status")
        for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
            rows = status.get(key)
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict) and isinstance(row.get("name"), str):
                    count = row.get("restartCount")
                    yield row["name"], count if isinstance(count, int) else 0


def collect_pod(
    host: Host,
    name: str,
    *,
    read: Reader,
    runs: int = 3,
    since: str | None = None,
) -> Collected:
    """Read all that the cluster lets this user read of a pod.

    Args:
        host: Where kubectl is.
        name: `[NAMESPACE/]NAME`.
        read: Makes a source of a name and of bytes.
        runs: 1 leaves out the run before; the cluster keeps no more than that one.
        since: How old lines may be, as `kubectl logs --since` takes it.

    Raises:
        BadInputError: There is no kubectl, or no such pod.
    """
    gathering = Gathering(host, read)
    namespace, _, plain = name.rpartition("/")
    pod = Pod(namespace, plain, {})
    argv = pod.kubectl("get", "pod", plain, "--output=json")
    ended = host.run(argv, timeout_s=_WAIT_S)
    if ended.missing:
        raise BadInputError(
            "there is no kubectl here",
            next_step="run this where kubectl works, or hand over what was saved: draftmark why FILES…",
        )
    if not ended.ok and "notfound" in ended.stderr.replace(" ", "").lower() and not _events(gathering, pod):
        raise _no_such_pod(host, pod, ended)
    if ended.ok:
        gathering.add(f"kubectl get pod {pod.title}", ended.stdout)
        pod = _read(pod, ended.stdout)
        _events(gathering, pod)
        describe = pod.kubectl("describe", "pod", plain)
        gathering.command(
            f"kubectl describe pod {pod.title}", describe, unread="pod description", timeout_s=_WAIT_S
        )
        _logs(gathering, pod, runs, since)
        _node(gathering, pod)
    else:
        gathering.failed("pod state", ended, argv)
        logs = pod.kubectl("logs", plain, "--previous", "--timestamps", "--all-containers", "--prefix")
        gathering.miss("pod log", reason(ended, argv), logs)
        gathering.miss(
            KERNEL_LOG, "it is on the pod's node, which is not known", "sudo journalctl -k   # on the node"
        )
    return gathering.done(pod.title)


def _object(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _read(pod: Pod, output: bytes) -> Pod:
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return pod
    if not isinstance(document, dict):
        return pod
    namespace = _object(document, "metadata").get("namespace")
    return Pod(namespace if isinstance(namespace, str) else pod.namespace, pod.name, document)


def _events(gathering: Gathering, pod: Pod) -> bool:
    """Keep the pod's events; whether there were any. The cluster forgets them after an hour or so."""
    selector = f"--field-selector=involvedObject.name={pod.name}"
    argv = pod.kubectl("get", "events", selector, "--output=json")
    ended = gathering.host.run(argv, timeout_s=_WAIT_S)
    if not ended.ok:
        gathering.failed("pod events", ended, argv)
        return False
    try:
        items = json.loads(ended.stdout).get("items")
    except (ValueError, AttributeError, RecursionError):
        items = None
    if items:
        gathering.add(f"kubectl events of {pod.title}", ended.stdout)
        return True
    if pod.document:
        gathering.miss("pod events", "none is left: the cluster forgets them after an hour or so", argv)
    return False


def _logs(gathering: Gathering, pod: Pod, runs: int, since: str | None) -> None:
    """Each container by itself: asked for all at once, kubectl fails when one of them has no earlier run."""
    for container, restarts in pod.containers():
        for previous in (True, False) if restarts and runs > 1 else (False,):
            words = [
                "logs",
                pod.name,
                f"--container={container}",
                "--timestamps",
                "--prefix",
                f"--tail={_MAX_LINES}",
            ]
            words += ["--previous"] if previous else []
            words += [f"--since={since}"] if since else []
            title = f"log of {pod.title} {container}" + (" (run before)" if previous else "")
            merged_log(gathering, title, pod.kubectl(*words), title, limit=_MAX_LINES)
        if restarts > 1 and runs > 1:
            because = f"it was started again {restarts} times, and the cluster keeps the log of the last two runs"
            command = f"ls /var/log/pods   # on node {pod.node}, or the cluster's log store"
            gathering.miss(f"log of {pod.title} {container} (runs before)", because, command)


def _node(gathering: Gathering, pod: Pod) -> None:
    """The node's own events, and its kernel log where this is the node."""
    if not pod.node:
        return
    selector = f"--field-selector=involvedObject.kind=Node,involvedObject.name={pod.node}"
    argv = ["kubectl", "get", "events", "--all-namespaces", selector, "--output=json"]
    gathering.command(f"kubectl events of node {pod.node}", argv, unread="node events", timeout_s=_WAIT_S)
    if gathering.host.name.partition(".")[0] == pod.node.partition(".")[0]:
        seen, _ = sight(gathering.host)
        collect_kernel(gathering, seen, Span())
        return
    gathering.miss(
        KERNEL_LOG,
        f"it is on node {pod.node}",
        f"sudo journalctl -k   # on {pod.node}; without a login there: "
        f"kubectl debug node/{pod.node} -it --image=busybox -- chroot /host journalctl -k",
    )


def _no_such_pod(host: Host, pod: Pod, ended: Completed) -> BadInputError:
    listed = host.run(pod.kubectl("get", "pods", "--output=name"), timeout_s=_WAIT_S)
    names = [each.removeprefix("pod/") for each in listed.stdout.decode("utf-8", "replace").split()]
    close = close_names(pod.name, names)
    shown = f"{pod.namespace}/" if pod.namespace else ""
    return BadInputError(
        f'there is no pod "{pod.title}" in this cluster',
        evidence=(
            reason(ended, ("kubectl",)),
            *((f"names like it: {', '.join(close)}",) if close else ()),
        ),
        next_step=f"draftmark why pod:{shown}{close[0]}" if close else "kubectl get pods --all-namespaces",
    )
