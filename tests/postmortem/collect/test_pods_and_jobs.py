"""Pods and batch jobs, with the outputs that kubectl, sacct and scontrol document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmark.errors import BadInputError
from draftmark.ports import Completed
from draftmark.postmortem.collect import Collected, collect_job, collect_pod
from draftmark.postmortem.collect.gathering import Reader
from draftmark.testing.hosts import JournalHost, ScriptedHost

NOT_FOUND = Completed(1, stderr='Error from server (NotFound): pods "llm-0" not found\n')
REFUSED = Completed(
    1,
    stderr='E1129 memcache.go:265] "Unhandled Error" err="…"\n'
    "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n",
)
EVENTS = json.dumps({"items": [{"reason": "Killing", "message": "Container vllm failed liveness probe"}]})
NO_EVENTS = json.dumps({"items": []})


def pod(*statuses: dict[str, Any]) -> str:
    return json.dumps(
        {
            "kind": "Pod",
            "metadata": {"name": "llm-0", "namespace": "prod"},
            "spec": {"nodeName": "node7"},
            "status": {"containerStatuses": list(statuses)},
        }
    )


def cluster(**more: str | Completed) -> dict[str, str | bytes | Completed]:
    vllm, side = {"name": "vllm", "restartCount": 2}, {"name": "side", "restartCount": 0}
    return {
        r"get pod ": more.get("pod", pod(vllm, side)),
        r"get events --field-selector": more.get("events", EVENTS),
        r"get events --all": more.get("node", NO_EVENTS),
        r"describe pod": "Name: llm-0\n",
        r"logs llm-0 .*--previous": more.get("previous", "[pod/llm-0/vllm] 2026-11-29T16:00:00Z before\n"),
        r"logs llm-0": "[pod/llm-0/vllm] 2026-11-29T16:00:00Z now\n",
        r"get pods": "pod/llm-1\npod/web-0\n",
    }


def texts(collected: Collected) -> dict[str, list[str]]:
    return {source.name: [line.text for line in source.lines] for source in collected.sources}


def missed(collected: Collected) -> dict[str, tuple[str, str]]:
    return {unread.source: (unread.because, unread.command) for unread in collected.unread}


def test_a_pod_is_read_with_both_runs_of_each_container(read: Reader) -> None:
    host = ScriptedHost(cluster())
    collected = collect_pod(host, "prod/llm-0", read=read)
    found = texts(collected)
    assert collected.unit == "prod/llm-0"
    assert found["log of prod/llm-0 vllm (run before)"][0].endswith("before")
    assert {"log of prod/llm-0 vllm", "log of prod/llm-0 side", "kubectl events of prod/llm-0"} <= set(found)
    assert "log of prod/llm-0 side (run before)" not in found
    assert all("--namespace=prod" in argv for argv in host.asked if "--all-namespaces" not in argv)
    gaps = missed(collected)
    assert "node7" in gaps["kernel log"][1]
    assert "kubectl debug node/node7" in gaps["kernel log"][1]
    assert "log of prod/llm-0 vllm (runs before)" in gaps
    for argv in host.asked:
        assert not set(argv) & {"delete", "exec", "debug", "apply", "-f", "--follow", "rollout"}


def test_on_the_pods_own_node_the_kernel_log_is_read(read: Reader) -> None:
    host = JournalHost([], {**cluster(), r"^dmesg": "[Sun Nov 29 16:16:39 2026] x\n"}, name="node7.example.org")
    collected = collect_pod(host, "llm-0", read=read)
    assert "kernel log" in texts(collected)
    assert "kernel log" not in missed(collected)


def test_a_lost_earlier_log_is_a_gap_and_the_rest_is_read(read: Reader) -> None:
    lost = Completed(1, b'Error from server (BadRequest): previous terminated container "vllm" not found\n')
    collected = collect_pod(ScriptedHost(cluster(previous=lost)), "llm-0", read=read)
    because, command = missed(collected)["log of prod/llm-0 vllm (run before)"]
    assert "previous terminated" in because
    assert "--previous" in command
    assert "log of prod/llm-0 vllm" in texts(collected)


def test_forgotten_events_are_a_gap(read: Reader) -> None:
    collected = collect_pod(ScriptedHost(cluster(events=NO_EVENTS)), "llm-0", read=read)
    assert "forgets them" in missed(collected)["pod events"][0]


def test_a_pod_that_is_gone_but_for_its_events_is_read_by_them(read: Reader) -> None:
    collected = collect_pod(ScriptedHost(cluster(pod=NOT_FOUND)), "llm-0", read=read)
    assert list(texts(collected)) == ["kubectl events of llm-0"]
    assert "pod state" in missed(collected)


def test_a_pod_that_nobody_knows_is_an_error_with_names_like_it(read: Reader) -> None:
    with pytest.raises(BadInputError) as caught:
        collect_pod(ScriptedHost(cluster(pod=NOT_FOUND, events=NO_EVENTS)), "prod/llm-0", read=read)
    assert caught.value.next_step == "draftmark why pod:prod/llm-1"


def test_a_cluster_that_cannot_be_reached_is_a_gap(read: Reader) -> None:
    gaps = missed(collect_pod(ScriptedHost({r"^kubectl": REFUSED}), "llm-0", read=read))
    assert "was refused" in gaps["pod state"][0]
    assert "--previous" in gaps["pod log"][1]
    assert "kernel log" in gaps


def test_no_kubectl_is_an_error(read: Reader) -> None:
    with pytest.raises(BadInputError, match="no kubectl"):
        collect_pod(ScriptedHost({}), "llm-0", read=read)


@pytest.mark.parametrize(
    "junk", ["", "[]", "null", '{"status": 3}', '{"status": {"containerStatuses": [3, {}]}}', "{"]
)
def test_junk_from_the_cluster_breaks_nothing(junk: str, read: Reader) -> None:
    collect_pod(ScriptedHost({**cluster(pod=junk or " "), r"get events": junk}), "llm-0", read=read)


HEADER = "JobID|JobName|State|ExitCode|DerivedExitCode|MaxRSS|ReqMem|Elapsed|Timelimit|Start|End|NodeList|Reason\n"
ROW = "12|llm|OUT_OF_MEMORY|0:125|0:0||64G|00:10:00|01:00:00|2026-11-29T16:00:00|2026-11-29T16:10:00|node7|None\n"
STEP = "12.batch|batch|OUT_OF_MEMORY|0:125||60G||00:10:00||2026-11-29T16:00:00|2026-11-29T16:10:00|node7|\n"
FORGOTTEN = Completed(1, stderr="slurm_load_jobs error: Invalid job id specified\n")
SHOWN = """JobId=12 JobName=llm
   WorkDir=/home/u
   StdErr=/home/u/err.log
   StdIn=/dev/null
   StdOut=/home/u/out.log
