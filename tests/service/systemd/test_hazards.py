"""Hazards of a unit: each is shown by a line, and a plain unit has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.systemd.dropin import render
from draftmark.service.systemd.hazards import DrainFacts, GpuProcess, Hazard, HostState, Severity, hazards
from draftmark.service.systemd.kept import mark
from draftmark.service.systemd.manager import Properties
from draftmark.service.systemd.triggers import Trigger
from draftmark.service.systemd.unitfile import UnitFile

FRAGMENT = "/etc/systemd/system/llm.service"
PLAIN = "[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/llama-server -m x.gguf\n"
SOURCE = "the engine's notes"
DRAIN = DrainFacts(drains=True, worst_s=25, source=SOURCE)
QUIET = HostState(
    swap_total="SwapTotal:       8388604 kB",
    journald=(UnitFile("/etc/systemd/journald.conf", "[Journal]\nRateLimitBurst=0\n"),),
    journal_folder=True,
    unit_pids=frozenset({77}),
)
PROPERTIES = {
    "TimeoutStopUSec": "1min 30s",
    "KillMode": "control-group",
    "KillSignal": "15",
    "SendSIGKILL": "yes",
    "TimeoutStopFailureMode": "terminate",
    "Restart": "no",
    "StartLimitIntervalUSec": "10s",
    "StartLimitBurst": "5",
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "ActiveState": "active",
    "Type": "exec",
    "TimeoutStartUSec": "1min 30s",
    "RuntimeMaxUSec": "infinity",
    "WatchdogUSec": "0",
    "MemoryMax": "infinity",
    "MemoryHigh": "infinity",
    "MemoryCurrent": "1000000",
    "MemoryPeak": "[not set]",
    "OOMPolicy": "stop",
    "StandardOutput": "journal",
    "StandardError": "inherit",
    "FailureAction": "none",
    "NeedDaemonReload": "no",
    "Transient": "no",
    "RequiredBy": "multi-user.target",
    "SuccessExitStatus": "",
}


def look(
    text: str = "",
    properties: dict[str, str] | None = None,
    *,
    host: HostState = QUIET,
    drain: DrainFacts = DRAIN,
    drop_ins: dict[str, str] | None = None,
) -> dict[str, Hazard]:
    files = [UnitFile(FRAGMENT, PLAIN + text)]
    files += [UnitFile(f"{FRAGMENT}.d/{name}", content) for name, content in (drop_ins or {}).items()]
    return {each.code: each for each in hazards(PROPERTIES | (properties or {}), files, host, drain)}


def test_a_plain_unit_has_none() -> None:
    assert look() == {}


def test_nothing_that_was_not_told_is_a_hazard() -> None:
    assert hazards({}, [], HostState(), DRAIN) == []


CASES = [
    ("TimeoutStopSec=20\n", {"TimeoutStopUSec": "20s"}, "stop-timeout-short", "llm.service:5: TimeoutStopSec=20"),
    ("", {"TimeoutStopUSec": "infinity"}, "stop-timeout-infinite", "TimeoutStopUSec=infinity"),
    (
        "KillMode=process\n",
        {"KillMode": "process"},
        "kill-mode-leaves-processes",
        "llm.service:5: KillMode=process",
    ),
    ("KillMode=none\n", {"KillMode": "none"}, "kill-mode-leaves-processes", "llm.service:5: KillMode=none"),
    ("SendSIGKILL=no\n", {"SendSIGKILL": "no"}, "no-sigkill", ":5: SendSIGKILL=no"),
    ("KillSignal=SIGKILL\n", {"KillSignal": "9"}, "kill-signal-kills", ":5: KillSignal=SIGKILL (KillSignal=9)"),
    ("KillSignal=SIGINT\n", {"KillSignal": "2"}, "kill-signal", ":5: KillSignal=SIGINT"),
    ("", {"TimeoutStopFailureMode": "abort"}, "stop-abort", "TimeoutStopFailureMode=abort"),
    ("ExecStop=/bin/kill -9 $MAINPID\n", {}, "exec-stop-kills", ":5: ExecStop=/bin/kill -9 $MAINPID"),
    ("ExecStop=/usr/bin/pkill --signal KILL x\n", {}, "exec-stop-kills", ":5: ExecStop="),
    ("ExecStop=/usr/bin/fuser -k 8080/tcp\n", {}, "exec-stop-kills", ":5: ExecStop="),
    ("ExecStop=/usr/bin/docker kill llm\n", {}, "exec-stop-kills", ":5: ExecStop="),
    ("ExecStop=/usr/bin/curl http://x/drain\n", {}, "exec-stop", ":5: ExecStop=/usr/bin/curl"),
    ("ExecStop=/bin/kill -TERM $MAINPID\n", {}, "exec-stop", ":5: ExecStop=/bin/kill -TERM"),
    ("ExecStartPre=/bin/rm -rf /tmp/x\n", {}, "command-around", ":5: ExecStartPre="),
    (
        "Restart=always\n",
        {"Restart": "always", "NRestarts": "7"},
        "restart-hides-deaths",
        "Restart=always; NRestarts=7",
    ),
    ("", {"StartLimitIntervalUSec": "1h", "StartLimitBurst": "3"}, "start-limit", "StartLimitIntervalUSec=1h"),
    ("RemainAfterExit=yes\n", {"RemainAfterExit": "yes"}, "remain-after-exit", ":5: RemainAfterExit=yes"),
    ("[Unit]\nFailureAction=reboot\n", {"FailureAction": "reboot"}, "host-action", ":6: FailureAction=reboot"),
    (
        "",
        {"OnFailure": "draftmark-watch@llm.service.service page@llm.service"},
        "on-failure",
        "OnFailure=page@llm.service",
    ),
    ("", {"BoundBy": "proxy.service multi-user.target"}, "stop-stops-others", "BoundBy=proxy.service"),
    (
        "[Unit]\nPartOf=stack.service\n",
        {"PartOf": "stack.service"},
        "stopped-with-others",
        ":6: PartOf=stack.service",
    ),
    ("", {"LoadState": "masked", "UnitFileState": "masked"}, "masked", "UnitFileState=masked"),
    ("", {"Transient": "yes"}, "transient", "Transient=yes"),
    ("", {"NeedDaemonReload": "yes"}, "needs-reload", "NeedDaemonReload=yes"),
    ("PrivateNetwork=yes\n", {"PrivateNetwork": "yes"}, "private-network", ":5: PrivateNetwork=yes"),
    ("Type=oneshot\n", {"Type": "oneshot"}, "oneshot", ":5: Type=oneshot"),
    ("", {"RefuseManualStop": "yes"}, "refuses-manual", "RefuseManualStop=yes"),
    ("", {"UnitFileState": "generated", "FragmentPath": "/run/x"}, "generated", "FragmentPath=/run/x"),
    ("ExecStart=/bin/true\n", {}, "several-commands", "llm.service:4: ExecStart=/usr/bin/llama-server"),
    ("WatchdogSec=30\n", {"WatchdogUSec": "30s"}, "watchdog", ":5: WatchdogSec=30"),
    ("", {"Type": "notify", "ActiveState": "activating", "SubState": "start"}, "never-ready", "Type=notify"),
    ("", {"Type": "notify"}, "start-timeout", "TimeoutStartUSec=1min 30s"),
    ("", {"Type": "forking", "TimeoutStartUSec": "infinity"}, "forking", "Type=forking"),
    ("RuntimeMaxSec=1h\n", {"RuntimeMaxUSec": "1h"}, "runtime-limit", ":5: RuntimeMaxSec=1h"),
    ("", {"StandardOutput": "null"}, "output-discarded", "StandardOutput=null"),
    ("", {"StandardOutput": "truncate"}, "output-overwritten", "StandardOutput=truncate"),
    ("", {"StandardError": "append"}, "output-elsewhere", "StandardError=append"),
    (
        "MemoryMax=1G\n",
        {"MemoryMax": "1073741824", "MemoryPeak": "950000000"},
        "memory-limit-close",
        "MemoryPeak=950000000",
    ),
    (
        "",
        {"MemoryHigh": "1000", "MemoryCurrent": "850"},
        "memory-limit-close",
        "MemoryHigh=1000; MemoryCurrent=850",
    ),
    ("OOMPolicy=continue\n", {"OOMPolicy": "continue"}, "oom-policy-continue", ":5: OOMPolicy=continue"),
]


@pytest.mark.parametrize(("text", "properties", "code", "evidence"), CASES)
def test_one_line_makes_one_hazard(text: str, properties: dict[str, str], code: str, evidence: str) -> None:
    found = look(text, properties)
    assert list(found) == [code] or (code == "never-ready" and set(found) == {code, "start-timeout"})
    assert evidence in found[code].evidence
    assert found[code].what
    assert found[code].next_step


def test_workers_that_die_of_their_own_signal() -> None:
    drain = DrainFacts(drains=True, worst_s=25, children_need_main_only=True, source=SOURCE)
    hazard = look(drain=drain)["kill-mode-defeats-drain"]
    assert "KillMode=control-group" in hazard.evidence
    assert SOURCE in hazard.evidence
    assert look(properties={"KillMode": "mixed"}, drain=drain) == {}


def test_an_end_without_a_bound_stops_tuning() -> None:
    hazard = look(drain=DrainFacts(drains=True, worst_s=None, source=SOURCE))["stop-unbounded"]
    assert hazard.severity is Severity.STOPS


def test_a_server_that_ends_by_killing_itself() -> None:
    drain = DrainFacts(drains=True, worst_s=25, exits_with_sigkill=True, source=SOURCE)
    assert list(look(drain=drain)) == ["clean-stop-looks-failed"]
    assert look(properties={"SuccessExitStatus": "SIGKILL"}, drain=drain) == {}


def test_a_memory_limit_that_is_far_away_is_none() -> None:
    assert look(properties={"MemoryMax": "1000", "MemoryCurrent": "849"}) == {}
    assert look(properties={"MemoryMax": "18446744073709551615", "MemoryCurrent": "18446744073709551615"}) == {}


def test_drop_ins_of_others() -> None:
    command = "[Service]\nExecStart=\nExecStart=/opt/other\n"
    early = look(drop_ins={"50-tool.conf": command})["drop-in-command"]
    assert early.evidence == f"{FRAGMENT}.d/50-tool.conf:3: ExecStart=/opt/other"
    assert early.severity is Severity.WARNING
    late = look(drop_ins={"zzz-tool.conf": command})["drop-in-after"]
    assert late.severity is Severity.STOPS
    assert look(drop_ins={"zzz-tool.conf": "[Service]\nNice=5\n"})["drop-in-after"].severity is Severity.WARNING
    assert look(drop_ins={"50-tool.conf": "[Service]\nNice=5\n"}) == {}
    assert look(drop_ins={"zz-draftmark.conf": command, "zz-draftmark.trial.conf": command}) == {}


def test_a_choice_that_was_kept_of_a_line_that_has_changed_since() -> None:
    """Its drop-in has the whole line, so that a later version of the unit's has no effect."""
    files = [UnitFile(FRAGMENT, PLAIN)]
    text = render(exec_start="/opt/llm --depth 4", settings={}, header=("Written by hand", mark(files)))
    assert look(drop_ins={"zz-draftmark.conf": text}) == {}
    # kept over what was kept: what both stand in for is the unit's own
    again = [*files, UnitFile(f"{FRAGMENT}.d/zz-draftmark.conf", text)]
    assert mark(again) == mark(files)
    assert look("Environment=A=1\n", drop_ins={"zz-draftmark.conf": text}) == {}
    upgraded = look("ExecStart=\nExecStart=/opt/llm -c 2048\n", drop_ins={"zz-draftmark.conf": text})
    assert upgraded["kept-outdated"].evidence.endswith("ExecStart=/opt/llm -c 2048")
    assert upgraded["kept-outdated"].evidence.startswith(f"{FRAGMENT}:")
    tool = {"50-tool.conf": "[Service]\nExecStart=\nExecStart=/opt/other\n", "zz-draftmark.conf": text}
    assert "50-tool.conf:3" in look(drop_ins=tool)["kept-outdated"].evidence
    assert look("ExecStart=\nExecStart=/opt/other\n", drop_ins={"zz-draftmark.conf": "[Service]\nNice=1\n"}) == {}


