"""State records are read for what they say, and nothing that stands in them makes reading fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmark.postmortem.model import Kind
from draftmark.postmortem.records import ContainerRecord, Records, parse_quantity, read_records

from .small import document, record, verdict

DOCKER = {
    "Id": "8c1f0b7a88e24d53b9a1",
    "Name": "/vllm",
    "RestartCount": 2,
    "State": {
        "Running": False, "ExitCode": 137, "OOMKilled": True, "Health": {"Status": "unhealthy"},
        "StartedAt": "2026-03-02T10:00:00Z", "FinishedAt": "2026-03-02T11:00:00Z",
    },
    "Config": {"Image": "vllm/vllm-openai:v0.11.0"},
    "HostConfig": {"Memory": 68719476736, "ShmSize": 67108864, "IpcMode": "private"},
}  # fmt: skip
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "llm-0"},
    "spec": {"containers": [{"name": "sglang", "resources": {"limits": {"memory": "64Gi"}}}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "sglang",
                "image": "lmsysorg/sglang:v0.5.3",
                "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {
                    "terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": "a", "finishedAt": "b"}
                },
            }
        ],
    },
}
DESCRIBE = """\
Name:             llm-0
Namespace:        inference
Status:           Running
Containers:
  sglang:
    Container ID:  containerd://8c1f0b7a88e24d53
    Image:         lmsysorg/sglang:v0.5.3
    State:          Running
      Started:      Mon, 02 Mar 2026 10:00:00 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 02 Mar 2026 09:00:00 +0000
      Finished:     Mon, 02 Mar 2026 09:59:00 +0000
    Ready:          True
    Restart Count:  3
    Limits:
      memory:  64Gi
    Requests:
      memory:  32Gi
