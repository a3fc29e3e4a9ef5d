"""What starts a unit by itself, as systemctl shows it."""

from __future__ import annotations

import pytest

from draftmark.errors import RefusedError
from draftmark.service.systemd.manager import Manager, Properties
from draftmark.service.systemd.triggers import refuse, triggers
from draftmark.testing.hosts import ScriptedHost

SOCKET = (
    "Id={0}\nLoadState=loaded\nActiveState={1}\nSubState=listening\nTriggers={2}\nListen=127.0.0.1:9 (Stream)\n"
)
ABSENT = "Id={0}\nLoadState=not-found\nActiveState=inactive\nSubState=dead\nTriggers=\n"


def looking(shown: str, others: str = "") -> tuple[Manager, ScriptedHost]:
    host = ScriptedHost({"show -p Id,TriggeredBy": others, "show -p Id,LoadState": shown})
    manager = Manager(host, "llm.service")
    return manager, host


def test_a_plain_unit_has_none() -> None:
    manager, host = looking("\n".join(ABSENT.format(f"llm{suffix}") for suffix in (".socket", ".timer", ".path")))
    assert triggers(manager, Properties.parse(b"")) == ()
    assert len(host.asked) == 1
    refuse(manager, ())


def test_a_socket_that_is_active_is_refused_with_what_ends_it() -> None:
    manager, _ = looking(SOCKET.format("llm.socket", "active", "llm.service"))
    own = triggers(manager, Properties.parse(b"TriggeredBy=llm.socket\n"))
    with pytest.raises(RefusedError, match=r"llm\.socket starts llm\.service whenever somebody connects") as caught:
        refuse(manager, own)
    assert caught.value.evidence == (
        "llm.socket: active (listening), Triggers=llm.service, Listen=127.0.0.1:9 (Stream)",
    )
    assert caught.value.next_step == "systemctl stop llm.socket, tune, systemctl start llm.socket"


def test_one_of_its_name_that_systemd_had_not_loaded_is_told_and_not_refused() -> None:
    manager, _ = looking(SOCKET.format("llm.socket", "inactive", "llm.service"))
    own = triggers(manager, Properties.parse(b""))
    assert [(each.name, each.active) for each in own] == [("llm.socket", False)]
    refuse(manager, own)


def test_one_of_its_name_that_starts_something_else_is_none() -> None:
    manager, _ = looking(SOCKET.format("llm.socket", "active", "other.service"))
    assert triggers(manager, Properties.parse(b"")) == ()


def test_a_socket_of_a_proxy_that_needs_the_unit_starts_it_too() -> None:
    others = "Id=proxy.service\nTriggeredBy=front.socket\n\nId=multi-user.target\nTriggeredBy=\n"
    manager, _ = looking(SOCKET.format("front.socket", "active", "proxy.service"), others)
    [trigger] = triggers(manager, Properties.parse(b"RequiredBy=proxy.service\nWantedBy=multi-user.target\n"))
    assert trigger.active
    assert trigger.what.startswith("front.socket starts proxy.service, which needs llm.service, whenever somebody")


def test_a_unit_that_upholds_it_starts_it_again() -> None:
    shown = "Id=stack.target\nLoadState=loaded\nActiveState=active\nSubState=active\n"
    manager, _ = looking(shown, "Id=stack.target\nTriggeredBy=\n")
    [trigger] = triggers(manager, Properties.parse(b"UpheldBy=stack.target\n"))
    assert trigger.active
    assert "again at once" in trigger.what
