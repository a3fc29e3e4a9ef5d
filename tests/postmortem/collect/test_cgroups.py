"""Control groups of both versions: what is the unit's, and of the groups above only what is their own."""

from __future__ import annotations

import pytest

from draftmark.ports import Completed
from draftmark.postmortem.collect.cgroups import collect_cgroups, slice_path
from draftmark.postmortem.collect.gathering import Gathering, Reader
from draftmark.postmortem.collect.units import Unit
from draftmark.testing.hosts import ScriptedHost

ROOT = "/sys/fs/cgroup"
NONE = b"low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"
HIT = b"low 0\nhigh 0\nmax 31\noom 1\noom_kill 1\n"
GROUP = "/llm.slice/llm-a.slice/x.service"


def gathered(files: dict[str, bytes | OSError], read: Reader, **properties: str) -> Gathering:
    gathering = Gathering(ScriptedHost({}, files), read)
    unit = Unit("x.service", False, properties, b"", Completed(0), ("systemctl",))
    collect_cgroups(gathering, unit)
    return gathering


def texts(gathering: Gathering) -> dict[str, list[str]]:
    return {source.name: [line.text for line in source.lines] for source in gathering.sources}


def test_a_running_units_events_and_limits_are_read(read: Reader) -> None:
    files: dict[str, bytes | OSError] = {
        f"{ROOT}{GROUP}/memory.events": HIT,
        f"{ROOT}{GROUP}/memory.max": b"67108864\n",
        f"{ROOT}{GROUP}/memory.peak": b"67100000\n",
        f"{ROOT}{GROUP}/pids.events": b"max 4\n",
        f"{ROOT}/system.slice/memory.events": PermissionError(13, "Permission denied"),
    }
    found = texts(gathered(files, read, ControlGroup=GROUP))
    assert "oom_kill 1" in found["cgroup memory.events of x.service"]
    assert found["cgroup pids.events of x.service"] == ["max 4"]
    assert found["cgroup limits of x.service"] == ["memory.max 67108864", "memory.peak 67100000"]


def test_kills_of_other_services_below_the_same_slice_are_not_shown(read: Reader) -> None:
    files: dict[str, bytes | OSError] = {
        f"{ROOT}{GROUP}/memory.events": NONE,
        f"{ROOT}/llm.slice/memory.events": HIT,
        f"{ROOT}/llm.slice/memory.events.local": NONE,
        f"{ROOT}/llm.slice/memory.max": b"max\n",
    }
    assert list(texts(gathered(files, read, ControlGroup=GROUP))) == ["cgroup memory.events of x.service"]


def test_a_limit_of_a_slice_is_shown_with_what_it_did(read: Reader) -> None:
    files: dict[str, bytes | OSError] = {
        f"{ROOT}/llm.slice/memory.events.local": HIT,
        f"{ROOT}/llm.slice/memory.max": b"67108864\n",
    }
    found = texts(gathered(files, read, Slice="llm-a.slice"))
    assert "oom 1" in found["cgroup memory.events.local of /llm.slice"]
    assert found["cgroup limits of /llm.slice"] == ["memory.max 67108864"]


def test_version_1_is_read_where_there_is_no_other(read: Reader) -> None:
    files: dict[str, bytes | OSError] = {
        f"{ROOT}/memory{GROUP}/memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        f"{ROOT}/memory{GROUP}/memory.limit_in_bytes": b"9223372036854771712\n",
        f"{ROOT}/memory/llm.slice/memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        f"{ROOT}/memory/llm.slice/memory.limit_in_bytes": b"9223372036854771712\n",
    }
    found = texts(gathered(files, read, ControlGroup=GROUP))
    assert "oom_kill 2" in found["cgroup memory.oom_control of x.service"]
    assert not [name for name in found if "llm.slice" in name]


def test_the_group_of_a_stopped_unit_is_said_to_be_gone(read: Reader) -> None:
    [unread] = gathered({}, read, Slice="llm.slice").unread
    assert "went with it" in unread.because
    assert unread.command.startswith(f"cat {ROOT}/llm.slice/x.service/memory.events")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("system.slice", "/system.slice"),
        ("user-1000.slice", "/user.slice/user-1000.slice"),
        ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"),
        ("-.slice", ""),
        ("", ""),
    ],
)
def test_where_a_slice_lies(name: str, path: str) -> None:
    assert slice_path(name) == path
