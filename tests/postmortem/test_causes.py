"""The taxonomy is whole, and its advice is right for each cause and destroys nothing."""

from __future__ import annotations

import re

import pytest

from draftmark.cli.compose_why import tables
from draftmark.postmortem.tables import Cause

from .corpus import SHARED, is_memory

CAUSES = tables().causes
FACTS = SHARED / "facts" / "crash-taxonomy.md"
TAXONOMY = frozenset(
    re.findall(
        r"[a-z0-9-]+",
        """
    python-exception-scheduler illegal-memory-access cuda-oom-runtime-activation host-ram-oom-kernel
    device-side-assert cuda-oom-kv-pool-init segfault-or-abort config-invalid gpu-hardware-xid kv-accounting-leak
    cuda-oom-cuda-graph-capture unsupported-model-feature model-load-error peer-rank-died cgroup-oom hang-not-crash
    container-oomkilled watchdog-timeout nccl-timeout nccl-init-error stop-timeout-sigkill client-side-failure
    missing-shared-library cuda-oom-weights-load shared-memory-too-small liveness-probe-kill kv-pool-exhausted
    healthy-running python-exception-startup host-ram-alloc-failure healthy-exit port-in-use start-limit-hit
    fd-limit engine-rpc-timeout driver-cuda-mismatch systemd-oomd k8s-eviction user-or-supervisor-sigkill disk-full
    illegal-instruction-cuda workspace-too-small model-load-timeout sigbus-mmap-weights host-ram-exhaustion-stall
    gpu-memory-busy-at-start user-or-supervisor-sigterm ray-memory-monitor-kill earlyoom cpu-illegal-instruction
    mpi-init-error
    """,
    )
)
"""The names that labelled cases use."""

DESTRUCTIVE = (
    r"\brm\s+-|\brm\s+/|\bmkfs|\bdd\s+(?:if|of)=|\bshred\b|\btruncate\s+-",
    r"(?:^|[\s;&|`(:])(?<!-S )(?<!-sc )(?:p?kill|killall)\s+[-%$\w{]",
    r"\bsystemctl\s+(?:--\S+\s+)*(?:stop|restart|kill|isolate|reboot|poweroff|halt|disable|mask)\b",
    r"\b(?:docker|podman)\s+(?:container\s+|system\s+)?(?:rm|kill|stop|restart|prune)\b",
    r"\bkubectl\s+(?:delete|drain|cordon|scale|rollout\s+restart)\b",
    r"\bscancel\b|\bray\s+stop\b|\bnvidia-smi\s+(?:.*\s)?(?:-r\b|--gpu-reset|-mig)",
    r"\b(?:sudo\s+)?(?:reboot|shutdown|poweroff|init\s+6)\s+(?:-|now)|\bswapoff\b|\bdrop_caches\b|\bmodprobe\s+-r|\brmmod\b",
)
SHARE = r"(?:memory share|share|--mem-fraction-static|--gpu-memory-utilization|mem_fraction)"


def sayings(cause: Cause) -> list[str]:
    return [cause.settle, *cause.advice]


def commanded(text: str) -> list[str]:
    return [match[0] for pattern in DESTRUCTIVE for match in re.finditer(pattern, text)]


every = pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.name)


def test_the_taxonomy_is_complete() -> None:
    assert set(CAUSES) >= TAXONOMY
    assert "unsettled" not in CAUSES, "it is the absence of a cause"


@pytest.mark.skipif(not FACTS.exists(), reason="no facts at ../shared/facts")
def test_the_list_is_that_of_the_facts() -> None:
    section = FACTS.read_text().partition("## Taxonomy")[2].partition("\n## ")[0]
    names = re.findall(r"^\| ([a-z0-9-]+) \|", section, re.MULTILINE)
    assert set(names) - {"cause"} == TAXONOMY


@every
def test_a_cause_is_told_in_plain_words(cause: Cause) -> None:
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)+|earlyoom", cause.name)
    assert cause.title
    assert not cause.title.endswith(".")
    assert "\n" not in cause.title
    assert cause.family
    assert cause.proves
    assert cause.against
    assert cause.settle


