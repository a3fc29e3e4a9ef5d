"""The reading of command lines held against argparse itself, with the option strings of each version."""

from __future__ import annotations

import argparse
from functools import cache
from typing import NoReturn

from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.flags import meant, options, parse
from draftmark.engines.sglang.versions import Rules, read_minors

SERVER = ("python3", "-m", "sglang.launch_server")
_NARGS = {"?": "?", "*": "*", "+": "+"}


class AmbiguousError(Exception):
    """More than one option string begins with the word."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AmbiguousError(message)


@cache
def parser(minor: int) -> Parser:
    made = Parser(add_help=False)
    spellings: dict[str, list[str]] = {}
    for each in options().values():
        if each.in_version(minor):
            spellings.setdefault(each.name, []).append(each.spelled)
    for name, spelled in spellings.items():
        arity = options()[name].arity
        if arity == "0":
            made.add_argument(*spelled, dest=name, action="store_true")
        else:
            const = "" if arity == "?" else None
            made.add_argument(*spelled, dest=name, nargs=_NARGS.get(arity), const=const)
    return made


FLAG = st.sampled_from(sorted(options()))
WORD = st.one_of(FLAG, st.tuples(FLAG, st.integers(4, 40)).map(lambda pair: pair[0][: pair[1]]))


@given(WORD, st.sampled_from(read_minors()))
def test_a_word_means_what_it_means_to_argparse(word: str, minor: int) -> None:
    found = {each.name for each in meant(word, Rules(minor))}
    here = [each for each in options().values() if each.in_version(minor)]
    takes = next((each.arity in "1+" for each in here if {each.name} == found), False)
    try:
        theirs, unknown = parser(minor).parse_known_args([word, *(["1"] if takes else [])])
    except AmbiguousError:
        assert sum(each.spelled.startswith(word) for each in here) > 1
        return
    if unknown:
        assert not found
    else:
        assert [name for name, value in vars(theirs).items() if value not in (None, False)] == list(found)


VALUE = st.sampled_from(["1", "0.5", "x", "a=b", "-1", '{"a": 1}', "org/model"])


@given(st.lists(st.tuples(FLAG, st.lists(VALUE, max_size=3), st.booleans()), max_size=6), st.sampled_from([14, 23]))
def test_values_are_given_to_the_flags_that_argparse_gives_them_to(
    groups: list[tuple[str, list[str], bool]], minor: int
) -> None:
    words: list[str] = []
    for flag, values, attached in groups:
        option = options()[flag]
        if not option.in_version(minor):
            continue
        if option.arity == "1":
            value = (values or ["v"])[0]
            words += [f"{flag}={value}"] if attached else [flag, value]
        else:
            words += [flag, *(values if option.arity in "*+" else [])]
            words += ["v"] if option.arity == "+" and not values else []
    theirs = vars(parser(minor).parse_args(words))
    ours = parse((*SERVER, *words), Rules(minor))
    for name, value in theirs.items():
        given_here = [each for each in ours.given if each.name == name]
        if isinstance(value, list):
            assert list(given_here[-1].values) == value
        elif value is True:
            assert given_here
        elif isinstance(value, str):
            assert (ours.value(name) or "") == value
        else:
            assert not given_here or given_here[-1].option is not None
