"""What is true of each captured scenario, and so what a verdict on it may say.

Truth from the captures' own notes: how each was provoked. `unsettled` stands where the handed-over files do not
settle it; a set of causes stands where the taxonomy has no name of its own or two names are both right.
"""

from __future__ import annotations

from dataclasses import dataclass

UNSETTLED = "unsettled"


@dataclass(frozen=True)
class Expected:
    """Causes that are right, whether one has to be certain, and why.

    Attributes:
        sure: True when the lines prove it: it has to be certain. False when they cannot: it must not be.
    """

    causes: tuple[str, ...]
    why: str
    sure: bool | None = None


def proved(cause: str, why: str) -> Expected:
    """One cause, and its lines are there."""
    return Expected((cause,), why, sure=True)


def either(*causes: str, why: str) -> Expected:
    """No name fits exactly, or two do."""
    return Expected(causes, why)


def open_(*causes: str, why: str) -> Expected:
    """Not settled by these files: unsettled, or one of the causes without certainty."""
    return Expected((UNSETTLED, *causes), why, sure=False)


STOP = "stop-timeout-sigkill"
MEMCG = "the kernel names the unit's cgroup and its limit"
KILLER = "status 9 and nothing else: who sent it is in no line"
ASKED = "a stop or restart that was asked for and obeyed"

SYSTEMD: dict[str, Expected] = {
    "a-notify-protocol": either("config-invalid", UNSETTLED, why="exits 0 before READY=1: no name of its own"),
    "a-restart-timeout": proved(STOP, "the run before the restart was killed after TimeoutStopSec"),
    "a-start-timeout-notify": proved("model-load-timeout", "start operation timed out"),
    "a-stop-abort": either(STOP, why="the stop timed out; the signal was ABRT by TimeoutStopFailureMode"),
    "a-stop-timeout-exec": proved(STOP, "stop-sigterm timed out"),
    "a-stop-timeout-notify": proved(STOP, "stop-sigterm timed out"),
    "a-stop-timeout-sigkill-no": either(STOP, UNSETTLED, why="the stop timed out; SendSIGKILL=no, so no kill"),
    "a-stop-timeout-simple": proved(STOP, "stop-sigterm timed out"),
    "b-oom-child-continue": proved("cgroup-oom", MEMCG),
    "b-oom-child-kill": proved("cgroup-oom", MEMCG),
    "b-oom-child-stop": proved("cgroup-oom", MEMCG),
    "b-oom-during-load-notify": proved("cgroup-oom", MEMCG),
    "b-oom-global": proved("host-ram-oom-kernel", "CONSTRAINT_NONE, global_oom, the victim in the unit's cgroup"),
    "b-oom-main": proved("cgroup-oom", MEMCG),
    "b-oom-main-notify": proved("cgroup-oom", MEMCG),
    "b-oom-restart-always": proved("cgroup-oom", MEMCG),
    "b-oom-slice": proved("cgroup-oom", "the limit is the slice's, the victim the unit's"),
    "b-tasks-max": either("pids-limit", why="fork rejected by the pids controller"),
    "c-200-chdir": proved("config-invalid", "WorkingDirectory= is missing"),
    "c-203-exec-exec": proved("config-invalid", "the binary of ExecStart= is missing"),
    "c-203-exec-simple": proved("config-invalid", "the binary of ExecStart= is missing"),
    "c-217-user": proved("config-invalid", "User= does not exist"),
    "c-abort": either("segfault-or-abort", why="code=dumped, status=6/ABRT, nobody stopped it"),
    "c-after-cursor": either("healthy-exit", why="a oneshot that finished"),
    "c-auto-restart": open_("user-or-supervisor-sigkill", why=KILLER),
    "c-bad-setting": proved("config-invalid", "the unit file has a fatal error"),
    "c-dependency": either(UNSETTLED, "config-invalid", why="the first failure is another unit's"),
    "c-dropin-bad": either("healthy-running", "config-invalid", why="a bad drop-in was refused, the server ran on"),
    "c-dropin-changed": either("healthy-running", "healthy-exit", why=ASKED),
    "c-dropin-reload": either("healthy-running", "healthy-exit", why=ASKED),
    "c-envfile-missing": proved("config-invalid", "EnvironmentFile= is missing"),
    "c-execstartpre": either(UNSETTLED, "config-invalid", why="ExecStartPre= refused: no name of its own"),
    "c-exit1": either("model-load-error", why="the server says that it could not load the model"),
    "c-kill-term-outside": open_(
        "user-or-supervisor-sigterm", "healthy-exit", why="gone tidily, and nobody asked systemd"
    ),
    "c-kill9-child": either(
        UNSETTLED, "healthy-running", why="a child ended by 9, by whom is in no line; the unit is active"
    ),
    "c-kill9-outside": open_("user-or-supervisor-sigkill", why=KILLER),
    "c-kill9-systemctl": proved("user-or-supervisor-sigkill", "SIGKILL on client request"),
    "c-left-over": proved("user-or-supervisor-sigkill", "SIGKILL on client request"),
    "c-masked": either(UNSETTLED, "config-invalid", why="nothing ran and nothing was logged"),
    "c-not-found": either(UNSETTLED, "config-invalid", why="there is no such unit"),
    "c-port-in-use": proved("port-in-use", "errno 98 in the server's own words"),
    "c-restart-in-flight": either("healthy-running", "healthy-exit", why=ASKED),
    "c-restart-in-flight-cut": proved(STOP, "the run before the restart was killed after TimeoutStopSec"),
    "c-runtime-max": proved("user-or-supervisor-sigterm", "runtime time limit reached"),
    "c-segfault": either("segfault-or-abort", why="code=dumped, status=11/SEGV"),
    "c-segfault-nocore": either("segfault-or-abort", why="code=killed, status=11/SEGV"),
    "c-start-limit": either("model-load-error", "start-limit-hit", why="the first failure, or what it ended in"),
    "c-start-limit-clean": either("start-limit-hit", why="it kept exiting with 0"),
    "c-term-0": either("healthy-exit", why=ASKED),
    "c-term-143": either("healthy-exit", why="obeyed; only the exit status 143 makes systemd call it a failure"),
    "c-term-143-success": either("healthy-exit", why=ASKED),
    "c-term-default": either("healthy-exit", why=ASKED),
    "c-watchdog": proved("watchdog-timeout", "systemd's watchdog"),
}