"""


def read(kind: Kind, text: str, name: str = "record") -> Records:
    return read_records((record(kind, text, name),))


def container(kind: Kind, content: Any) -> ContainerRecord:
    found = read_records((document(kind, content),)).containers
    assert len(found) == 1
    return found[0]


def test_properties_of_a_unit() -> None:
    unit = read(
        Kind.SYSTEMCTL_SHOW,
        "Id=llm.service\nMemoryMax=64\nMemoryPeak=infinity\nEnvironment=A=b c\nTasksMax=[not set]",
    ).unit
    assert unit is not None
    assert (unit.get("Id"), unit.get("Environment"), unit.get("None")) == ("llm.service", "A=b c", "")
    assert (unit.number("MemoryMax"), unit.number("MemoryPeak"), unit.number("TasksMax")) == (64, None, None)
    assert unit.lines["MemoryMax"].number == 2


def test_no_limit_is_no_number() -> None:
    """Older systemd prints 2^64 - 1 where newer prints infinity."""
    unit = read(Kind.SYSTEMCTL_SHOW, "MemoryMax=18446744073709551615").unit
    assert unit is not None
    assert unit.number("MemoryMax") is None


def test_the_first_of_a_property_stands_and_files_add_up() -> None:
    found = read_records(
        (
            record(Kind.SYSTEMCTL_SHOW, "Result=timeout\nResult=success\nno equals"),
            record(Kind.SYSTEMCTL_SHOW, "Id=a.service"),
        )
    ).unit
    assert found is not None
    assert found.values == {"Result": "timeout", "Id": "a.service"}


@pytest.mark.parametrize("content", [DOCKER, [DOCKER]])
def test_a_container_of_dockers(content: Any) -> None:
    found = container(Kind.DOCKER_INSPECT, content)
    assert (found.name, found.image, found.running) == ("vllm", "vllm/vllm-openai:v0.11.0", False)
    assert (found.exit_code, found.oom_killed, found.restarts, found.health) == (137, True, 2, "unhealthy")
    assert (found.memory_limit, found.shm_bytes, found.ipc_mode) == (68719476736, 67108864, "private")
    assert '"OOMKilled": true' in found.lines["oom_killed"].text
    assert '"ExitCode": 137' in found.lines["exit_code"].text


def test_a_limit_of_zero_is_none() -> None:
    assert container(Kind.DOCKER_INSPECT, {"HostConfig": {"Memory": 0}}).memory_limit is None


def test_podman_names_the_image_elsewhere() -> None:
    assert container(Kind.DOCKER_INSPECT, {"ImageName": "q:1", "State": {}}).image == "q:1"


@pytest.mark.parametrize("content", [POD, {"kind": "List", "items": [POD]}])
def test_a_container_of_a_pod(content: Any) -> None:
    records = read_records((document(Kind.KUBECTL_JSON, content),))
    assert (records.pod, records.pod_failed) == ("llm-0", False)
    found = records.containers[0]
    assert (found.name, found.exit_code, found.reason, found.oom_killed) == ("sglang", 137, "OOMKilled", True)
    assert (found.memory_limit, found.restarts, found.running) == (64 << 30, 4, False)
    assert "OOMKilled" in found.lines["reason"].text


def test_a_pod_that_was_evicted() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Failed", "reason": "Evicted"}}
    records = read_records((document(Kind.KUBECTL_JSON, pod),))
    assert records.pod_failed
    assert [found.reason for found in records.containers] == ["Evicted"]


def test_events_are_no_pods() -> None:
    events = {"kind": "EventList", "items": [{"kind": "Event", "reason": "Killing", "status": {"a": 1}}]}
    assert read_records((document(Kind.KUBECTL_JSON, events),)).containers == []


def test_a_description() -> None:
    records = read(Kind.KUBECTL_DESCRIBE, DESCRIBE)
    found = records.containers[0]
    assert (records.pod, records.pod_failed) == ("llm-0", False)
    assert (found.running, found.reason, found.exit_code, found.restarts) == (True, "OOMKilled", 137, 3)
    assert found.oom_killed
    assert found.memory_limit == 64 << 30, "of the limits, not of the requests"
    assert found.lines["exit_code"].text.strip() == "Exit Code:    137"


def test_a_description_of_two_containers() -> None:
    second = DESCRIBE.partition("  sglang:\n")[2].replace("137", "1").replace("OOMKilled", "Error")
    found = read(Kind.KUBECTL_DESCRIBE, f"{DESCRIBE}  router:\n{second}").containers
    assert [(one.exit_code, one.reason) for one in found] == [(137, "OOMKilled"), (1, "Error")]
    assert [one.oom_killed for one in found] == [True, None]


def test_waiting_to_be_started_again_is_no_reason() -> None:
    text = DESCRIBE.replace(
        "State:          Running\n      Started:      Mon, 02 Mar 2026 10:00:00 +0000",
        "State:          Waiting\n      Reason:       CrashLoopBackOff",
    )
    found = read(Kind.KUBECTL_DESCRIBE, text).containers[0]
    assert (found.reason, found.running) == ("OOMKilled", False)


def test_a_pod_that_failed_and_was_evicted() -> None:
    records = read(Kind.KUBECTL_DESCRIBE, "Name:    p\nStatus:    Failed\nReason:    Evicted\n")
    assert records.pod_failed
    assert records.containers[0].reason == "Evicted"


def test_metrics_the_highest_use_and_the_limit() -> None:
    records = read(
        Kind.METRICS,
        'container_memory_working_set_bytes{pod="a"} 1e9\ncontainer_memory_working_set_bytes{pod="b"} 6.4e10\n'
        'container_spec_memory_limit_bytes{pod="a"} 6.5e10\ncontainer_spec_memory_limit_bytes{pod="b"} 0\n'
        "container_memory_working_set_bytes 1-e\n# HELP x\n",
    )
    assert records.working_set is not None
    assert records.memory_limit is not None
    assert (records.working_set[0], records.memory_limit[0]) == (6.4e10, 6.5e10)
    assert records.working_set[1].number == 2


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("81231|OUT_OF_MEMORY|0:125|64G", ("OUT_OF_MEMORY", "0:125")),
        ("81231.0    OUT_OF_ME+      0:125", ("OUT_OF_ME+", "0:125")),
        ("81231  TIMEOUT 0:0", ("TIMEOUT", "0:0")),
        ("81231|CANCELLED by 1004|0:15", ("CANCELLED by 1004", "0:15")),
        ("81231 NODE_FAIL", ("NODE_FAIL", "")),
    ],
)
def test_a_job(row: str, expected: tuple[str, str]) -> None:
    assert [job[:2] for job in read(Kind.SACCT, f"JobID|State|ExitCode\n{row}").jobs] == [expected]


@pytest.mark.parametrize("name", ["memory.events", "app/memory.oom_control"])
def test_kills_that_a_cgroup_counts(name: str) -> None:
    records = read(Kind.LOG, "low 0\noom 3\noom_kill 2\noom_group_kill 0", name)
    assert records.cgroup_kills is not None
    assert records.cgroup_kills[0] == 2
    assert read(Kind.LOG, "oom_kill 2", "service.log").cgroup_kills is None


def test_processes_are_kept_as_lines() -> None:
    assert len(read(Kind.PROCESSES, "  PID STAT\n   12 D").processes) == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64Gi", 64 << 30),
        ("512Mi", 512 << 20),
        ("1.5G", 1_500_000_000),
        ("1000", 1000),
        ("0", None),
        ("", None),
        ("64GiB", None),
        ("-1", None),
        ("1e3", None),
    ],
)
def test_quantities(text: str, size: int | None) -> None:
    assert parse_quantity(text) == size


# Whatever stands in a record: values of other types, missing and unknown keys.

KEYS = st.sampled_from(
    [
        *("State", "HostConfig", "Config", "Name", "Image", "Running", "ExitCode", "OOMKilled", "Health", "Status"),
        *(
            "Memory",
            "ShmSize",
            "IpcMode",
            "RestartCount",
            "kind",
            "items",
            "status",
            "spec",
            "metadata",
            "name",
            "Id",
        ),
        *(
            "containers",
            "resources",
            "limits",
            "memory",
            "phase",
            "reason",
            "containerStatuses",
            "state",
            "running",
        ),
        *("lastState", "terminated", "exitCode", "restartCount", "startedAt", "StartedAt"),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("Pod")
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25
)


def mutated(content: Any, junk: Any, path: list[int]) -> Any:
    """One value somewhere inside replaced."""
    if not path or not isinstance(content, dict | list) or not content:
        return junk
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    key = keys[path[0] % len(keys)]
    copy = dict(content) if isinstance(content, dict) else dict(enumerate(content))
    copy[key] = mutated(content[key], junk, path[1:])
    return copy if isinstance(content, dict) else list(copy.values())


LISTS = ("items", "containers", "containerStatuses")


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "List", "items": 5},
        {"kind": "Pod", "status": {"phase": "Running"}, "spec": {"containers": True}},
        {"kind": "Pod", "status": {"containerStatuses": 1}},
    ],
)
def test_a_number_where_a_list_belongs(content: Any) -> None:
    read_records((document(Kind.KUBECTL_JSON, content),))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(JUNK, st.sampled_from([Kind.DOCKER_INSPECT, Kind.KUBECTL_JSON]))
def test_no_document_breaks_reading(content: Any, kind: Kind) -> None:
    read_records((document(kind, content),))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(JUNK, st.sampled_from([DOCKER, POD]), st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_no_single_wrong_value_breaks_the_answer(junk: Any, content: Any, path: list[int]) -> None:
    kind = Kind.DOCKER_INSPECT if content is DOCKER else Kind.KUBECTL_JSON
    changed = mutated(content, junk, path)
    verdict(document(kind, changed))


TEXTS = st.sampled_from([*DESCRIBE.splitlines(), "Exit Code: -1", "Exit Code: 1e9", "A=", "=b", "oom_kill x"])
ROWS = st.lists(TEXTS | st.text(max_size=30).filter(lambda text: "\n" not in text), max_size=25).map("\n".join)


@settings(deadline=None)
@given(ROWS, st.sampled_from([kind for kind in Kind if kind is not Kind.LOG]))
def test_no_text_breaks_the_answer(text: str, kind: Kind) -> None:
    assert json.dumps(verdict(record(kind, text)).cause)
