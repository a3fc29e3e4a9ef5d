"""Lines that mean nothing for a verdict: a server's normal traffic, and other services on the same host."""

from __future__ import annotations

import random
import re
from datetime import datetime
from functools import lru_cache

from .carriers import Entry

READY = re.compile(
    r"The server is fired up and ready to roll|server is listening on|all slots are idle|"
    r"main: server is listening|Uvicorn running on|Connected$"
)
STARTED = re.compile(r"Application startup complete")
STARTING = re.compile(
    r"server_args=|API server version|Automatically detected platform|log_info: verbosity|build: \d|"
    r"Init torch distributed|Started server process|ggml_cuda_init|llama_model_loader|Load weight begin"
)
WORKING = re.compile(r"(?:Decode|Prefill) batch|throughput: [\d.]+ tokens/s|\"(?:POST|GET) /\S+ HTTP|: Success$")


@lru_cache(maxsize=4096)
def stamp(at: datetime, form: str) -> str:
    """A time as text; many lines share one."""
    return at.strftime(form)


def engine_of(text: str) -> str:
    """Whose format a log is in."""
    if re.search(r"(?:Decode|Prefill) batch|server_args=|sglang", text):
        return "sglang"
    if re.search(r"APIServer|EngineCore|vLLM|vllm", text):
        return "vllm"
    if re.search(r"\bslot |\bsrv  |llama", text):
        return "llama.cpp"
    return "uvicorn"


def normal(text: str, at: list[datetime], rng: random.Random) -> list[str]:
    """Traffic in the format of the engine that wrote `text`, one line for each time."""
    engine = engine_of(text)
    rank = " TP0" if " TP0]" in text else ""
    caller = "(APIServer pid=1) " if "(APIServer" in text else ""
    relative = re.search(r"^\d+\.\d\d\.\d{3}\.\d{3} I", text, re.MULTILINE)
    lines = []
    for when in at:
        access = f'INFO:     10.20.3.{rng.randrange(2, 99)}:{rng.randrange(20000, 60000)} - "POST '
        access += '/v1/chat/completions HTTP/1.1" 200 OK'
        kind = rng.random()
        if engine == "sglang":
            clocked = stamp(when, "%Y-%m-%d %H:%M:%S")
            lines.append(f"[{clocked}] {access}" if kind < 0.3 else f"[{clocked}{rank}] {_batch(rng)}")
        elif engine == "vllm":
            metrics = f"INFO {stamp(when, '%m-%d %H:%M:%S')} {_engine(rng)}" if kind > 0.7 else ""
            lines.append(caller + (metrics or access))
        elif engine == "llama.cpp":
            lines.append(f"{relative[0]} {_slot(rng)}" if relative else _slot(rng))
        else:
            lines.append(access)
    return lines


def _batch(rng: random.Random) -> str:
    usage = rng.uniform(0.05, 0.6)
    if rng.random() < 0.3:
        return (
            f"Prefill batch, #new-seq: {rng.randrange(1, 4)}, #new-token: {rng.randrange(20, 4000)}, "
            f"#cached-token: {rng.randrange(3000)}, token usage: {usage:.2f}, "
            f"#running-req: {rng.randrange(1, 20)}, #queue-req: 0, "
        )
    return (
        f"Decode batch, #running-req: {rng.randrange(1, 20)}, #token: {int(usage * 270000)}, "
        f"token usage: {usage:.2f}, cuda graph: True, "
        f"gen throughput (token/s): {rng.uniform(100, 1500):.2f}, #queue-req: 0, "
    )


def _engine(rng: random.Random) -> str:
    return (
        f"[loggers.py:127] Engine 000: Avg prompt throughput: {rng.uniform(20, 900):.1f} tokens/s, Avg generation "
        f"throughput: {rng.uniform(20, 900):.1f} tokens/s, Running: {rng.randrange(1, 9)} reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {rng.uniform(1, 40):.1f}%, Prefix cache hit rate: {rng.uniform(1, 60):.1f}%"
    )