@every
def test_what_it_is_confused_with_exists(cause: Cause) -> None:
    assert cause.confused_with
    assert set(cause.confused_with) <= set(CAUSES) - {cause.name}
    assert len(set(cause.confused_with)) == len(cause.confused_with)


@every
def test_there_is_advice_unless_nothing_died(cause: Cause) -> None:
    assert cause.advice or cause.name.startswith("healthy-")
    assert all(len(text) > 20 for text in cause.advice)


@every
def test_nothing_that_it_says_destroys_or_restarts_anything(cause: Cause) -> None:
    assert not [found for text in sayings(cause) for found in commanded(text)]


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf ~/.cache/vllm",
        "sudo systemctl restart {unit}",
        "systemctl --user stop llm",
        "kill -9 4471",
        "sudo pkill -f vllm",
        "docker rm -f {container}",
        "docker system prune",
        "kubectl delete pod {pod}",
        "nvidia-smi --gpu-reset -i 0",
        "sudo reboot now",
        "mkfs.ext4 /dev/sdb",
        "dd if=/dev/zero of=/swap",
    ],
)
def test_such_a_command_would_be_noticed(text: str) -> None:
    assert commanded(f"Then do it: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "sudo ausearch -sc kill -i; journalctl _COMM=sudo",
        "auditctl -a always,exit -F arch=b64 -S kill -F a1=9",
        "the kernel killed it, and Docker stopped waiting",
        "systemctl reset-failed {unit}",
        "grep -nE 'oom-kill:|Killed process'",
    ],
)
def test_looking_is_allowed(text: str) -> None:
    assert not commanded(text)


@every
def test_raising_and_lowering_the_share_are_never_both_advised(cause: Cause) -> None:
    """The two out-of-memory families of a GPU have opposite remedies."""
    advice = " ".join(cause.advice)
    raised = re.search(rf"\b(?:raise|RAISE|increase|higher)\b[^.;,]*?{SHARE}", advice)
    lowered = re.search(rf"\b(?:lower|LOWER|reduce|decrease)\b[^.;,]*?{SHARE}", advice)
    assert not (raised and lowered)


def test_the_two_out_of_memory_remedies_are_opposite() -> None:
    assert "RAISE the share" in " ".join(CAUSES["cuda-oom-kv-pool-init"].advice)
    for name in ("cuda-oom-runtime-activation", "cuda-oom-cuda-graph-capture"):
        advice = " ".join(CAUSES[name].advice)
        assert "LOWER the share" in advice
        assert "RAISE" not in advice


@every
def test_placeholders_are_those_that_are_filled_in(cause: Cause) -> None:
    """Docker's own templates have doubled braces; a single word in braces is ours."""
    names = {name for text in sayings(cause) for name in re.findall(r"(?<!\{)\{(\w+)\}(?!\})", text)}
    assert names <= {"unit", "pid", "pod", "container"}


@every
def test_memory_is_what_the_scoring_calls_memory(cause: Cause) -> None:
    """To name one of these falsely is the worst miss, so both lists have to agree."""
    assert cause.memory == is_memory(cause.name)


def test_unknown_causes_are_not_of_memory() -> None:
    assert not tables().memory("unsettled")
    assert tables().memory("cgroup-oom")


def test_every_cause_can_be_named() -> None:
    """A cause without a sign or a rule that names it would be a promise that cannot be kept."""
    by_rules = {
        *("python-exception-scheduler", "python-exception-startup", "hang-not-crash", "healthy-exit"),
        *("healthy-running", "user-or-supervisor-sigkill", "start-limit-hit", "sigbus-mmap-weights"),
        *("cuda-oom-runtime-activation", "cuda-oom-cuda-graph-capture", "host-ram-exhaustion-stall"),
    }
    assert set(CAUSES) - {sign.cause for sign in tables().signs} <= by_rules
