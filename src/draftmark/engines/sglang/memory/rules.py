"""Which release's memory accounting holds: SGLang changed it three times, and nothing in a log says so."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The accounting of one release that was read in source; `rules.toml` says what each field means."""

    version: str
    state: str
    draft_kv: str
    draft_resident: bool
    running_clamp: bool
    small_card: Mapping[str, int]
    outer_nextn_only: bool = False
    swa_draft: bool = False
    lazy_with_speculation: bool = False
    graphs_follow_running: bool = False
    block_draft_kv: str = "none"
    bundled_draft_folder: bool = False
    unchunked_window_cap: bool = False
    deepep_reserve: int = 0
    graphs_if_captured: bool = False
    fused_mla_dim: bool = False
    speculation_reserve: Mapping[str, int] = field(default_factory=dict)
    multimodal_reserve: Mapping[str, int] = field(default_factory=dict)
    extra_buffer: tuple[str, ...] = ()
    one_draft_layer: tuple[str, ...] = ()
    strategy_checked: tuple[str, ...] = ()
    no_extra_buffer: tuple[str, ...] = ()
    radix_off: tuple[str, ...] = ()
    fp8_kv_of_checkpoint: bool = False
    modelopt_flat_kv: bool = False
    kv_dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The rules for a version, and how sure that is.

    Attributes:
        rules: The best guess.
        others: Rules that could hold as well: the figures under them bound the estimate.
        assumption: What was assumed, in words; None for a release that was read.
        outside: It may be older or newer than all that were read: what changed since is in no rules.
    """

    rules: Rules
    others: tuple[Rules, ...] = ()
    assumption: str | None = None
    outside: bool = False


def choose(version: str | None) -> Choice:
    """The rules of a release.

    Args:
        version: As the engine or the user says it, such as `0.5.17`, `v0.5.14.post1`; None when unknown.
    """
    known = releases()
    newest = known[-1]
    number = _number(version)
    if number is None:
        what = "the version is not known" if version is None else f"{version!r} is no version number"
        return Choice(
            rules=newest,
            others=known[:-1],
            outside=True,
            assumption=f"{what}: the accounting of SGLang {newest.version} is assumed",
        )
    older = [each for each in known if _key(each) <= number]
    newer = [each for each in known if _key(each) > number]
    if not older:
        return Choice(
            rules=known[0],
            others=known[1:],
            outside=True,
            assumption=f"SGLang {version} is older than what was read: that of {known[0].version} is assumed",
        )
    rules = older[-1]
    if _key(rules) == number:
        return Choice(rules=rules)
    if newer:
        return Choice(
            rules=rules,
            others=(newer[0],),
            assumption=f"SGLang {version} was not read: the accounting of {rules.version} is assumed, that of "
            f"{newer[0].version} bounds it",
        )
    return Choice(
        rules=rules,
        others=known[:-1],
        outside=True,
        assumption=f"SGLang {version} is newer than what was read: the accounting of {rules.version} is assumed",
    )


@cache
def releases() -> tuple[Rules, ...]:
    """All releases that were read, oldest first."""
    made = (Rules(**{name: _frozen(value) for name, value in table.items()}) for table in _table()["release"])
    return tuple(sorted(made, key=_key))


def drafts_from_target(architecture: str) -> bool:
    """Whether a draft path that is not given becomes the target's own."""
    return architecture in _table()["draft_in_target"]["architectures"]


def has_draft_class(architecture: str) -> bool:
    """Whether the target's own files become a class that only drafts, one layer of them, when no path is given."""
    return architecture in _table()["draft_class"]["architectures"]


def has_window_pool(architecture: str) -> bool:
    """Whether sliding windows have a pool of their own; else they are kept as long as everything else."""
    return architecture in _table()["hybrid_window"]["architectures"]


def window_of(architecture: str, tokens: int | None) -> int | None:
    """What SGLang counts of a window: of some classes one less, the token itself not being looked back at."""
    less = architecture in _table()["window_less_one"]["architectures"]
    return tokens - 1 if less and tokens is not None else tokens


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("rules.toml").read_text(encoding="utf-8"))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _key(rules: Rules) -> tuple[int, int, int]:
    number = _number(rules.version)
    assert number is not None  # noqa: S101 - our own data
    return number


def _number(version: str | None) -> tuple[int, int, int] | None:
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?!\d)", version or "", re.ASCII)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