"""


def test_a_job_is_read_with_its_output_files(read: Reader) -> None:
    host = ScriptedHost(
        {r"--format=JobID": HEADER + ROW + STEP, r"^scontrol": SHOWN, r"^cat .*out.log": "hello\n"},
        {"/home/u/out.log": b"hello\n", "/home/u/err.log": PermissionError(13, "Permission denied")},
        is_root=False,
    )
    collected = collect_job(host, "12", read=read)
    assert texts(collected)["/home/u/out.log"] == ["hello"]
    gaps = missed(collected)
    assert gaps["/home/u/err.log"] == ("Permission denied", "sudo less /home/u/err.log")
    assert gaps["kernel log"][1] == "sudo journalctl -k --since='2026-11-29 16:00:00 UTC'   # on node7"


def test_a_forgotten_jobs_files_are_found_by_the_accounting(read: Reader) -> None:
    cases: tuple[tuple[dict[str, str | Completed], str], ...] = (
        ({r"StdOut": "/scratch/o.txt|/scratch/o.txt\n"}, "/scratch/o.txt"),
        ({r"StdOut": Completed(1, stderr="Invalid field"), r"WorkDir": "/home/u\n"}, "/home/u/slurm-12.out"),
    )
    for script, path in cases:
        answers: dict[str, str | bytes | Completed] = {
            r"--format=JobID": HEADER + ROW,
            r"^scontrol": FORGOTTEN,
            **script,
            r"^cat": "x\n",
        }
        assert path in texts(collect_job(ScriptedHost(answers, {path: b"x"}), "12", read=read))


def test_without_accounting_the_controller_is_enough(read: Reader) -> None:
    off = Completed(1, stderr="Slurm accounting storage is disabled\n")
    collected = collect_job(ScriptedHost({r"^sacct": off, r"^scontrol": SHOWN}), "12", read=read)
    assert "scontrol show job 12" in texts(collected)
    assert "disabled" in missed(collected)["Slurm accounting"][0]
    assert "# on the job's nodes" in missed(collected)["kernel log"][1]


def test_a_job_that_nobody_knows_is_an_error(read: Reader) -> None:
    with pytest.raises(BadInputError, match="no job 12"):
        collect_job(ScriptedHost({r"^sacct": HEADER, r"^scontrol": FORGOTTEN}), "12", read=read)


def test_no_slurm_is_an_error(read: Reader) -> None:
    with pytest.raises(BadInputError, match="neither sacct nor scontrol"):
        collect_job(ScriptedHost({}), "12", read=read)


def test_on_the_jobs_own_node_the_kernel_log_is_read(read: Reader) -> None:
    answers: dict[str, str | bytes | Completed] = {
        r"^sacct": HEADER + ROW,
        r"^scontrol": FORGOTTEN,
        r"^dmesg": "[Sun Nov 29 16:16:39 2026] x\n",
    }
    assert "kernel log" in texts(collect_job(JournalHost([], answers, name="node7"), "12", read=read))
