"""Models by name (`models.toml`) or directory, and cards by name, for a simulated server."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmark.engines.sglang.memory.cards import gpu_of
from draftmark.errors import BadInputError, UsageError
from draftmark.model import Gpu

if TYPE_CHECKING:
    from draftmark.engines.cards import Card

PLACE = "/models"
"""Where presets lie, as the simulated server says."""
_CONFIG_BYTES = 4 << 20
_USUAL = "h200"
_COUNTED = re.compile(r"(?:([1-9][0-9]?)\s*x\s*)?(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Model:
    """A model's `config.json`, and the path under which the server knows it."""

    name: str
    path: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """So many GPUs of a kind.

    Attributes:
        kind: As the user calls one of them.
    """

    count: int
    gpu: Gpu
    kind: str

    @property
    def card(self) -> Card:
        """What one can do at most; an H200's where only a size is given."""
        from draftmark.engines.cards import card_of, cards  # takes as long as all the rest of this room

        return card_of(self.kind) or cards()[_USUAL]


@cache
def _models() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text(encoding="utf-8"))


def model_names() -> tuple[str, ...]:
    """Presets."""
    return tuple(_models())


def model_of(text: str) -> Model:
    """A preset by name, or the model of a directory.

    Raises:
        BadInputError: Neither.
    """
    if text in _models():
        return Model(text, f"{PLACE}/{text}", _models()[text]["config"])
    folder = Path(text).expanduser()
    try:
        with (folder / "config.json").open("rb") as file:
            config = json.loads(file.read(_CONFIG_BYTES))
    except OSError as error:
        raise BadInputError(
            f"--model {text[:80]}: neither a known model nor a directory with config.json",
            evidence=(f"{folder / 'config.json'}: {error.strerror or error}",),
            next_step=f"one of {', '.join(model_names())}, or a directory",
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{folder / 'config.json'} is no JSON", evidence=(str(error)[:200],)) from None
    if not isinstance(config, dict):
        raise BadInputError(f"{folder / 'config.json'} holds no JSON object")
    return Model(folder.name, str(folder.absolute()), config)


def config_bytes(path: str) -> bytes | None:
    """`config.json` of a preset by the path that the server gives it; None for any other path."""
    name = path.removeprefix(f"{PLACE}/").removesuffix("/config.json")
    if path == f"{PLACE}/{name}/config.json" and name in _models():
        return json.dumps(_models()[name]["config"]).encode()
    return None


def cards_of(text: str) -> Cards:
    """`4xrtx-pro-6000`, `h200`, `2x80GiB`.

    Raises:
        UsageError: Neither a known card nor a size.
    """
    found = _COUNTED.fullmatch(text.strip())
    if found is None:
        raise UsageError("--gpus is empty", next_step="--gpus h200")
    name = found[2]
    try:
        gpu = gpu_of(name)
    except UsageError as error:  # in the words of an option that is not here
        raise UsageError(
            f"--gpus {text[:60]}: neither a known card nor a size", next_step=error.next_step
        ) from None
    return Cards(count=int(found[1] or 1), gpu=gpu, kind=name)
