"""The kernel's log: from the journal, or from the ring buffer, which forgets; quiet is not the same as unread."""

from __future__ import annotations

import pytest

from draftmark.cli import compose_why
from draftmark.ports import Completed
from draftmark.postmortem.collect.gathering import Gathering, Reader
from draftmark.postmortem.collect.journal import Sight
from draftmark.postmortem.collect.kernel import Span, collect_kernel
from draftmark.postmortem.diagnose import diagnose
from draftmark.testing.hosts import Entry, JournalHost, ScriptedHost

T = 1_795_969_000.0
BOOTED = "[Sun Nov 29 16:16:39 2026] Linux version 6.1\n"  # T - 1
LATER = "[Sun Nov 29 16:16:41 2026] python3 invoked oom-killer\n"  # T + 1


def kernel(when: float, boot: str = "b1") -> Entry:
    return Entry(T + when, {"_TRANSPORT": "kernel", "MESSAGE": f"kernel at {when}", "_BOOT_ID": boot})


def collected(host: ScriptedHost, read: Reader, seen: Sight = Sight.ALL, death: float | None = T) -> Gathering:
    gathering = Gathering(host, read)
    collect_kernel(gathering, seen, Span(f"@{int(T) - 100}", T - 100, death, "b1"))
    assert host.running == 0
    return gathering


def test_lines_of_the_window_come_from_the_journal(read: Reader) -> None:
    gathering = collected(JournalHost([kernel(-500), kernel(-50), kernel(5)]), read)
    [source] = gathering.sources
    assert [("kernel at -50" in line.text) or ("kernel at 5" in line.text) for line in source.lines] == [True, True]
    assert not source.notes
    assert not gathering.unread


def test_a_quiet_window_is_shown_with_the_lines_before_it(read: Reader) -> None:
    gathering = collected(JournalHost([kernel(-500)], {r"^dmesg": BOOTED}), read)
    [source] = gathering.sources
    assert source.total_lines == 1
    assert "said nothing in that time" in source.notes[0]
    assert not gathering.unread


@pytest.mark.parametrize("is_root", [True, False])
def test_what_was_not_read_in_full_comes_with_a_command_that_works(read: Reader, is_root: bool) -> None:
    sudo = "" if is_root else "sudo "
    quiet = collected(JournalHost([kernel(-500)], is_root=is_root), read)
    assert quiet.sources[0].command == f"{sudo}journalctl --since=@{int(T) - 100} _TRANSPORT=kernel"
    [unread] = diagnose(quiet.sources, tables=compose_why.tables()).not_examined[:1]
    assert (unread.source, unread.command) == ("kernel log", quiet.sources[0].command)
    ring = collected(JournalHost([], {r"^dmesg": BOOTED}, is_root=is_root), read)
    assert ring.sources[0].command == f"{sudo}dmesg -T"


def test_an_old_kill_is_no_sign_of_a_quiet_log(read: Reader) -> None:
    fields = {"_TRANSPORT": "kernel", "MESSAGE": "Out of memory: Killed process 9", "_BOOT_ID": "b1"}
    gathering = collected(JournalHost([Entry(T - 500, fields)]), read)
    assert gathering.sources == []
    assert gathering.unread[0].because == "the kernel said nothing in that time"


@pytest.mark.parametrize("entries", [[], [kernel(-500, "b0")]], ids=["none", "of another boot"])
def test_a_journal_without_kernel_lines_of_that_boot_proves_nothing(entries: list[Entry], read: Reader) -> None:
    gathering = collected(JournalHost(entries, {r"^dmesg": BOOTED}), read)
    [source] = gathering.sources
    assert "ring buffer" in source.notes[0]
    assert not gathering.unread


def test_a_ring_buffer_that_begins_after_the_death_is_a_gap(read: Reader) -> None:
    gathering = collected(ScriptedHost({r"^dmesg": LATER}), read, Sight.NO_JOURNAL)
    assert [source.name for source in gathering.sources] == ["kernel log"]
    [unread] = gathering.unread
    assert unread.source == "kernel log before 2026-11-29 16:16:41 UTC"
    assert "overwritten" in unread.because


