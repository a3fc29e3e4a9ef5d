"""Why this verb exists.

An SGLang server with EAGLE is restarted while sixteen requests are being answered. It drains, as it should. Ninety
seconds later it is gone, the unit has failed with status 9/KILL, and everybody says "out of memory" and lowers the
memory fraction. It was systemd, which had waited for TimeoutStopSec and lost patience.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from draftmark.postmortem.model import Verdict

from .corpus import Files, is_memory, judged

STOPPED = datetime(2026, 7, 14, 22, 5, 9, tzinfo=UTC)
PATIENCE_S = 90


def clock(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (STOPPED + timedelta(seconds=seconds)).strftime(form)


def application_log() -> bytes:
    """Start-up, two minutes of traffic, the signal, and sixteen requests that are still being answered."""
    ids = ", ".join(f"'{n:032x}'" for n in range(0xA11CE, 0xA11CE + 16))
    lines = [
        f"[{clock(-400)}] server_args=ServerArgs(model_path='/srv/models/qwen', port=30000, tp_size=2, "
        "mem_fraction_static=0.85, speculative_algorithm='EAGLE', speculative_num_steps=5, "
        "speculative_eagle_topk=1, speculative_num_draft_tokens=6)",
        *(f"[{clock(-380)} TP{rank}] Load weight begin. avail mem=78.31 GB" for rank in (0, 1)),
        *(f"[{clock(-340)} TP{rank}] Memory pool end. avail mem=9.87 GB" for rank in (0, 1)),
        f"[{clock(-310)}] INFO:     Application startup complete.",
        f"[{clock(-302)}] The server is fired up and ready to roll!",
    ]
    for second in range(-120, 0, 4):
        running = 12 + second % 5
        lines.append(
            f"[{clock(second)} TP0] Decode batch, #running-req: {running}, #token: {90000 + 70 * second}, "
            f"token usage: 0.41, accept len: 3.62, accept rate: 0.60, cuda graph: True, "
            f"gen throughput (token/s): 1873.20, #queue-req: 0, "
        )
    lines.append(f"[{clock(0)}] SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    for second in range(0, PATIENCE_S - 2, 5):
        lines.append(
            f"[{clock(second)}] Gracefully exiting... Remaining number of requests 16. "
            f"Remaining requests remaining_rids=[{ids}]."
        )
        lines.append(
            f"[{clock(second + 2)} TP0] Decode batch, #running-req: 16, #token: {95000 + 300 * second}, "
            f"token usage: 0.44, accept len: 3.58, accept rate: 0.60, cuda graph: True, "
            f"gen throughput (token/s): 2011.70, #queue-req: 0, "
        )
    return "".join(f"{line}\n" for line in lines).encode()


def journal() -> bytes:
    """systemd's own lines of the unit, as `journalctl -o short-iso` prints them."""

    def line(seconds: float, text: str) -> str:
        return f"{clock(seconds, '%Y-%m-%dT%H:%M:%S')}+0000 gpu1 systemd[1]: {text}\n"

    unit = "sglang-qwen.service"
    return "".join(
        [
            line(-405, f"Started {unit} - SGLang, Qwen."),
            line(0, f"Stopping {unit} - SGLang, Qwen..."),
            line(PATIENCE_S, f"{unit}: State 'stop-sigterm' timed out. Killing."),
            line(PATIENCE_S, f"{unit}: Killing process 21877 (python3) with signal SIGKILL."),
            line(PATIENCE_S, f"{unit}: Killing process 22106 (sglang::schedul) with signal SIGKILL."),
            line(PATIENCE_S, f"{unit}: Killing process 22107 (sglang::schedul) with signal SIGKILL."),
            line(PATIENCE_S + 1, f"{unit}: Main process exited, code=killed, status=9/KILL"),
            line(PATIENCE_S + 1, f"{unit}: Failed with result 'timeout'."),
            line(PATIENCE_S + 1, f"Stopped {unit} - SGLang, Qwen."),
            line(
                PATIENCE_S + 1,
                f"{unit}: Consumed 3h 12min 4.110s CPU time, 96.4G memory peak, 0B memory swap peak.",
            ),
        ]
    ).encode()


def kernel_log() -> bytes:
    """The kernel's log of the hour: a network card, and nothing about memory."""
    rows = [
        (-2400, "mlx5_core 0000:a3:00.0 ens1f0: Link up"),
        (-600, 'audit: type=1400 apparmor="STATUS" operation="profile_replace" name="snap.lxd"'),
        (PATIENCE_S + 240, "mlx5_core 0000:a3:00.0 ens1f0: Link down"),
    ]
    return "".join(f"{clock(at, '%Y-%m-%dT%H:%M:%S')}+0000 gpu1 kernel: {text}\n" for at, text in rows).encode()