def _slot(rng: random.Random) -> str:
    tokens, spent = rng.randrange(8, 400), rng.uniform(100, 4000)
    return (
        f"slot print_timing: id {rng.randrange(4):2} | task {rng.randrange(9999)} |        eval time = "
        f"{spent:10.2f} ms / {tokens:5} tokens ({spent / tokens:8.2f} ms per token, "
        f"{1000 * tokens / spent:8.2f} tokens per second)"
    )


def web(at: list[datetime], rng: random.Random) -> list[str]:
    """Another service's access log."""
    return [
        f"10.20.9.{rng.randrange(2, 99)} - - [{stamp(t, '%d/%b/%Y:%H:%M:%S')} +0000] "
        f'"GET /assets/{rng.randrange(999)}.js HTTP/1.1" 200 {rng.randrange(100, 90000)} "-" "Mozilla/5.0"'
        for t in at
    ]


def chores(at: list[datetime], host: str, rng: random.Random) -> list[Entry]:
    """What else a host's journal holds."""
    rows = (
        ("CRON", "(root) CMD (test -x /usr/sbin/anacron || run-parts /etc/cron.hourly)", "cron.service"),
        ("sshd", "Accepted publickey for deploy from 10.20.9.4 port 50022 ssh2", "ssh.service"),
        ("systemd", "Started Session 41 of User deploy.", "init.scope"),
        ("systemd", "logrotate.service: Deactivated successfully.", "logrotate.service"),
    )
    result = []
    for when in at:
        ident, text, unit = rng.choice(rows)
        pid = 1 if ident == "systemd" else rng.randrange(2000, 60000)
        result.append(Entry(when, host, ident, pid, text, unit))
    return result


NEIGHBOURS = (
    (
        "nginx",
        '2026/01/01 00:00:00 [error] 29#29: *71 connect() failed (111: Connection refused) to upstream "api-2"',
    ),
    ("nginx", '10.20.9.7 - - "GET /assets/app.js HTTP/1.1" 200 5123'),
    ("postgres", "2026-01-01 00:00:00.123 UTC [77] ERROR:  deadlock detected"),
    ("postgres", '2026-01-01 00:00:00.131 UTC [81] FATAL:  password authentication failed for user "report"'),
    (
        "node_exporter",
        'ts=2026-01-01T00:00:00.000Z level=error caller=collector.go:169 msg="collector failed" name=nvme',
    ),
    ("cron", "(root) CMD (/usr/local/bin/backup --quiet)"),
)


def neighbour(at: datetime, host: str, rng: random.Random) -> Entry:
    """One line of a service that is none of ours, with an error of its own now and then."""
    ident, text = rng.choice(NEIGHBOURS)
    text = text.replace("2026-01-01", f"{at:%Y-%m-%d}").replace("2026/01/01", f"{at:%Y/%m/%d}")
    return Entry(
        at, host, ident, rng.randrange(600, 900), text.replace("00:00:00", f"{at:%H:%M:%S}"), f"{ident}.service"
    )


# How another unit ends, in systemd's words.
ENDS: dict[str, tuple[str, ...]] = {
    "crash": (
        "{u}: Main process exited, code=exited, status=1/FAILURE",
        "{u}: Failed with result 'exit-code'.",
        "{u}: Scheduled restart job, restart counter is at 2.",
        "Started {u} - Report builder.",
    ),
    "killed": (
        "{u}: Main process exited, code=killed, status=9/KILL",
        "{u}: Failed with result 'signal'.",
    ),
    "stop timeout": (
        "{u}: State 'stop-sigterm' timed out. Killing.",
        "{u}: Killing process 733 (reportd) with signal SIGKILL.",
        "{u}: Main process exited, code=killed, status=9/KILL",
        "{u}: Failed with result 'timeout'.",
        "Stopped {u} - Report builder.",
    ),
    "memory": (
        "{u}: A process of this unit has been killed by the OOM killer.",
        "{u}: Main process exited, code=killed, status=9/KILL",
        "{u}: Failed with result 'oom-kill'.",
    ),
}


def neighbour_ends(how: str, at: datetime, host: str) -> list[Entry]:
    """Another unit's death, as systemd tells it."""
    unit = "reportd.service"
    return [Entry(at, host, "systemd", 1, line.format(u=unit), unit) for line in ENDS[how]]