@pytest.mark.parametrize(("active", "severity"), [(True, Severity.STOPS), (False, Severity.WARNING)])
def test_what_starts_the_unit_by_itself(active: bool, severity: Severity) -> None:
    line = f"llm.socket: {'active' if active else 'inactive'}, Listen=127.0.0.1:1 (Stream)"
    trigger = Trigger("llm.socket", "llm.service", "whenever somebody connects to it", active, line)
    files = [UnitFile(FRAGMENT, PLAIN)]
    [hazard] = hazards(PROPERTIES, files, QUIET, DRAIN, (trigger,))
    assert (hazard.code, hazard.severity, hazard.evidence) == ("started-by-others", severity, line)
    assert "llm.socket" in hazard.what


def test_no_swap() -> None:
    hazard = look(host=HostState(swap_total="SwapTotal:             0 kB"))["no-swap"]
    assert hazard.evidence == "/proc/meminfo: SwapTotal: 0 kB"


@pytest.mark.parametrize(
    ("text", "folder", "shown"),
    [
        ("Storage=volatile", True, "/etc/j.conf:3: Storage=volatile"),
        ("Storage=none", True, "/etc/j.conf:3: Storage=none"),
        ("", False, "Storage=auto (the default); there is no /var/log/journal"),
        ("Storage=auto", False, "/etc/j.conf:3: Storage=auto; there is no /var/log/journal"),
        ("Storage=persistent", False, None),
        ("", True, None),
        ("", None, None),
    ],
)
def test_a_journal_that_is_lost(text: str, folder: bool | None, shown: str | None) -> None:
    config = UnitFile("/etc/j.conf", f"[Journal]\nRateLimitIntervalSec=0\n{text}\n")
    found = look(host=HostState(journald=(config,), journal_folder=folder))
    assert (found["journal-not-persistent"].evidence if found else None) == shown