BY_SYSTEMD = "systemd names the OOM killer; whether a limit or the host ran out is in the kernel log alone"
UNSEEN = "on cgroup v1 systemd does not see the kernel's kill"

# With the unit's journal alone: what needs the kernel log or the unit's properties is no longer proved.
JOURNAL_ALONE: dict[str, Expected] = {
    **{
        name: open_("cgroup-oom", "host-ram-oom-kernel", why=BY_SYSTEMD)
        for name in SYSTEMD
        if name.startswith("b-oom-")
    },
    "b-tasks-max": either("pids-limit", UNSETTLED, "host-ram-alloc-failure", why="errno 11 at a fork"),
    "c-dropin-bad": either("healthy-running", "config-invalid", UNSETTLED, why="the last thing said is a refusal"),
}
JOURNAL_ALONE_V1: dict[str, Expected] = {
    **JOURNAL_ALONE,
    **{name: open_(why=UNSEEN) for name in SYSTEMD if name.startswith("b-oom-")},
    **{
        name: open_("healthy-running", "user-or-supervisor-sigkill", why=UNSEEN)
        for name in SYSTEMD
        if name.startswith("b-oom-child-")
    },
}

STOPPED = "SIGTERM, a drain to zero, its own SIGKILL at the end"
SGLANG: dict[str, Expected] = {
    **{
        name: either("healthy-exit", why=STOPPED)
        for name in ("base", "ngram4", *(f"q35_k{k}_mf0.62" for k in (0, 1, 3, 5)))
    },
    "q35_k10_mf0.62": proved("cuda-oom-kv-pool-init", "no room for the pool; the exit by 9 is its own teardown"),
    "kill_child": open_("user-or-supervisor-sigkill", why="the scheduler ended by 9; by whom is in no line"),
    "bad_flag": proved("config-invalid", "an assertion in server_args, before anything was started"),
    "smollm2-metrics": either(
        "healthy-exit", "user-or-supervisor-sigterm", why="SIGTERM to the whole group: the child went first"
    ),
}

LOAD = "the file is not there or not whole"
LLAMA: dict[str, Expected] = {
    "bad-arg": proved("config-invalid", "invalid argument"),
    "bad-spec-type": proved("config-invalid", "an unknown value of --spec-type"),
    "removed-arg-draft-max": proved("config-invalid", "the argument has been removed"),
    "missing-model": proved("model-load-error", LOAD),
    "missing-draft": proved("model-load-error", LOAD),
    "not-a-gguf": proved("model-load-error", LOAD),
    "truncated-gguf": proved("model-load-error", LOAD),
    "port-in-use": proved("port-in-use", "couldn't bind"),
    "ctx-too-large": proved("host-ram-alloc-failure", "the KV cache's buffer was refused on the CPU"),
    "ulimit-oom": proved("host-ram-alloc-failure", "the KV cache's buffer was refused on the CPU"),
    "mineru-0.2.0-free-invalid-pointer": proved("segfault-or-abort", "glibc's abort, rc=134"),
    "skulk-sigill-on-avx2": proved("cpu-illegal-instruction", "rc=132 at model load, nothing else"),
    "normal-draft": either("healthy-exit", why="SIGTERM while idle, exit 0"),
    "ctx-4x-train": either("healthy-exit", why="started, served nothing, stopped with 0"),
    "sigkill-inflight": open_("user-or-supervisor-sigkill", "healthy-running", why="the log just ends"),
    "sigterm-inflight": Expected(
        ("healthy-exit", "user-or-supervisor-sigterm", "hang-not-crash", UNSETTLED),
        "a stop that hung until a second signal: no name of its own",
    ),
    "xllamacpp-ngram-simple-run": Expected(
        (UNSETTLED, "user-or-supervisor-sigterm", "healthy-running", "healthy-exit"),
        "rc=124: a time limit of timeout(1)",
    ),
}

VLLM: dict[str, Expected] = {
    "serve-ngram4": either("healthy-exit", why="SIGTERM obeyed; EngineDeadError is noise of the stop"),
    "serve-compile-killed-at-130s": either(
        "user-or-supervisor-sigterm", why="KeyboardInterrupt: terminated, before it was ready"
    ),
    "vllm-serve-cli-broken": proved("python-exception-startup", "PackageNotFoundError of its own package"),
}
