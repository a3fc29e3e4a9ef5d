"""draftmark.toml: services by name."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from draftmark.cli.services import Member, fill_in, load, resolve
from draftmark.errors import BadInputError, UsageError
from draftmark.model import Foreign

GOOD = """\
[services.qwen]
unit = "sglang-qwen.service"
host = "gpu1"
foreign = "wait"
lease = 30

[services.big]
host = "gpu1"
members = [{ unit = "node0" }, { unit = "node1", host = "gpu2" }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "draftmark.toml"
    path.write_text(GOOD)
    return path


def args(service: str, **more: object) -> argparse.Namespace:
    return argparse.Namespace(service=service, host=None, **more)


def test_members_stand_in_rank_order_with_their_hosts(file: Path) -> None:
    services = load(file)
    assert services["qwen"].members == (Member("sglang-qwen.service", "gpu1"),)
    assert services["big"].members == (Member("node0", "gpu1"), Member("node1", "gpu2"))


def test_a_reference_is_not_looked_up(file: Path) -> None:
    assert resolve(args("unit:llm"), file) is None
    assert resolve(args("word"), file.with_name("none.toml")) is None


def test_a_name_is_looked_up_and_a_slip_answered(file: Path) -> None:
    named = resolve(args("qwen"), file)
    assert named is not None
    assert named.name == "qwen"
    with pytest.raises(UsageError, match='no service "qwn"') as caught:
        resolve(args("qwn"), file)
    assert caught.value.next_step == "did you mean qwen?"


def test_the_file_itself_may_be_named_when_it_has_one_service(file: Path) -> None:
    with pytest.raises(UsageError, match="several services"):
        resolve(args(str(file)))
    file.write_text('[services.one]\nunit = "x"\n')
    named = resolve(args(str(file)))
    assert named is not None
    assert named.name == "one"


def test_the_command_line_goes_before_the_file(file: Path) -> None:
    named = load(file)["qwen"]
    left = args("qwen", foreign=Foreign.ABORT, patience=120.0, lease=60)
    fill_in(left, named)
    assert (left.foreign, left.patience, left.lease) == (Foreign.WAIT, 120.0, 30)
    given = args("qwen", foreign=Foreign.IGNORE, patience=5.0, lease=99)
    fill_in(given, named)
    assert (given.foreign, given.patience, given.lease) == (Foreign.IGNORE, 5.0, 99)
    elsewhere = args("qwen")
    elsewhere.host = "gpu9"
    with pytest.raises(UsageError, match="on which host"):
        fill_in(elsewhere, named)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "names no services"),
        ("services = 3", "names no services"),
        ("x = 1\n[services.a]\nunit='b'", "not known: x"),
        ("[services.a]", "either unit or members"),
        ("[services.a]\nunit='b'\nmembers=[{unit='c'}]", "either unit or members"),
        ("[services.a]\nunit=''", "unit cannot be ''"),
        ("[services.a]\nunit=3", "unit cannot be 3"),
        ("[services.a]\nunit='b'\nlease=true", "lease cannot be True"),
        ("[services.a]\nunit='b'\nlease=0", "lease cannot be 0"),
        ("[services.a]\nunit='b'\nport=1", "port is not known"),
        ("[services.a]\nunit='b'\nforeign='maybe'", "abort | wait | ignore"),
        ("[services.a]\nmembers=[]", "every member has a unit"),
        ("[services.a]\nmembers=[{host='h'}]", "every member has a unit"),
        ("[services.a]\nmembers=['x']", "is no table"),
        ("[services]\na=1", "is no table"),
        ("[services.a\n", "is not TOML"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "draftmark.toml"
    path.write_text(text)
    with pytest.raises(BadInputError, match=match.replace("|", r"\|")):
        load(path)


def test_junk_and_a_missing_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "draftmark.toml"
    with pytest.raises(BadInputError, match="cannot be read"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="is not TOML"):
        load(path)
