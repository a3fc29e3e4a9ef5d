"""A unit on hosts that show much, little or nothing of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pytest

from draftmark.errors import BadInputError
from draftmark.ports import Completed
from draftmark.postmortem.collect import Collected, collect_unit, windows
from draftmark.postmortem.collect.gathering import Reader, close_names
from draftmark.postmortem.collect.journal import FIELDS
from draftmark.postmortem.intake import Hints, read_bytes
from draftmark.testing.hosts import Entry, JournalHost, ScriptedHost

T = 1_795_969_000.0
UNIT = "llm.service"
STARTED, EXITED, FAILED = (
    "39f53479d3a045ac8e11786248231fbf",
    "98e322203f7a4ed290d09fe03c09fe15",
    "d9b373ed55a64feb8242e02dbe79a49c",
)
HINT = "Hint: You are currently not seeing messages from other users and the system.\n"
DENIED = Completed(1, stderr="No journal files were opened due to insufficient permissions.\n")
NO_BUS = Completed(1, stderr="Failed to connect to bus: No medium found\n")
ABSENT = f"Id={UNIT}\nLoadState=not-found\nActiveState=inactive\n"
LISTED = (
    "llm.service loaded active running LLM\nllm-small.service loaded failed failed LLM\nssh.service loaded active\n"
)


def shown(**properties: str) -> str:
    """`systemctl show` of a unit that failed."""
    values = {"Id": UNIT, "LoadState": "loaded", "ActiveState": "failed", "Result": "signal", "Slice": "llm.slice"}
    return "".join(f"{key}={value}\n" for key, value in (values | properties).items())


def said(when: float, message: str, *, run: str = "a", **fields: str) -> Entry:
    """What systemd said of the unit."""
    common = {"_PID": "1", "UNIT": UNIT, "SYSLOG_IDENTIFIER": "systemd", "_BOOT_ID": "b1", "INVOCATION_ID": run}
    return Entry(T + when, {**common, "MESSAGE": message, **fields})


def printed(when: float, message: str) -> Entry:
    """What the unit itself printed."""
    return Entry(T + when, {"_PID": "77", "_SYSTEMD_UNIT": UNIT, "MESSAGE": message, "_BOOT_ID": "b1"})


def kernel(when: float, message: str, boot: str = "b1") -> Entry:
    fields = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": message, "_BOOT_ID": boot}
    return Entry(T + when, fields)


def run_of(start: float, length: float, name: str) -> list[Entry]:
    """A run from its start to its death."""
    return [
        said(start, f"Started {UNIT}.", run=name, MESSAGE_ID=STARTED),
        printed(start + 0.1, f"serving {name}"),
        said(start + length, f"{UNIT}: Main process exited, code=killed", run=name, MESSAGE_ID=EXITED),
        said(start + length, f"{UNIT}: Failed with result 'signal'.", run=name, MESSAGE_ID=FAILED),
    ]


def messages(collected: Collected, name: str) -> list[str]:
    """Messages of the one source of that name."""
    [source] = [source for source in collected.sources if source.name == name]
    return [json.loads(line.text)["MESSAGE"] for line in source.lines]


def names(collected: Collected) -> list[str]:
    return [source.name for source in collected.sources]


def missed(collected: Collected) -> dict[str, tuple[str, str]]:
    return {unread.source: (unread.because, unread.command) for unread in collected.unread}


def host(
    entries: Sequence[Entry],
    answers: Mapping[str, str | Completed] = MappingProxyType({}),
    *,
    root: bool = True,
    hint: str = "",
) -> JournalHost:
    """A host whose systemd knows the unit."""
    script: dict[str, str | bytes | Completed] = {}
    defaults: dict[str, str | Completed] = {
        r"^systemctl show": shown(),
        r"^systemctl --user": NO_BUS,
        r"^systemctl list": LISTED,
    }
    script.update(answers)
    script.update({pattern: said for pattern, said in defaults.items() if pattern not in answers})
    return JournalHost(entries, script, is_root=root, hint=hint)


def test_root_reads_properties_journal_and_kernel_log(read: Reader) -> None:
    entries = [*run_of(0, 50, "a"), kernel(49, "oom-kill:constraint=CONSTRAINT_MEMCG")]
    world = host(entries)
    collected = collect_unit(world, "llm", read=read)
    assert collected.unit == UNIT
    assert names(collected)[:2] == [f"systemctl show {UNIT}", f"journal of {UNIT}"]
    assert messages(collected, f"journal of {UNIT}")[1] == "serving a"
    assert messages(collected, "kernel log") == ["oom-kill:constraint=CONSTRAINT_MEMCG"]
    assert list(missed(collected)) == ["cgroup memory events"]
    assert world.running == 0


def test_a_line_is_shown_as_journalctl_shows_it() -> None:
    """The record that it travels in is JSON, where quotes and control characters are escaped."""
    line = '/opt/crash.sh: line 2: 131971 Segmentation fault      "$@"'
    read = partial(read_bytes, hints=Hints(()))
    entries = [*run_of(0, 60, "a"), printed(30, line), printed(31, "\x1b[31mred\x1b[0m \x07end")]
    [journal] = [s for s in collect_unit(host(entries), UNIT, read=read).sources if s.name == f"journal of {UNIT}"]
    raws = [each.raw for each in journal.lines]
    assert line in raws
    assert "red \ufffdend" in raws
    assert not [raw for raw in raws if raw.startswith("{")]


def test_no_command_changes_anything_or_waits_for_somebody(read: Reader) -> None:
    world = host(run_of(0, 50, "a"), {"^dmesg": "x\n", "^coredumpctl": "PID: 7\n"})
    collect_unit(world, UNIT, read=read)
    harmless = {"journalctl", "systemctl", "dmesg", "coredumpctl", "nvidia-smi"}
    for argv in world.asked:
        assert argv[0] in harmless
        if argv[0] == "systemctl":
            assert {"show", "list-units", "list-unit-files", "cat"} & set(argv)
        if argv[0] in ("systemctl", "journalctl", "coredumpctl"):
            assert "--no-pager" in argv
        assert not any(re.search(r"cursor|vacuum|rotate|--follow|^-f$", word) for word in argv)


def test_the_window_begins_with_the_last_runs(read: Reader) -> None:
    entries = [entry for index in range(5) for entry in run_of(index * 5000, 4000, f"run{index}")]
    collected = collect_unit(host(entries), UNIT, read=read, runs=2)
    found = messages(collected, f"journal of {UNIT}")
    assert [text for text in found if "serving" in text] == ["serving run3", "serving run4"]


def test_a_given_beginning_is_handed_on(read: Reader) -> None:
    world = host(run_of(0, 50, "a"))
    collect_unit(world, UNIT, read=read, since="2 hours ago")
    journals = [argv for argv in world.asked if argv[0] == "journalctl" and "--output=json" in argv]
    assert journals
    assert all("--since=2 hours ago" in argv for argv in journals if "_TRANSPORT=kernel" not in argv)


def test_a_crash_loop_is_followed_back_to_the_run_that_lasted(read: Reader) -> None:
    entries = [
        *run_of(0, 90_000, "served"),
        *(e for i in range(20) for e in run_of(90_010 + i * 20, 15, f"loop{i}")),
    ]
    collected = collect_unit(host(entries), UNIT, read=read)
    found = [text for text in messages(collected, f"journal of {UNIT}") if "serving" in text]
    assert found == ["serving served", "serving loop17", "serving loop18", "serving loop19"]
    [journal] = [source for source in collected.sources if source.name.startswith("journal of")]
    assert any("last one before them that lasted" in note for note in journal.notes)


def test_a_server_that_is_up_is_in_no_loop(read: Reader) -> None:
    entries = [*run_of(0, 90_000, "old"), *run_of(90_010, 15, "typo"), *run_of(90_050, 15, "typo2")]
    entries.append(said(90_100, f"Started {UNIT}.", run="now", MESSAGE_ID=STARTED))
    world = host(entries, {r"^systemctl show": shown(ActiveState="active", NRestarts="0")})
    found = messages(collect_unit(world, UNIT, read=read), f"journal of {UNIT}")
    assert "serving old" not in found


def test_of_too_many_lines_the_end_of_every_run_is_read(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MAX_LINES", 300)
    monkeypatch.setattr(windows, "HEAD_LINES", 20)
    entries = run_of(0, 5000, "killed")
    entries += [printed(1 + index, f"request {index}") for index in range(4000)]
    entries.append(said(5010, f"Started {UNIT}.", run="now", MESSAGE_ID=STARTED))
    entries += [printed(5011 + index, f"later {index}") for index in range(4000)]
    collected = collect_unit(host(entries), UNIT, read=read)
    found = messages(collected, f"journal of {UNIT}")
    assert found[0] == f"Started {UNIT}."
    assert f"{UNIT}: Failed with result 'signal'." in found
    assert "later 0" in found
    assert found[-300:] == [f"later {index}" for index in range(3700, 4000)]
    assert len(found) < 500
    assert len(set(found[1:])) == len(found) - 1  # but for the start, which both runs have
    [journal] = [source for source in collected.sources if source.name.startswith("journal of")]
    assert any("more than 300 lines" in note for note in journal.notes)


def test_a_user_who_may_not_read_the_journal_is_told_the_commands(read: Reader) -> None:
    world = ScriptedHost(
        {
            r"^systemctl show": shown(ExecMainStartTimestamp="Sun 2026-11-29 16:24:00 UTC"),
            r"^journalctl": DENIED,
            r"^dmesg": Completed(1, stderr="dmesg: read kernel buffer failed: Operation not permitted\n"),
        },
        is_root=False,
    )
    gaps = missed(collect_unit(world, UNIT, read=read))
    assert gaps["unit journal"][1] == f"sudo journalctl --unit={UNIT}"
    assert "systemd-journal" in gaps["unit journal"][0]
    assert gaps["kernel log"][1].startswith("sudo journalctl '--since=Sun 2026-11-29 16:24:00 UTC'")
    assert "Operation not permitted" in gaps["kernel log"][0]


def test_a_user_who_sees_only_his_own_lines_is_told_so(read: Reader) -> None:
    collected = collect_unit(host([printed(0, "serving")], root=False, hint=HINT), UNIT, read=read)
    assert messages(collected, f"journal of {UNIT}") == ["serving"]
    because, command = missed(collected)["unit journal"]
    assert "only his own" in because
    assert command.startswith("sudo journalctl")


def test_a_users_own_unit_is_read_from_his_manager(read: Reader) -> None:
    entries = [
        Entry(T, {"USER_UNIT": UNIT, "MESSAGE": "Started llm.service.", "USER_INVOCATION_ID": "u"}),
        Entry(T + 1, {"_SYSTEMD_USER_UNIT": UNIT, "MESSAGE": "mine"}),
    ]
    answers = {r"^systemctl show": ABSENT, r"^systemctl --user show": shown(), r"^dmesg": "[0.0] Linux version 6\n"}
    collected = collect_unit(JournalHost(entries, answers, is_root=False, hint=HINT), "llm", read=read)
    assert messages(collected, f"journal of {UNIT}") == ["Started llm.service.", "mine"]
    assert "unit journal" not in missed(collected)


def test_an_alias_becomes_the_units_own_name(read: Reader) -> None:
    assert collect_unit(host(run_of(0, 9, "a")), "alias.service", read=read).unit == UNIT


def test_a_unit_that_nothing_knows_is_an_error_with_names_like_it(read: Reader) -> None:
    world = JournalHost(
        run_of(0, 9, "a"),
        {r"^systemctl show": "Id=lmm.service\nLoadState=not-found\n", r"--user": NO_BUS, r"list-units": LISTED},
    )
    with pytest.raises(BadInputError) as caught:
        collect_unit(world, "lmm", read=read)
    assert caught.value.next_step == "draftmark why unit:llm.service"
    assert "llm-small.service" not in caught.value.next_step


def test_a_removed_unit_with_a_journal_is_no_error(read: Reader) -> None:
    world = JournalHost(run_of(0, 9, "a"), {r"^systemctl": ABSENT})
    collected = collect_unit(world, UNIT, read=read)
    assert "serving a" in messages(collected, f"journal of {UNIT}")
    assert "unit properties" in missed(collected)


@pytest.mark.parametrize("name", ["", "*", "a b", "../x", "-r", "x" * 300, "a/b.service"])
def test_what_cannot_be_a_unit_is_refused_before_anything_is_asked(name: str, read: Reader) -> None:
    world = ScriptedHost({})
    with pytest.raises(BadInputError):
        collect_unit(world, name, read=read)
    assert world.asked == []


def test_a_host_without_systemd_is_said_to_be_one(read: Reader) -> None:
    with pytest.raises(BadInputError, match=r"no unit llm\.service") as caught:
        collect_unit(ScriptedHost({}), "llm", read=read)
    assert "hand over" in caught.value.next_step
    assert "no systemctl" in str(caught.value)


def test_other_killers_are_collected_and_idle_talk_is_not(read: Reader) -> None:
    def other(ident: str, message: str, **fields: str) -> Entry:
        return Entry(T + 5, {"SYSLOG_IDENTIFIER": ident, "MESSAGE": message, "_PID": "9", **fields})

    entries = [
        *run_of(0, 9, "a"),
        other("systemd-oomd", "Killed /llm.slice/llm.service due to memory pressure"),
        other("earlyoom", "low memory! at or below SIGTERM limits"),
        other("sudo", "bob : COMMAND=/usr/bin/systemctl kill -s KILL llm"),
        other("sudo", "bob : COMMAND=/usr/bin/ls"),
        other("systemd", "Reached target reboot.target", UNIT="reboot.target", _PID="1"),
        other("systemd", "llm.slice: A process of this unit has been killed.", UNIT="llm.slice", _PID="1"),
        other("nginx", "killed nothing"),
    ]
    found = messages(collect_unit(host(entries), UNIT, read=read), "journal of other programs")
    assert len(found) == 5
    assert not any("ls" in text.split("/")[-1] or "nginx" in text for text in found if "COMMAND" in text)


def test_the_fields_that_are_asked_for_hold_no_command_line() -> None:
    assert not {"_CMDLINE", "COREDUMP_ENVIRON", "COREDUMP_CMDLINE", "_CAP_EFFECTIVE"} & set(FIELDS.split(","))


def test_lines_that_journald_dropped_are_noted(read: Reader) -> None:
    dropped = Entry(
        T + 3,
        {
            "MESSAGE": "Suppressed 9 messages from llm.service",
            "MESSAGE_ID": "a596d6fe7bfa4994828e72309e95d61e",
            "OBJECT_SYSTEMD_UNIT": UNIT,
        },
    )
    collected = collect_unit(host([*run_of(0, 9, "a"), dropped]), UNIT, read=read)
    [journal] = [source for source in collected.sources if source.name.startswith("journal of")]
    assert any("rate limit" in note for note in journal.notes)


def test_a_journal_that_no_longer_goes_back_to_the_start_says_so(read: Reader) -> None:
    collected = collect_unit(host(run_of(0, 50, "a")[1:]), UNIT, read=read)
    assert any(source.startswith("unit journal before 2026-11-29") for source in missed(collected))


def test_a_unit_not_seen_to_die_in_a_journal_of_one_boot_may_have_died_before(read: Reader) -> None:
    boots = Completed(0, b"  0 38ab296a196a43fea58ec75a87fbdd16 Sun 2026-11-29 20:59:33 UTC Sun 2026-11-29 21:01\n")
    entries = [said(0, "Started llm.service.", MESSAGE_ID=STARTED)]
    world = JournalHost(entries, {r"list-boots": boots, r"^systemctl show": shown(ActiveState="active")})
    assert "journal of earlier boots" in missed(collect_unit(world, UNIT, read=read))


@pytest.mark.parametrize("where", ["file", "append", "truncate"])
def test_output_that_goes_to_a_file_is_read_there(where: str, read: Reader) -> None:
    cat = f"# /etc/systemd/system/llm@.service\n[Service]\nStandardOutput={where}:/var/log/%p-%i.log\n"
    answers = {
        r"^systemctl show": shown(Id="llm@a.service", StandardOutput=where),
        r"^systemctl cat": cat,
        r"^cat -- /var/log/llm-a.log": "CUDA out of memory\n",
    }
    world = JournalHost([], answers, {"/var/log/llm-a.log": b"C"})
    collected = collect_unit(world, "llm@a", read=read)
    assert "/var/log/llm-a.log" in names(collected)


def test_a_log_file_that_may_not_be_read_is_named_with_sudo(read: Reader) -> None:
    answers = {
        r"^systemctl show": shown(StandardError="append"),
        r"^systemctl cat": "[Service]\nStandardError=append:/var/log/llm.log\n",
    }
    world = JournalHost([], answers, {"/var/log/llm.log": PermissionError(13, "Permission denied")}, is_root=False)
    because, command = missed(collect_unit(world, UNIT, read=read))["/var/log/llm.log"]
    assert because == "Permission denied"
    assert command == "sudo less /var/log/llm.log"


def test_a_gpu_driver_that_does_not_answer_is_a_finding(read: Reader) -> None:
    world = host(run_of(0, 9, "a"), {"^nvidia-smi": Completed(None, timed_out=True)})
    because, command = missed(collect_unit(world, UNIT, read=read))["GPU state"]
    assert "no answer" in because
    assert command == "nvidia-smi"


def test_a_core_dump_is_shown_and_its_absence_is_no_gap(read: Reader) -> None:
    collected = collect_unit(
        host(run_of(0, 9, "a"), {"^coredumpctl": "PID: 7 (python3)\nSignal: 11\n"}), UNIT, read=read
    )
    assert f"coredumpctl of {UNIT}" in names(collected)
    none = Completed(1, stderr="No coredumps found.\n")
    assert "coredump" not in str(
        collect_unit(host(run_of(0, 9, "a"), {"^coredumpctl": none}), UNIT, read=read).unread
    )


@pytest.mark.parametrize("there", [True, False])
def test_the_container_that_a_unit_runs_is_asked_for_its_state(there: bool, read: Reader) -> None:
    start = "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --rm --gpus all --name sglang img ; pid=7 }"
    state = '[{"Id": "3a4f", "Name": "/sglang", "State": {"FinishedAt": "2026-11-29T16:16:40Z"}}]'
    gone = Completed(1, b"[]", "Error response from daemon: No such container: sglang\n")
    script = {
        "^systemctl show": shown(ExecStart=start),
        "^docker inspect": state if there else gone,
        "^docker ev": "x",
    }
    collected = collect_unit(host(run_of(0, 9, "a"), script), UNIT, read=read)
    assert ("docker inspect sglang" in names(collected)) == there
    assert ("container state" in missed(collected)) != there


def test_a_journal_that_breaks_off_says_so(read: Reader) -> None:
    entries = run_of(0, 9, "a")
    broken = Completed(
        1, b"".join(entry.json() for entry in entries), "Failed to iterate through journal: Bad message\n"
    )
    world = host(entries, {rf"output-fields=\S+ --since=\S+ --unit={UNIT}$": broken})
    [journal] = [
        each for each in collect_unit(world, UNIT, read=read).sources if each.name.startswith("journal of")
    ]
    assert journal.total_lines == 4
    assert any("Bad message" in note for note in journal.notes)


@pytest.mark.parametrize(
    ("name", "names", "likely"),
    [
        ("lmm", ["llm.service", "nginx.service"], ["llm.service"]),
        ("k8", ["k9.service", "systemd-journald.service"], ["k9.service"]),
        ("sglang", ["sglang-qwen.service", "ssh.service"], ["sglang-qwen.service"]),
        ("sglang-qwen-32b.service", ["sglang-qwen.service"], ["sglang-qwen.service"]),
        ("nothing-alike", ["ssh.service", "cron.service"], []),
        ("x", [], []),
    ],
)
def test_names_that_may_have_been_meant(name: str, names: list[str], likely: list[str]) -> None:
    assert close_names(name, names) == likely


@pytest.mark.parametrize(("state", "count"), [("failed", 1), ("activating", 2)])
def test_what_happened_to_others_long_after_the_death_is_not_read(state: str, count: int, read: Reader) -> None:
    entries = [*run_of(0, 9, "a"), kernel(8, "oom-kill: ours"), kernel(9000, "segfault of another")]
    world = host(entries, {"^systemctl show": shown(ActiveState=state)})
    assert len(messages(collect_unit(world, UNIT, read=read), "kernel log")) == count
