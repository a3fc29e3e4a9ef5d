"""Causes explained, from the tables that judge."""

from __future__ import annotations

import re
from typing import Any

import pytest

from draftmark.errors import UsageError
from draftmark.postmortem.tables import Tables, load_tables
from draftmark.report.why_explain import print_causes, print_explanation

# What may not be advised or given as a command: it would destroy state or end something.
DESTRUCTIVE = re.compile(
    r"\b(?:rm -\w+|mkfs|dd if=\S+|kill -(?:9|15|KILL|TERM)|pkill|killall|sudo (?:reboot|shutdown)|fuser -k|"
    r"docker (?:rm|prune|kill|stop)|systemctl (?:stop|restart|kill)|kubectl (?:delete|drain)|"
    r"nvidia-smi (?:-r|--gpu-reset)|(?:journalctl|dmesg) (?:--vacuum\S*|-C|-c|--clear|--rotate))(?:\s|$)"
)
PLACE = re.compile(r"\{(unit|pid|pod|container)\}")


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load_tables()


def test_every_cause_is_explained_in_full(screen: Any, tables: Tables) -> None:
    for cause in tables.causes.values():
        seen = screen(100)
        print_explanation(cause.name, tables, seen.console)
        flat = seen.flat
        assert flat.startswith(cause.name)
        assert "What proves it" in seen.lines
        assert ("What speaks against it" in seen.lines) == (cause.against != "-")
        for other in cause.confused_with:
            assert f"- {other}" in seen.text
        for said in cause.advice:
            assert " ".join(PLACE.sub(lambda m: m[1].upper(), said).split()) in flat
        assert not PLACE.search(flat)


def test_what_it_is_confused_with_is_told_apart_by_its_proof(screen: Any, tables: Tables) -> None:
    seen = screen(100)
    print_explanation("illegal-memory-access", tables, seen.console)
    assert " ".join(tables.causes["gpu-hardware-xid"].proves.split()) in seen.flat


def test_the_list_names_all_by_family(screen: Any, tables: Tables) -> None:
    seen = screen(120)
    print_causes(tables.causes, seen.console)
    for cause in tables.causes.values():
        assert f"  {cause.name}" in seen.text
        assert cause.family.replace("-", " ") in seen.lines


def test_unsettled_is_explained_too(screen: Any, tables: Tables) -> None:
    seen = screen()
    print_explanation("unsettled", tables, seen.console)
    assert "an answer, not a failure" in seen.flat


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ilegal-memory-acces", "illegal-memory-access"),
        ("stop-timeout", "stop-timeout-sigkill"),
        ("oomd", "systemd-oomd"),
        ("", "--explain list"),
        ("zzzzzz", "--explain list"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_meant(
    screen: Any, tables: Tables, typed: str, meant: str
) -> None:
    with pytest.raises(UsageError) as caught:
        print_explanation(typed, tables, screen().console)
    assert meant in caught.value.next_step


def test_nothing_that_is_advised_destroys_anything(tables: Tables) -> None:
    for cause in tables.causes.values():
        for said in (*cause.advice, cause.settle):
            assert not DESTRUCTIVE.search(said), (cause.name, said)
