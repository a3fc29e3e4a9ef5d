"""Words of a unit's line, taken apart and written, as systemd does.

What a real systemd says of them: test_commandline_live.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.systemd import quoting
from draftmark.service.systemd.pieces import Edit, UnreadableError, respelled

ANY = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NASTY = st.text(alphabet="a é日\\'\"%$;{}# \t\n\r\x7f\x01-@:+!", max_size=12)


def values(line: str) -> list[str]:
    (command,) = quoting.split(line)
    return [word.value for word in command.words]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/x a  b\tc", ["/x", "a", "b", "c"]),
        ("/x 'a b' \"c 'd'\" e'f g'h", ["/x", "a b", "c 'd'", "ef gh"]),
        ("/x '' \"\" ''''", ["/x", "", "", ""]),
        (r"/x \x41\102\u00e9\s\\ \n", ["/x", "AB\u00e9 \\", "\n"]),
        (r"/x '\x41' \xc3\xa9 \xc3'\xa9'", ["/x", "A", "é", "é"]),
        (r"/x \q \x4 \400 \u12 \x00 \U00110000", ["/x", r"\q", r"\x4", r"\400", r"\u12", r"\x00", r"\U00110000"]),
        (r"/x a\ b", ["/x", r"a\ b"]),
        (r"/x \; a; ;b ';'", ["/x", ";", "a;", ";b", ";"]),
        ("/x a ;", ["/x", "a"]),
        ("; /x a", ["/x", "a"]),
        (r"/x \xff", ["/x", "\udcff"]),
    ],
)
def test_words(line: str, expected: list[str]) -> None:
    assert values(line) == expected


def test_a_semicolon_begins_another_command() -> None:
    first, second = quoting.split("/x a ; -/y b")
    assert [w.value for w in first.words] == ["/x", "a"]
    assert (second.prefix, [w.value for w in second.words]) == ("-", ["/y", "b"])


@pytest.mark.parametrize(
    ("first", "prefix"),
    [("-/x", "-"), ("@-:/x", "@-:"), ("!!/x", "!!"), ("+!/x", "+"), ("!+/x", "!"), ("--/x", "-"), ('"-/x"', "-")],
)
def test_flags_before_the_program(first: str, prefix: str) -> None:
    (command,) = quoting.split(f"{first} a")
    assert command.prefix == prefix
    assert command.words[0].raw == first
    assert command.expands is (":" not in prefix)


@pytest.mark.parametrize("line", ["/x 'a", '/x "a', r"/x 'a\'", "-", "|/x a"])
def test_what_cannot_be_read(line: str) -> None:
    with pytest.raises(UnreadableError):
        quoting.split(line)


@given(st.lists(ANY | NASTY), st.booleans())
def test_words_come_back_as_they_were(words: list[str], expands: bool) -> None:
    line = " ".join(["/x", *(quoting.quote(word, expands=expands) for word in words)])
    assert "\n" not in line
    (command,) = quoting.split(line)
    undone = [w.value.replace("%%", "%") for w in command.words[1:]]
    assert [w.replace("$$", "$") if expands else w for w in undone] == words


@given(st.text(alphabet="a '\"\\x41%;é", max_size=20))
def test_raw_words_are_the_line(text: str) -> None:
    try:
        commands = quoting.split(f"/x {text}")
    except UnreadableError:
        return
    for command in commands:
        for word in command.words:
            assert f"/x {text}"[word.start : word.end] == word.raw
            assert not word.raw[:1].isspace()


@pytest.mark.parametrize("value", ["a\0b", "\udcff"])
def test_what_no_unit_can_hold(value: str) -> None:
    with pytest.raises(UnreadableError):
        quoting.quote(value)


def test_plain_words_stay_plain() -> None:
    assert [quoting.quote(w) for w in ("--a=1", "/m/x-Q4_0.gguf", "100%", "", '{"a":1}')] == [
        "--a=1",
        "/m/x-Q4_0.gguf",
        "100%%",
        '""',
        "'{\"a\":1}'",
    ]


@given(st.data())
def test_a_part_of_a_word_can_be_changed(data: st.DataObject) -> None:
    """Whatever the spelling, the new value is read back, and what was not touched is spelled as before."""
    raw = data.draw(st.text(alphabet="ab '\"\\nx41é", min_size=1, max_size=16))
    try:
        (command,) = quoting.split(f"/x {raw}")
    except UnreadableError:
        return
    if len(command.words) != 2:
        return
    word = command.words[1]
    start = data.draw(st.integers(0, len(word.value)))
    end = data.draw(st.integers(start, len(word.value)))
    text = data.draw(st.text(alphabet="ab '\"\\\n", max_size=5))
    new = respelled(word.raw, word.pieces, [Edit(start, end, text)], quoting.encode)
    # A backslash that began no escape can begin one with what now stands behind it; reading back finds that.
    if "\\" not in raw:
        assert values(f"/x {new}")[1:] == [word.value[:start] + text + word.value[end:]]
