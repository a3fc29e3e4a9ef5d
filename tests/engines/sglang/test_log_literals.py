"""Arguments from their repr: what Python prints is read back, a cut gives a part, and nothing is run."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.log.literals import Arguments, read_arguments

PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)
NAMES = st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True)
KEYS = NAMES.filter(lambda name: name not in ("inf", "nan"))


@given(st.dictionaries(KEYS, PLAIN, max_size=5))
def test_what_python_prints_is_read_back(values: dict[str, Any]) -> None:
    assert read_arguments(repr(values)) == Arguments(values, complete=True)
    call = ", ".join(f"{name}={value!r}" for name, value in values.items())
    assert read_arguments(f"ServerArgs({call})") == Arguments(values, complete=True)


@given(st.dictionaries(KEYS, PLAIN, min_size=1, max_size=4), st.floats(0, 1))
def test_a_cut_gives_the_values_that_are_whole(values: dict[str, Any], share: float) -> None:
    text = repr(values)
    read = read_arguments(text[: int(share * (len(text) - 1))])
    assert not read.complete
    assert list(read.values.items()) == list(values.items())[: len(read.values)]


@given(st.text(alphabet="ServArgs(){}[]<>'\",:=\\ 0123456789.-eNoneTrub"))
def test_no_text_raises(text: str) -> None:
    read_arguments(text)
    read_arguments("ServerArgs(" + text)
    read_arguments("{" + text)


def test_nested_dataclasses_are_dicts() -> None:
    read = read_arguments("ServerArgs(g=Config(decode=Phase(bs=[1, 2], backend='full'), n=None), m=3) and more")
    assert read == Arguments({"g": {"decode": {"bs": [1, 2], "backend": "full"}, "n": None}, "m": 3}, complete=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("PosixPath('/models/x')", "/models/x"),
        ("<Mode.AUTO: 'auto'>", "<Mode.AUTO: 'auto'>"),
        ("<function f at 0x7f00>", "<function f at 0x7f00>"),
        ("torch.bfloat16", "torch.bfloat16"),
        ("b'raw'", "raw"),
        ('"it\'s"', "it's"),
        (r"'a\'b\\c\n\u00e9'", "a'b\\c\né"),
        ("{1, 2}", [1, 2]),
        ("{}", {}),
        ("(1,)", (1,)),
        ("-1.5e-3", -0.0015),
        ("inf", math.inf),
        ("-1", -1),
        ("['x, y=(', 2]", ["x, y=(", 2]),
        ("__import__('os').system('true')", "__import__('os').system('true')"),
    ],
)
def test_values(text: str, value: object) -> None:
    read = read_arguments(f"ServerArgs(before=1, it={text}, after='2')")
    assert read.complete
    assert read.values["before"] == 1
    assert read.values["after"] == "2"
    assert read.values["it"] == value


def test_a_number_at_the_cut_is_not_believed() -> None:
    assert read_arguments("ServerArgs(a=1, max_running_requests=4") == Arguments({"a": 1}, complete=False)
    assert read_arguments("ServerArgs(a=1, max_running_requests=48,").values["max_running_requests"] == 48