def test_nobody_lets_us_read_it(read: Reader) -> None:
    refused = Completed(1, stderr="dmesg: read kernel buffer failed: Operation not permitted\n")
    gathering = collected(ScriptedHost({r"^dmesg": refused}, is_root=False), read, Sight.OWN)
    assert gathering.sources == []
    [unread] = gathering.unread
    assert unread.source == "kernel log"
    assert unread.command == f"sudo journalctl --since=@{int(T) - 100} _TRANSPORT=kernel"


def test_an_old_dmesg_is_asked_in_words_that_it_knows(read: Reader) -> None:
    old = Completed(1, stderr="dmesg: unrecognized option: T\n")
    gathering = collected(ScriptedHost({r"^dmesg -T": old, r"^dmesg$": "[ 5.0] x\n"}), read)
    [source] = gathering.sources
    assert source.lines[0].text == "[ 5.0] x"
    assert not gathering.unread


def test_junk_from_dmesg_is_taken_as_it_is(read: Reader) -> None:
    junk = b"\xff\x00[Sun Foo 99 99:99:99 2026] x\n"
    assert len(collected(ScriptedHost({r"^dmesg": Completed(0, junk)}), read).sources) == 1


def test_lines_of_the_ring_buffer_from_other_times_are_left_out(read: Reader) -> None:
    old = "[Sun Nov 29 15:00:00 2026] Out of memory: Killed process 1 (other)\n[Sun Nov 29 15:00:00 2026] x\n"
    new = "[Sun Nov 29 19:00:00 2026] python3[9]: segfault at 0\n"
    for output, kept in ((old + LATER + new, LATER + new), (old, old.splitlines()[1]), (new, new)):
        [source] = collected(ScriptedHost({r"^dmesg": output}), read, Sight.NO_JOURNAL).sources
        assert [line.text for line in source.lines] == kept.splitlines()
    gathering = Gathering(ScriptedHost({r"^dmesg": old + LATER + "\tmore of it\n" + new}), read)
    collect_kernel(gathering, Sight.NO_JOURNAL, Span(None, T - 100, T, "", T + 600))
    assert [line.text for line in gathering.sources[0].lines] == [LATER.strip(), "\tmore of it"]


def test_a_ring_buffer_of_a_later_time_is_a_gap_and_no_source(read: Reader) -> None:
    gathering = Gathering(ScriptedHost({r"^dmesg": "[Sun Nov 29 19:00:00 2026] python3[9]: segfault\n"}), read)
    collect_kernel(gathering, Sight.NO_JOURNAL, Span(None, T - 100, T, "", T + 600))
    assert gathering.sources == []
    assert "begins after the death" in gathering.unread[0].because


def test_the_journal_is_read_to_the_end_of_the_span(read: Reader) -> None:
    gathering = Gathering(JournalHost([kernel(5), kernel(700)]), read)
    collect_kernel(gathering, Sight.ALL, Span(f"@{int(T)}", T, T, "b1", T + 600))
    assert [source.total_lines for source in gathering.sources] == [1]


def test_old_lines_that_journald_received_late_are_left_out(read: Reader) -> None:
    received = {"_TRANSPORT": "kernel", "_BOOT_ID": "b1", "__MONOTONIC_TIMESTAMP": "9000000000"}
    late = {**received, "MESSAGE": "old kill", "_SOURCE_MONOTONIC_TIMESTAMP": "1000000000"}
    now = {**received, "MESSAGE": "new kill", "_SOURCE_MONOTONIC_TIMESTAMP": "8999900000"}
    [source] = collected(JournalHost([Entry(T + 1, late), Entry(T + 1, now)]), read).sources
    assert ["new kill" in line.text for line in source.lines] == [True]
