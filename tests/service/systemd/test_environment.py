"""The environment of a service. Against a real systemd: test_commandline_live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import RefusedError
from draftmark.service.systemd.envfile import parse_env_file
from draftmark.service.systemd.environment import ServiceEnvironment, service_environment, wanted_files
from draftmark.service.systemd.quoting import next_word
from draftmark.service.systemd.unitfile import Unit, UnitFile
from draftmark.service.systemd.variables import expanded, split_value


def unit(settings: str) -> Unit:
    return Unit.parse([UnitFile("/u", f"[Service]\n{settings}\n")])


def variables(settings: str, files: dict[str, str] | None = None, **more: object) -> ServiceEnvironment:
    return service_environment(unit(settings), {"i": "7b"}, files or {}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB = two words  \n", {"A": "1", "B": "two words"}),
        ("A='a b' \"c\"d\n", {"A": "a bcd"}),
        ('A=b"c d"\n', {"A": 'b"c d"'}),
        ('A="a\\"b\\$c\\d"\n', {"A": 'a"b$c\\d'}),
        ("A=a\\ b\\\\ \\\nc\n", {"A": "a b\\ c"}),
        ("A='x\ny'\nB=\"p\\\nq\"\n", {"A": "x\ny", "B": "pq"}),
        ("# c\n; d\n  # e\nA=1 # no comment\n", {"A": "1 # no comment"}),
        ("no equals\nA=1", {"A": "1"}),
        ("A=", {"A": ""}),
        ("A=1\r\nB=2\r", {"A": "1", "B": "2"}),
        ("export A=1\n", {"export A": "1"}),
        ("A='x '  \n", {"A": "x "}),
    ],
)
def test_a_file_is_read(text: str, expected: dict[str, str]) -> None:
    assert {name: value for name, value, _ in parse_env_file(text)} == expected


def test_a_comment_that_goes_on_depends_on_the_version() -> None:
    text = "# c \\\nA=1\n"
    assert parse_env_file(text, version=252) == []
    assert parse_env_file(text, version=254) == [("A", "1", 2)]


def test_later_files_win_over_earlier_ones_and_over_the_unit() -> None:
    settings = "EnvironmentFile=/a\nEnvironment=X=unit Y=unit\nEnvironmentFile=-/gone\nEnvironmentFile=/b"
    found = variables(settings, {"/a": "X=a\nZ=a\n", "/b": "Z=b\n"}, base={"X": "base", "P": "base"})
    assert dict(found) == {"X": "a", "Y": "unit", "Z": "b", "P": "base"}
    assert found.described("Z") == "$Z of /b:1"
    assert found.described("Y") == "$Y of /u:3"


def test_words_of_the_unit() -> None:
    found = variables("Environment=\"A=x y\" 'B=%i' C=\\x41 9=no bad D=a'b c'd \"open")
    assert dict(found) == {"A": "x y", "B": "7b", "C": "A", "D": "ab cd"}


def test_what_is_passed_on_and_taken_out() -> None:
    settings = "PassEnvironment=P Q\nEnvironment=A=1 B=2 C=3\nUnsetEnvironment=A B=2 C=9"
    assert dict(variables(settings, manager={"P": "p", "X": "x"})) == {"P": "p", "C": "3"}
    assert variables(settings).unknown >= {"P", "Q"}


def test_files_by_pattern() -> None:
    found = variables("EnvironmentFile=/d/*.env", {"/d/b.env": "A=b", "/d/a.env": "A=a", "/d/x/c.env": "A=c"})
    assert found["A"] == "b"


def test_a_file_that_must_be_there() -> None:
    with pytest.raises(RefusedError) as caught:
        variables("EnvironmentFile=/etc/default/llm")
    assert caught.value.evidence == ("/u:2: EnvironmentFile=/etc/default/llm",)


def test_a_file_that_is_not_utf8() -> None:
    with pytest.raises(RefusedError):
        variables("EnvironmentFile=/a", {"/a": "A=\udcff"})
    assert dict(variables("EnvironmentFile=-/a", {"/a": "B=1\nA=\udcff"})) == {}


def test_wanted_files() -> None:
    found = wanted_files(unit("EnvironmentFile=-/etc/%i\nEnvironmentFile=relative"), {"i": "7b"})
    assert [(w.path, w.optional) for w in found] == [("/etc/7b", True)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("$A", ("1", "2 3")),
        ("'$A'", ("1", "2 3")),
        ("${A}", ("1 '2 3'",)),
        ("x${A}y${N}", ("x1 '2 3'y",)),
        ("$N", ()),
        ("$E", ()),
        ("${N}", ("",)),
        ("$$A", ("$A",)),
        ("a$$$$b", ("a$$b",)),
        ("x$A", ("x$A",)),
        ("$A-b", ()),
        ("$", ()),
        ("${A:-x}", ("${A:-x}",)),
        ("${A", ("${A",)),
        ("a$", ("a$",)),
    ],
)
def test_variables_in_a_word(raw: str, expected: tuple[str, ...]) -> None:
    word = next_word(raw, 0)
    assert word is not None
    assert expanded(word, word.pieces, ServiceEnvironment({"A": "1 '2 3'", "E": ""})).values == expected


def test_what_systemd_sets_anew_is_not_known() -> None:
    word = next_word("x-${INVOCATION_ID}", 0)
    assert word is not None
    slot = expanded(word, word.pieces, ServiceEnvironment({}))
    assert (slot.values, slot.known) == (("x-${INVOCATION_ID}",), False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a  'b c' \"d\"e", ["a", "b c", "de"]),
        ("'open x", ["open x"]),
        ("a\\ b c\\", ["a b", "c"]),
        ("''", [""]),
        (" ", []),
    ],
)
def test_a_value_is_split(value: str, expected: list[str]) -> None:
    assert list(split_value(value)) == expected


@given(st.text(alphabet="AB=#;'\"\\$\n\r \t\0x", max_size=60), st.sampled_from([None, 249, 257]))
def test_any_file_can_be_read(text: str, version: int | None) -> None:
    for name, _, line in parse_env_file(text, version=version):
        assert name
        assert 1 <= line <= text.count("\n") + 1