def why(**files: bytes) -> Verdict:
    from draftmark.cli.why import examine_paths

    named: Files = {f"{name}.log": content for name, content in files.items()}
    return judged(examine_paths, named)


@pytest.fixture(scope="module")
def by_the_log_alone() -> Verdict:
    return why(server=application_log())


@pytest.fixture(scope="module")
def with_the_journal() -> Verdict:
    return why(server=application_log(), journal=journal())


@pytest.fixture(scope="module")
def with_the_kernel_log_too() -> Verdict:
    return why(server=application_log(), journal=journal(), kernel=kernel_log())


def test_the_log_alone_settles_nothing(by_the_log_alone: Verdict) -> None:
    """It was draining sixteen requests, and then there is nothing."""
    assert by_the_log_alone.cause == "unsettled"
    assert by_the_log_alone.confidence == "unsettled"


def test_the_log_alone_claims_no_memory(by_the_log_alone: Verdict) -> None:
    """No memory cause, and no line that only has the word memory in it is shown as evidence."""
    assert not is_memory(by_the_log_alone.cause)
    assert not [e.text for e in by_the_log_alone.evidence if "mem" in e.text.lower() or "oom" in e.text.lower()]
    assert "memory" not in by_the_log_alone.summary.lower()


def test_the_log_alone_says_what_would_settle_it(by_the_log_alone: Verdict) -> None:
    unread = {u.source: u for u in by_the_log_alone.not_examined}
    assert "unit journal" in unread
    assert "kernel log" in unread
    assert "journalctl" in unread["unit journal"].command
    assert "journalctl -k" in unread["kernel log"].command or "dmesg" in unread["kernel log"].command
    assert "stop-timeout-sigkill" in {c.cause for c in by_the_log_alone.candidates}


def test_with_the_journal_it_is_a_stop_that_took_too_long(with_the_journal: Verdict) -> None:
    assert with_the_journal.cause == "stop-timeout-sigkill"
    assert with_the_journal.confidence == "certain"
    assert with_the_journal.phase == "shutdown"
    assert with_the_journal.engine == "sglang"
    assert with_the_journal.service == "sglang-qwen.service"


def test_both_lines_of_systemd_are_cited(with_the_journal: Verdict) -> None:
    lines = journal().decode().splitlines()
    cited = {(e.file.rsplit("/", 1)[-1], e.line) for e in with_the_journal.evidence}
    assert ("journal.log", 1 + next(n for n, line in enumerate(lines) if "timed out. Killing" in line)) in cited
    assert ("journal.log", 1 + next(n for n, line in enumerate(lines) if "result 'timeout'" in line)) in cited


def test_the_sentence_has_the_sixteen_requests_and_the_patience(with_the_journal: Verdict) -> None:
    assert "16 requests" in with_the_journal.summary
    assert f"{PATIENCE_S} s" in with_the_journal.summary or "1 min 30 s" in with_the_journal.summary
    assert "TimeoutStopSec" in " ".join([with_the_journal.summary, *with_the_journal.advice])


def test_without_the_kernel_log_it_is_named_as_not_read(with_the_journal: Verdict) -> None:
    assert "kernel log" in {u.source for u in with_the_journal.not_examined}
    assert "memory" not in with_the_journal.summary.lower(), "nothing that was read says how much memory there was"
    assert "unit journal" not in {u.source for u in with_the_journal.not_examined}


def test_status_9_is_a_consequence_and_not_the_cause(with_the_journal: Verdict) -> None:
    followed = [c.evidence for c in with_the_journal.consequences]
    told = [m.evidence for m in with_the_journal.timeline if m.role != "cause"]
    assert any("status=9/KILL" in line.text for line in (*followed, *told))


def test_with_the_kernel_log_out_of_memory_is_ruled_out_by_it(with_the_kernel_log_too: Verdict) -> None:
    verdict = with_the_kernel_log_too
    assert (verdict.cause, verdict.confidence) == ("stop-timeout-sigkill", "certain")
    ruled_out = {r.cause: r.because for r in verdict.ruled_out}
    assert "host-ram-oom-kernel" in ruled_out
    assert "kernel log" in ruled_out["host-ram-oom-kernel"]
    assert "kernel log" not in {u.source for u in verdict.not_examined}


def test_the_advice_is_about_the_stop_and_not_about_memory(with_the_kernel_log_too: Verdict) -> None:
    advice = " ".join(with_the_kernel_log_too.advice)
    assert "TimeoutStopSec" in advice
    assert "mem-fraction" not in advice