@pytest.mark.parametrize(
    ("unit", "config", "shown"),
    [
        ("", "", "RateLimitIntervalSec=30s, RateLimitBurst=10000 (the defaults)"),
        ("", "RateLimitBurst=500", "/etc/j.conf:2: RateLimitBurst=500"),
        ("LogRateLimitBurst=99\n", "", "llm.service:5: LogRateLimitBurst=99"),
        ("LogRateLimitIntervalSec=0\n", "RateLimitBurst=500", None),
        ("", "RateLimitIntervalSec=0", None),
    ],
)
def test_a_rate_limit(unit: str, config: str, shown: str | None) -> None:
    host = HostState(journald=(UnitFile("/etc/j.conf", f"[Journal]\n{config}\n"),), journal_folder=True)
    found = look(unit, host=host)
    assert list(found) == (["journal-rate-limit"] if shown else [])
    if shown:
        assert shown in found["journal-rate-limit"].evidence


def test_another_process_on_the_gpu() -> None:
    own, other = GpuProcess(77, "python", "77, python, 40 MiB"), GpuProcess(5, "blender", "5, blender, 9 MiB")
    host = HostState(gpu=(own, other), unit_pids=frozenset({77}))
    assert look(host=host)["gpu-shared"].evidence == "nvidia-smi: 5, blender, 9 MiB"
    assert look(host=HostState(gpu=(own, other))) == {}, "whose processes they are is not known"


