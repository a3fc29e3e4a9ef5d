"""Scripts of a shell: their words, what becomes of them, and the commands. The shells themselves are asked, too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.systemd import shellwords
from draftmark.service.systemd.pieces import UnreadableError
from draftmark.service.systemd.shellcall import shell_call
from draftmark.service.systemd.shellrun import candidates
from draftmark.service.systemd.shellscript import parse
from draftmark.service.systemd.shellvalues import Scope

VARIABLES = {"A": "a b", "B": "b", "E": "", "W": " w1  w2 ", "G": "*", "HOME": "/h"}


def scope(shell: str = "bash", positional: tuple[str, ...] | None = ("n0", "p1", "p 2")) -> Scope:
    return Scope.of(VARIABLES, positional, shell=shell)


def words(script: str, shell: str = "bash") -> tuple[str, ...] | None:
    """Of the command `srv`; None where they are not certain."""
    found = [c.slots for c in candidates(script, scope(shell)) if c.slots[0].values[:1] == ("srv",)]
    (slots,) = found
    return tuple(v for s in slots[1:] for v in s.values) if all(s.known for s in slots) else None


CERTAIN = [
    ("srv a 'b c' \"d e\" f\\ g '' \"\"", ("a", "b c", "d e", "f g", "", "")),
    ("srv 'it'\\''s' a\"b\"'c'", ("it's", "abc")),
    ('srv "a\\"b\\$c\\d" \'a\\b\'', ('a"b$c\\d', "a\\b")),
    ('srv $A "$A" x$B ${B}y "$E" $E $NONE', ("a", "b", "a b", "xb", "by", "")),
    ("srv $W x$W$B", ("w1", "w2", "x", "w1", "w2", "b")),
    ('srv ${NONE:-d e} "${NONE:-d e}" ${E:-x} ${E-x} ${B:+y} ${NONE+y}', ("d", "e", "d e", "x", "y")),
    ("srv a#b # $(no)", ("a#b",)),
    ("srv a \\\n  b \\\n c", ("a", "b", "c")),
    ("srv 2>&1 a >/dev/null b < /dev/null", ("a", "b")),
    ('srv "$@" $1 "$2" x', ("p1", "p 2", "p1", "p 2", "x")),
    ("X=1 srv $X", ()),
    ("X=1; srv $X", ("1",)),
    ('X="$A"; srv $X "$X"', ("a", "b", "a b")),
    ("export X=y && srv $X", ("y",)),
    ("exec -a name srv a", ("a",)),
    ("command srv a & wait", ("a",)),
    ("cd / && . venv/bin/activate && exec srv $B", ("b",)),
    ("if test -d /; then :; fi; srv a", ("a",)),
    ("for i in 1 2; do :; done; srv a", ("a",)),
    ("case x in a|b) :;; *) :;; esac\nsrv a", ("a",)),
    ("f() { echo; }\nsrv a | cat", ("a",)),
    ("srv a={b} {} {c}", ("a={b}", "{}", "{c}")),
]
BASH = [
    ("X=(1 '2 3' --a); X+=(4); srv \"${X[@]}\" ${X[@]/#/}", None),
    ("X=(1 '2 3'); X+=(4); srv \"${X[@]}\"", ("1", "2 3", "4")),
    ('X=(); srv "${X[@]}" a', ("a",)),
    ("X=(1\n # why\n 2\n); srv ${X[@]} ${X}", ("1", "2", "1")),
    ("srv $'a\\tb\\'c'", ("a\tb'c",)),
    ("X=a; X+=b; srv $X", ("ab",)),
    ("[[ -n x && y > z ]] && srv a", ("a",)),
    ("srv a &> /dev/null", ("a",)),
    ("srv > >(cat) a", ("a",)),
]
UNCERTAIN = [
    "srv $(echo a)",
    "srv `echo a`",
    "srv $((1+1))",
    "srv /*",
    "srv ~",
    "srv $G",
    "srv $RANDOM",
    "srv $$",
    "srv ${A%x}",
    ". /etc/default/x; srv $A",
    "eval X=1; srv $A",
    "A=$(date); srv $A",
    "true || A=x; srv $A",
    "if true; then A=x; fi; srv $A",
    "A=x | cat; srv $A",
    "(A=x); srv $A",
    "IFS=:; srv $A",
    "read A; srv $A",
    "f() { A=x; }; f; srv $A",
    "for A in 1; do :; done; srv $A",
    "shift; srv $1",
    "set -- x; srv $1",
    "test -e / && A=x; srv $A",
    "srv a\\",
    "srv $A\\\na",
    'srv "$\\\nA"',
    'srv "$@"$W',
]


@pytest.mark.parametrize(("script", "expected"), [*CERTAIN, *BASH])
def test_words_of_the_server(script: str, expected: tuple[str, ...] | None) -> None:
    assert words(script) == expected


@pytest.mark.parametrize("script", UNCERTAIN)
def test_what_is_not_certain_is_not_told(script: str) -> None:
    assert words(script) is None


def test_zsh_does_not_split() -> None:
    assert words("srv $A $E x$A", "zsh") == ("a b", "xa b")


@pytest.mark.parametrize(
    "script",
    [
        "srv 'a",
        'srv "a',
        "srv $(a",
        "srv `a",
        "cat <<E\nE\nsrv",
        "if a; then srv",
        "srv )",
        "srv &\\\n& b",
        "srv 2\\\n>f",
        "srv >\\\n>f",
        "srv <<(a)",
        "srv a >",
    ],
)
def test_what_cannot_be_read(script: str) -> None:
    with pytest.raises(UnreadableError):
        words(script)


def test_dollar_quotes_are_read_where_all_agree() -> None:
    with pytest.raises(UnreadableError):
        words("srv $'a'", "sh")


@pytest.mark.parametrize(
    ("script", "inside"),
    [
        ("srv", ()),
        ("while true; do srv; done", ("a loop",)),
        ("if x; then srv; fi", ("an if",)),
        ("(srv)", ("a subshell",)),
        ("f() { srv; }", ("a function",)),
        ("function f { srv; }", ("a function",)),
        ("{ srv; } | cat", ("a group",)),
        ("case x in y) srv;; esac", ("a case",)),
        ("if x; then :; fi && srv", ()),
        ("for i in 1; do if x; then srv; fi; done", ("a loop", "an if")),
    ],
)
def test_where_a_command_stands(script: str, inside: tuple[str, ...]) -> None:
    (found,) = [c for c in parse(script).commands if c.words[0].raw == "srv"]
    assert found.inside == inside


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["bash", "-c", "S"], 2),
        (["/bin/bash", "-lc", "S", "a"], 2),
        (["sh", "-e", "-o", "pipefail", "-c", "S"], 5),
        (["bash", "--login", "-c", "S"], 3),
        (["/usr/bin/env", "A=1", "bash", "-c", "S"], 4),
        (["numactl", "-N", "0", "nice", "sh", "-c", "S"], 6),
        (["su", "-", "llm", "-c", "S"], 4),
        (["runuser", "-u", "llm", "--", "srv", "-c", "4096"], None),
        (["runuser", "-u", "llm", "--", "bash", "-c", "S"], 6),
        (["bash", "run.sh", "-c", "4096"], None),
        (["srv", "-c", "4096"], None),
        (["env", "SHELL=/bin/bash", "srv", "-c", "4096"], None),
        (["srv", "bash", "-c", "x"], None),
    ],
)
def test_a_shell_and_its_script(argv: Sequence[str], script: int | None) -> None:
    call = shell_call(argv)
    assert (call.script if call else None) == script


@given(st.text(alphabet="srv '\"\\$`(){}[]<>|&;#\n=*~!aA@-+:", max_size=40))
def test_any_script_is_read_or_refused(script: str) -> None:
    try:
        for candidate in candidates(script, scope()):
            for slot in candidate.slots:
                assert script[slot.start : slot.end] == slot.raw
    except UnreadableError:
        pass


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_a_quoted_word_is_read_back(value: str) -> None:
    assert words(f"srv {shellwords.quote(value)}") == (value,)


def _asked(shell: str, script: str) -> tuple[str, ...] | None:
    """What the shell itself makes of it; None where it refuses."""
    program = "srv() { for word do printf '%s\\0' \"$word\"; done; }\n"
    ended = subprocess.run(
        [shell, "-c", program + script, "n0", "p1", "p 2"], env={**VARIABLES}, capture_output=True, timeout=20
    )
    if ended.returncode:
        return None
    return tuple(ended.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1])


_PARTS = [
    *"ab #\\$\"'=",
    "$A",
    "$W",
    "$E",
    "$N",
    "${B}",
    "${N:-x y}",
    '"$A"',
    '"$@"',
    "\\\n",
    "'c d'",
    '"\\"',
    "-x",
    "{a}",
]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "dash"])
@given(st.lists(st.sampled_from(_PARTS), max_size=10).map("".join))
def test_a_shell_agrees(shell: str, text: str) -> None:
    """Where words are told, the shell has the same ones."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not there")
    try:
        ours = words(f"srv {text}", shell)
    except (UnreadableError, ValueError):
        return
    if ours is None:
        return
    theirs = _asked(shell, f"srv {text}")
    assert theirs is None or theirs == ours


@pytest.mark.parametrize(("script", "expected"), CERTAIN)
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_shell_says_the_same_of_the_examples(shell: str, script: str, expected: tuple[str, ...]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not there")
    if script.startswith(("exec", "command", "cd / && .", "f()")):
        pytest.skip("a function does not stand for the program there")
    asked = _asked(shell, script.replace("2>&1", "").replace(">/dev/null", ""))
    assert asked == expected
