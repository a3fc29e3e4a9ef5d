"""Which unit was meant: names that are like the one asked for, or none."""

from __future__ import annotations

import pytest

from draftmark.errors import BadInputError
from draftmark.service.systemd.manager import Properties, close_names, find
from draftmark.testing.hosts import ScriptedHost

LISTED = (
    "cron.service", "dbus.service", "kmod.service", "llm@.service", "llm-embed.service", "sglang-qwen.service",
    "systemd-udevd.service", "udev.service", "upower.service",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("nope.service", []),
        ("sglang-qwn.service", ["sglang-qwen.service"]),
        ("qwen.service", ["sglang-qwen.service"]),
        ("SGLang.service", ["sglang-qwen.service"]),
        ("udev.service", ["udev.service", "systemd-udevd.service"]),
        ("llm.service", ["llm-embed.service"]),
        ("e.service", []),
    ],
)
def test_only_names_that_are_like_it_are_suggested(name: str, found: list[str]) -> None:
    assert close_names(name, LISTED) == found


def test_at_most_three() -> None:
    assert len(close_names("llm.service", [f"llm{i}.service" for i in range(9)])) == 3


def asked(name: str) -> BadInputError:
    host = ScriptedHost(
        {"show": "LoadState=not-found\n", "list-unit": "".join(f"{each} loaded\n" for each in LISTED)}
    )
    with pytest.raises(BadInputError) as caught:
        find(host, name)
    return caught.value


def test_an_unknown_unit_is_answered_by_the_list_where_none_is_like_it() -> None:
    error = asked("nope")
    assert (error.evidence, error.next_step) == ((), "systemctl list-units --all --type=service")
    assert asked("sglang-qwn").next_step == "unit:sglang-qwen.service"


def test_a_template_is_answered_by_its_instances() -> None:
    error = asked("llm@")
    assert (error.exit_status, error.next_step) == (2, "unit:llm@INSTANCE.service")
    assert "knows no instance" in error.evidence[0]
    host = ScriptedHost({"list-units": "llm@1.service loaded\nllm@a-b.service loaded\nllm-x.service loaded\n"})
    with pytest.raises(BadInputError, match="name an instance") as caught:
        find(host, "llm@.service")
    assert caught.value.evidence == ("instances that gpu1 knows: llm@1.service, llm@a-b.service",)
    assert caught.value.next_step == "unit:llm@1.service"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", ()),
        ("/a.conf /b.conf", ("/a.conf", "/b.conf")),
        ('/a.conf "/x.d/10 mi*n\\\\e.conf" /b.conf', ("/a.conf", "/x.d/10 mi*n\\e.conf", "/b.conf")),
    ],
)
def test_a_list_with_names_that_hold_blanks(value: str, words: tuple[str, ...]) -> None:
    """As systemd 252 prints DropInPaths=."""
    assert Properties.parse(f"DropInPaths={value}\n".encode()).words("DropInPaths") == words
