"""Containers of docker and podman, with the outputs that their clients document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest

from draftmark.errors import BadInputError
from draftmark.ports import Completed
from draftmark.postmortem.collect import Collected, collect_container
from draftmark.postmortem.collect.gathering import Reader
from draftmark.testing.hosts import Entry, JournalHost, ScriptedHost

ID = "3a4f" * 16
STATE = {
    "Status": "exited",
    "OOMKilled": False,
    "ExitCode": 137,
    "Pid": 0,
    "StartedAt": "2026-11-29T16:00:00.123456789Z",
    "FinishedAt": "2026-11-29T16:16:40.987654321Z",
}
ENDED = 1_795_969_000.0
NO_DAEMON = Completed(
    1,
    b"[]\n",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
)
FORBIDDEN = Completed(
    1,
    b"[]\n",
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: "
    'Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.47/containers/llm/json": connect: permission denied\n',
)
UNKNOWN = Completed(1, b"[]\n", "Error response from daemon: No such container: llm\n")


def inspected(**state: Any) -> str:
    return json.dumps([{"Id": ID, "Name": "/llm", "State": STATE | state, "HostConfig": {"Memory": 0}}])


def answers(**more: str | Completed) -> dict[str, str | bytes | Completed]:
    return {
        r"^docker inspect": more.get("inspect", inspected()),
        r"docker logs": more.get("logs", "2026-11-29T16:16:40.1Z INFO serving\n"),
        r"^docker events": more.get(
            "events", "2026-11-29T16:16:40.9Z container die 3a4f (exitCode=137, name=llm)\n"
        ),
        r"^docker ps": "llm-server\nweb\n",
    }


def collect(
    read: Reader,
    script: Mapping[str, str | bytes | Completed] = MappingProxyType({}),
    *,
    since: str | None = None,
    root: bool = True,
    hint: str = "",
) -> tuple[Collected, JournalHost]:
    entries = [
        Entry(ENDED - 9, {"_SYSTEMD_UNIT": "docker.service", "MESSAGE": f"Container failed to exit {ID}"}),
        Entry(ENDED - 8, {"_SYSTEMD_UNIT": "docker.service", "MESSAGE": "Container failed to exit of another"}),
        Entry(ENDED - 7, {"_SYSTEMD_UNIT": "docker.service", "MESSAGE": "own log", "CONTAINER_ID": ID[:12]}),
        Entry(ENDED - 1, {"_TRANSPORT": "kernel", "MESSAGE": "oom-kill:"}),
    ]
    world = JournalHost(entries, script or answers(), is_root=root, hint=hint)
    collected = collect_container(world, "llm", read=read, since=since)
    assert world.running == 0
    return collected, world


def texts(collected: Collected) -> dict[str, list[str]]:
    return {source.name: [line.text for line in source.lines] for source in collected.sources}


def missed(collected: Collected) -> dict[str, tuple[str, str]]:
    return {unread.source: (unread.because, unread.command) for unread in collected.unread}


def test_state_log_events_daemon_and_kernel_are_read(read: Reader) -> None:
    collected, world = collect(read)
    found = texts(collected)
    assert list(found) == [
        "docker inspect llm",
        "log of llm",
        "docker events of llm",
        "journal of docker",
        "kernel log",
    ]
    assert collected.unit == "llm"
    assert not collected.unread
    assert len(found["journal of docker"]) == 1
    [events] = [argv for argv in world.asked if argv[:2] == ("docker", "events")]
    assert "--since=2026-11-29T16:06:40Z" in events
    assert "--until=2026-11-29T16:17:40Z" in events
    assert f"--filter=container={ID}" in events


def test_nothing_is_changed_and_nothing_followed(read: Reader) -> None:
    _, world = collect(read, since="2h")
    for argv in world.asked:
        words = set(argv) - {"sh", "-c", 'exec "$@" 2>&1'}
        assert not words & {"stop", "kill", "rm", "restart", "exec", "--follow", "-f", "start"}
    [logs] = [argv for argv in world.asked if "logs" in argv]
    assert "--since=2h" in logs


def test_a_container_that_never_ended_has_no_events_to_ask_for(read: Reader) -> None:
    script = answers(inspect=inspected(FinishedAt="0001-01-01T00:00:00Z"))
    collected, world = collect(read, script)
    assert not [argv for argv in world.asked if argv[:2] == ("docker", "events")]
    assert "kernel log" in texts(collected)


@pytest.mark.parametrize("refusal", [NO_DAEMON, FORBIDDEN])
def test_a_daemon_that_may_not_be_asked_is_a_gap_with_the_command(refusal: Completed, read: Reader) -> None:
    collected, _ = collect(read, answers(inspect=refusal), root=False)
    gaps = missed(collected)
    because, command = gaps["container state"]
    assert "daemon" in because
    assert command.endswith("docker inspect --type container -- llm")
    assert command.startswith("sudo ") == (refusal is FORBIDDEN)
    assert gaps["container log"][1].endswith("docker logs --timestamps llm")
    assert "kernel log" in texts(collected)


def test_a_container_that_nobody_knows_is_an_error_with_names_like_it(read: Reader) -> None:
    with pytest.raises(BadInputError) as caught:
        collect(read, answers(inspect=UNKNOWN))
    assert caught.value.next_step == "draftmark why docker:llm-server"


def test_podman_is_asked_where_docker_does_not_know_it(read: Reader) -> None:
    script = answers(inspect=UNKNOWN) | {
        r"^podman inspect": json.dumps(
            [{"Id": ID, "Name": "llm", "State": STATE | {"FinishedAt": "2026-11-29 16:16:40.9 +0000 UTC"}}]
        ),
        r"podman logs": "hello\n",
        r"^podman events": "",
    }
    found = texts(collect(read, script)[0])
    assert "podman inspect llm" in found
    assert found["log of llm"] == ["hello"]


def test_neither_docker_nor_podman_is_an_error(read: Reader) -> None:
    with pytest.raises(BadInputError, match="neither docker nor podman"):
        collect_container(ScriptedHost({}), "llm", read=read)


def test_a_log_that_the_driver_does_not_give_is_a_gap(read: Reader) -> None:
    refusal = Completed(1, b"Error response from daemon: configured logging driver does not support reading\n")
    collected, _ = collect(read, answers(logs=refusal))
    assert "log of llm" not in texts(collected)
    because, command = missed(collected)["container log"]
    assert "does not support reading" in because
    assert command.startswith("docker logs")


def test_an_empty_log_is_said_to_be_empty(read: Reader) -> None:
    assert missed(collect(read, answers(logs=""))[0])["container log"][0] == "it is empty"


def test_a_user_without_the_journal_is_told_of_the_daemons(read: Reader) -> None:
    hint = "Hint: You are currently not seeing messages from other users and the system.\n"
    gaps = missed(collect(read, root=False, hint=hint)[0])
    assert gaps["docker's journal"][1].startswith("sudo journalctl --since=@")
    assert "kernel log" in gaps


@pytest.mark.parametrize(
    "junk", ["", "[]", "[1]", "null", "{}", '[{"State": 5}]', '[{"Name": null, "Id": 3}]', "\x00{"]
)
def test_junk_instead_of_a_state_ends_in_words(junk: str, read: Reader) -> None:
    with suppress(BadInputError):
        collect(read, answers(inspect=junk))


def test_the_group_of_a_running_container_is_read(read: Reader) -> None:
    files: dict[str, bytes | OSError] = {
        "/proc/77/cgroup": f"0::/system.slice/docker-{ID}.scope\n".encode(),
        f"/sys/fs/cgroup/system.slice/docker-{ID}.scope/memory.events": b"oom 1\noom_kill 1\n",
    }
    world = JournalHost([], answers(inspect=inspected(Pid=77, Running=True)), files)
    assert "cgroup memory.events of llm" in texts(collect_container(world, "llm", read=read))
