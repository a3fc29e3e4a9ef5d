"""Who is on the GPUs now. A driver that does not answer is a finding, so it is given little time."""

from __future__ import annotations

from draftmark.postmortem.collect.gathering import Gathering

_WAIT_S = 10.0
_APPS = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv")


def collect_devices(gathering: Gathering) -> None:
    """Keep nvidia-smi's table and its processes, where there is an nvidia-smi."""
    ended = gathering.host.run(("nvidia-smi",), timeout_s=_WAIT_S)
    if ended.missing:
        return
    # It prints its complaints (`No devices were found`, `Unable to determine the device handle`) to stdout.
    if ended.stdout.strip():
        gathering.add("nvidia-smi", ended.stdout)
    if not ended.ok:
        gathering.failed("GPU state", ended, ("nvidia-smi",))
        return
    gathering.command("nvidia-smi processes", _APPS, timeout_s=_WAIT_S)
