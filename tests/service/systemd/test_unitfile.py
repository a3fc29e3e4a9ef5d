"""Which assignments of a unit's files are in force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import RefusedError
from draftmark.service.systemd.unitfile import Unit, UnitFile

FRAGMENT = """\
# the fragment
[Unit]
Description=x
[Service]
Type=simple
ExecStart=/x \\
  --a 1 \\
# not this one
  ; nor this one
  --b 2
Environment = A=1
Environment=B=2
"""


def unit(*texts: str) -> Unit:
    return Unit.parse([UnitFile(f"/etc/systemd/system/llm.service{i or ''}", text) for i, text in enumerate(texts)])


def test_lines_go_on_and_comments_between_do_not_count() -> None:
    line = unit(FRAGMENT).exec_start()
    assert line.value.split() == ["/x", "--a", "1", "--b", "2"]
    assert line.where == "/etc/systemd/system/llm.service:6"


def test_a_list_grows_and_an_empty_assignment_forgets_it() -> None:
    found = unit(FRAGMENT, "[Service]\nEnvironment=\nEnvironment=C=3\n", "[Service]\nEnvironment=D=4").all(
        "Environment"
    )
    assert [a.value for a in found] == ["C=3", "D=4"]


def test_a_drop_in_gives_another_command() -> None:
    line = unit(FRAGMENT, "[Service]\nExecStart=\nExecStart=/y").exec_start()
    assert (line.value, line.path, line.line) == ("/y", "/etc/systemd/system/llm.service1", 3)


@pytest.mark.parametrize(
    "dropin", ["[Service]\nExecStart=/y", "[Service]\nType=oneshot\nExecStart=/y", "[Service]\nExecStart="]
)
def test_several_commands_or_none_are_refused(dropin: str) -> None:
    with pytest.raises(RefusedError) as caught:
        unit(FRAGMENT, dropin).exec_start()
    assert caught.value.exit_status == 30
    assert any("llm.service:" in line for line in caught.value.evidence)
    assert caught.value.next_step


@pytest.mark.parametrize(
    "text",
    [
        "[Install]\nExecStart=/x",
        "ExecStart=/x",
        "[X-Mine]\nExecStart=/x",
        "[Service]\n#ExecStart=/x",
        "[Service]\n;ExecStart=/x\\\nExecStart=",
    ],
)
def test_what_is_no_assignment_of_the_service(text: str) -> None:
    assert unit(text).all("ExecStart") == ()


def test_an_even_number_of_backslashes_does_not_go_on() -> None:
    assert unit("[Service]\nExecStart=/x a\\\\\nType=simple\n").exec_start().value == "/x a\\\\"


def test_the_last_one_counts() -> None:
    found = unit(FRAGMENT, "[Service]\nType=exec\n").last("Type")
    assert found is not None
    assert found.value == "exec"
    assert unit(FRAGMENT).last("KillMode") is None


def test_other_line_ends_and_a_byte_order_mark() -> None:
    assert unit("\ufeff[Service]\r\nExecStart=/x \\\r\n  a\r\n").exec_start().value.split() == ["/x", "a"]


@given(st.text(alphabet="[]Service=ExecStart\\\n#; \r\0ab/", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    for assignment in unit(f"[Service]\n{text}").assignments:
        assert "\n" not in assignment.value
