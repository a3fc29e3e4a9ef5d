"""A unit's command line, written anew: only the flags of an arm change.

Against a real systemd: test_commandline_live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import PurePath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftmark.errors import RefusedError
from draftmark.service.systemd import quoting
from draftmark.service.systemd.alignment import kept
from draftmark.service.systemd.commandline import UnitCommand
from draftmark.service.systemd.unitfile import UnitFile

SERVER = "/opt/llama.cpp/llama-server"
VARIABLES = {
    "FLAGS": "--seed 7 --name 'a b'",
    "TWO": "-c 4096",
    "ONE": "x y",
    "SPEC": "--depth 2",
    "EMPTY": "",
}
OURS = {"--method", "--depth"}


def is_server(argv: Sequence[str]) -> bool:
    return any(PurePath(word).name == "llama-server" for word in argv)


def with_arm(argv: Sequence[str], depth: int) -> tuple[str, ...]:
    """As an engine says it: its flags taken out in every spelling, and given anew at the end."""
    rest = [word for word, ours in zip(argv, is_ours(argv), strict=True) if not ours]
    return (*rest, *(("--method", "eagle", "--depth", str(depth)) if depth else ("--method=none",)))


def is_ours(values: Sequence[str]) -> Iterator[bool]:
    """Of each word whether an arm owns it."""
    value_of_ours = False
    for value in values:
        name, equals, _ = value.partition("=")
        ours = name in OURS and not value_of_ours
        yield ours or value_of_ours
        value_of_ours = ours and not equals


def command(line: str, *, scripts: dict[str, str] | None = None) -> UnitCommand:
    return UnitCommand.parse(
        [UnitFile("/etc/systemd/system/llm@7b.service", f"[Service]\nExecStart={line}\n")],
        VARIABLES,
        {"Id": "llm@7b.service"},
        scripts or {},
        is_server,
        last_wins=True,
    )


def rewritten(line: str, depth: int) -> str:
    read = command(line)
    return read.rewritten(with_arm(read.argv, depth))


# --- an arbitrary command line ------------------------------------------------------------------------------

_CHARACTERS = st.sampled_from(
    [*"ab7é-=/.:,{}#~* ", "\\\\", "\\n", "\\t", "\\x41", "\\q", "%%", "%i", "%n", "%m", "$$", "${ONE}"]
)
_INNER = st.lists(_CHARACTERS, max_size=5).map("".join)
_BARE = _INNER.map(lambda text: text.replace(" ", "_")).filter(lambda text: text not in {"", ";"})
_WORD = st.one_of(
    _BARE,
    _INNER.map(lambda text: f"'{text}'"),
    _INNER.map(lambda text: f'"{text}"'),
    st.tuples(_BARE, _INNER).map(lambda pair: f"{pair[0]}'{pair[1]}'"),
    st.sampled_from(["$FLAGS", "$TWO", "$EMPTY", "$NONE", "${FLAGS}", "--ctx-size=4096", "''", "\\;"]),
)
_SPEC = st.sampled_from(
    [
        "--method eagle",
        "--method=eagle",
        "'--method'  \"eagle\"",
        "--depth 3",
        "--depth=3",
        '--depth "3"',
        "--depth\t5",
        "$SPEC",
    ]
)
_WRAPPER = st.sampled_from(
    ["", "/usr/bin/env A=1 ", "/usr/bin/numactl --interleave=all ", "-/usr/bin/nice -n 5 ", "/usr/bin/uv run -- "]
)


def others(line: str, depth: int | None = None) -> list[str]:
    """The words of a line that an arm does not own, as they are spelled; variables that hold its flags left out.

    One that says the same as the arm's new value may have changed places, and so spelling, with it.

    Those that are no words for the server come last: beside which other they stand does not matter.
    """
    (words,) = (c.words for c in quoting.split(line))
    owned = is_ours([word.value for word in words])
    foreign = [word for word, ours in zip(words, owned, strict=True) if not ours and word.raw != "$SPEC"]
    raw = [word.value if word.value == str(depth) else word.raw for word in foreign]
    return sorted(raw, key=lambda word: (word in {"$EMPTY", "$NONE"}, word if word in {"$EMPTY", "$NONE"} else ""))


@given(
    wrapper=_WRAPPER,
    words=st.lists(st.one_of(_WORD, _WORD, _SPEC), max_size=12),
    gaps=st.sampled_from([" ", "  ", "\t"]),
    depth=st.integers(0, 9),
)
@example(wrapper="", words=["--method eagle", "'7'"], gaps=" ", depth=7)
def test_only_the_flags_of_the_arm_change(wrapper: str, words: list[str], gaps: str, depth: int) -> None:
    line = gaps.join([f"{wrapper}{SERVER}", *words])
    read = command(line)
    wanted = with_arm(read.argv, depth)
    new = read.rewritten(wanted)
    assert read.effective(new) == wanted
    assert command(new).argv == wanted
    if wanted == read.argv:
        assert new == read.line
    assert others(new, depth) == others(line, depth)


@given(
    shell=st.sampled_from(["/bin/sh -c", "/bin/bash -lc", "/usr/bin/env bash -c"]),
    words=st.lists(
        st.sampled_from(
            [
                *("--a", "b\\ c", "'d e'", '"f g"', '"$X"', "${Y:-z}", "$ONE", "--method eagle"),
                *(
                    "--depth=3",
                    "--depth 3",
                    "2>&1",
                    "# why",
                    "%%",
                    "h=i",
                    "''",
                    "$(hostname)",
                ),
            ]
        ),
        max_size=8,
    ),
    depth=st.integers(0, 9),
)
def test_only_the_flags_of_the_arm_change_in_a_script(shell: str, words: list[str], depth: int) -> None:
    script = f"cd /srv && exec {SERVER} {' '.join(words)}"
    read = command(f"{shell} {quoting.quote(script)}")
    wanted = with_arm(read.argv, depth)
    new = read.rewritten(wanted)
    assert read.effective(new) == wanted
    for word in words:
        if not word.startswith(("--method", "--depth")):
            (spelled,) = (w.value for w in quoting.split(f"x {quoting.quote(word)}")[0].words[1:])
            (whole,) = (w.value for c in quoting.split(new) for w in c.words[-1:])
            assert spelled in whole


@given(
    old=st.lists(st.sampled_from("abcd"), max_size=14),
    new=st.lists(st.sampled_from("abcd"), max_size=14),
)
def test_as_many_words_stay_as_can(old: list[str], new: list[str]) -> None:
    pairs = kept(old, new)
    assert all(old[i] == new[j] for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    most = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, j in product(range(len(old)), range(len(new))):
        most[i + 1][j + 1] = most[i][j] + 1 if old[i] == new[j] else max(most[i][j + 1], most[i + 1][j])
    common = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    assert pairs[:common] == [(i, i) for i in range(common)]
    assert len(pairs) == most[len(old)][len(new)]


# --- long ones ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 7])
def test_thousands_of_words(depth: int) -> None:
    flags = [f"--flag{i % 50} {i % 7}" for i in range(2500)]
    flags[1200:1200] = ["--method eagle --depth=3"]
    read = command(f"{SERVER} {' '.join(flags)}")
    wanted = with_arm(read.argv, depth)
    new = read.rewritten(wanted)
    assert read.effective(new) == wanted
    assert others(new) == others(read.line)


def test_thousands_of_other_words() -> None:
    """No arm does that; it is right all the same, and does not take memory by the square."""
    read = command(f"{SERVER} {' '.join(f'a{i}' for i in range(2000))} end")
    wanted = (SERVER, *(f"b{i}" for i in range(2000)), "end")
    assert read.effective(read.rewritten(wanted)) == wanted


# --- one by one ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "new"),
    [
        (
            "S --depth 3 --method eagle -m %i",
            "S -m %i --method eagle --depth 7",
        ),
        (
            "S --method=eagle --depth=3 -m $$x",
            "S -m $$x --method eagle --depth 7",
        ),
        (
            "S -m 'a b' --method eagle --depth 3",
            "S -m 'a b' --method eagle --depth 7",
        ),
        (
            "S --depth 3 --depth=4 --method eagle",
            "S --method eagle --depth 7",
        ),
        ("S --method eagle --depth 3 $TWO", "S $TWO --method eagle --depth 7"),
        ("S $FLAGS --method eagle", "S $FLAGS --method eagle --depth 7"),
        ("S $SPEC --method eagle", "S --method eagle --depth 7"),
    ],
)
def test_how_it_is_spelled(line: str, new: str) -> None:
    read = command(line.replace("S", SERVER, 1))
    assert read.rewritten(with_arm(read.argv, 7)) == new.replace("S", SERVER, 1)


@pytest.mark.parametrize(
    ("line", "because"),
    [
        (
            f"/bin/sh -c '{SERVER} --method eagle $(cat /etc/flags) --depth $RANDOM'",
            "cannot be told",
        ),
        (f"/bin/sh -c 'while :; do {SERVER}; done'", "inside of a loop"),
        (f"/bin/sh -c '{SERVER} a; {SERVER} b'", "several commands"),
        ("/usr/bin/docker run --rm ghcr.io/ggml-org/llama.cpp:server -m /m", "container of docker"),
        ("/usr/local/bin/start", "not recognised as a server"),
        (f"|{SERVER}", "prefix |"),
        (f"{SERVER} 'a", "not closed"),
        (f"{SERVER} a ; {SERVER} b", "several commands"),
    ],
)
def test_what_is_refused(line: str, because: str) -> None:
    with pytest.raises(RefusedError, match=because.replace("|", r"\|")) as caught:
        rewritten(line, 7)
    assert caught.value.exit_status == 30
    assert caught.value.evidence
    assert caught.value.next_step


def with_drop_in(name: str) -> UnitCommand:
    texts = {
        "/etc/systemd/system/llm.service": f"[Service]\nExecStart={SERVER} --depth 3\n",
        f"/run/systemd/system/llm.service.d/{name}": f"[Service]\nExecStart=\nExecStart={SERVER} --depth 9\n",
    }
    files = [UnitFile(path, text) for path, text in texts.items()]
    return UnitCommand.parse(files, {}, {"Id": "llm.service"}, {}, is_server)


@pytest.mark.parametrize(
    ("name", "depth"), [("10-mine.conf", "9"), ("zz-draftmark.conf", "9"), ("zz-draftmark.trial.conf", "3")]
)
def test_a_trial_that_was_left_behind_is_no_part_of_the_unit(name: str, depth: str) -> None:
    assert with_drop_in(name).argv == (SERVER, "--depth", depth)


def test_a_drop_in_that_outranks_any_of_ours_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"zzz-mine\.conf") as caught:
        with_drop_in("zzz-mine.conf")
    assert caught.value.evidence == (
        f"/run/systemd/system/llm.service.d/zzz-mine.conf:3: ExecStart={SERVER} --depth 9",
    )


@pytest.mark.parametrize(
    ("line", "tunable"),
    [
        (f"/usr/bin/docker run --rm image {SERVER} --depth 3", False),
        (f"/usr/bin/podman start -a {SERVER}", False),
        (f"/bin/sh -c 'docker pull image; exec {SERVER} --depth 3'", True),
        (f"/bin/sh -c 'docker run --rm image {SERVER} --depth 3'", False),
        (f"/usr/bin/env -u X sudo docker compose up {SERVER}", False),
        (f"{SERVER} --alias docker run", True),
    ],
)
def test_a_container_is_not_the_unit_s(line: str, tunable: bool) -> None:
    if tunable:
        assert command(line).argv[0] == SERVER
        return
    with pytest.raises(RefusedError, match="container of"):
        command(line)
