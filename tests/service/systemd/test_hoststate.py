"""What is read of a host for its hazards."""

from __future__ import annotations

from draftmark.ports import Completed
from draftmark.service.systemd.hazards import DrainFacts, HostState, hazards
from draftmark.service.systemd.hoststate import host_state
from draftmark.testing.hosts import ScriptedHost

MEMINFO = b"MemTotal:       65813132 kB\nSwapTotal:             0 kB\n"
CONFIG = """\
# /etc/systemd/journald.conf
#  This file is part of systemd.
[Journal]
#Storage=auto

# /etc/systemd/journald.conf.d/lab.conf
[Journal]
Storage=volatile
"""
DRAIN = DrainFacts(drains=True, worst_s=1)


def test_it_is_read() -> None:
    host = ScriptedHost(
        {
            "^systemd-analyze cat-config": CONFIG,
            "^test -d /var/log/journal": Completed(1),
            "^nvidia-smi": "4711, /opt/venv/bin/python3, 70000 MiB\n12, Xorg, 4 MiB\n",
            "cgroup.procs": "4711\n4712\n",
        },
        {
            "/proc/meminfo": MEMINFO,
            "/etc/systemd/journald.conf.d/lab.conf": b"# one more line\n[Journal]\nStorage=volatile\n",
        },
    )
    properties = {"ControlGroup": "/system.slice/llm.service", "MainPID": "4711", "ActiveState": "active"}
    state = host_state(host, properties)
    assert state.unit_pids == {4711, 4712}
    found = {each.code: each.evidence for each in hazards(properties, [], state, DRAIN)}
    assert found["no-swap"] == "/proc/meminfo: SwapTotal: 0 kB"
    assert found["journal-not-persistent"] == "/etc/systemd/journald.conf.d/lab.conf:3: Storage=volatile"
    assert found["gpu-shared"] == "nvidia-smi: 12, Xorg, 4 MiB"
    assert "journal-rate-limit" in found


def test_a_host_that_tells_nothing_has_no_hazards() -> None:
    state = host_state(ScriptedHost({}), {})
    assert state == HostState()
    assert hazards({}, [], state, DRAIN) == []