def test_what_stops_tuning_comes_first() -> None:
    found = list(look("SendSIGKILL=no\n", {"SendSIGKILL": "no", "Restart": "always"}).values())
    assert [each.severity for each in found] == [Severity.STOPS, Severity.WARNING]


@given(st.dictionaries(st.sampled_from(sorted(PROPERTIES)), st.text(max_size=30)), st.text(max_size=200))
def test_no_value_breaks_it(properties: dict[str, str], text: str) -> None:
    look(text, properties)


SHOWN = sorted((Path(__file__).parents[4] / "shared/captures/systemd").glob("*/*/show.txt"))


@pytest.mark.skipif(not SHOWN, reason="no captures of real units beside this checkout")
def test_real_units_are_read() -> None:
    short = {}
    for path in SHOWN:
        found = hazards(Properties.parse(path.read_bytes()), [], HostState(), DRAIN)
        short[path.parent.name] = {each.code for each in found}
    assert "stop-timeout-short" in short["a-stop-timeout-notify"]
    assert "no-sigkill" in short["a-stop-timeout-sigkill-no"]
    assert "watchdog" in short["c-watchdog"]
    assert "runtime-limit" in short["c-runtime-max"]
    assert "kill-mode-leaves-processes" in short["c-left-over"]
    assert "restart-hides-deaths" in short["c-auto-restart"]
    assert short["c-exit1"] == set()
