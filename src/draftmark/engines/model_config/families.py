"""What is known of model classes (families.toml), and which of them a config.json belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from draftmark.engines.model_config.fields import UnknownArchitectureError, mapping, words
from draftmark.errors import BadInputError

_NESTED = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the models of some classes are built.

    Biases and norms are `yes`, `no`, or the name of the switch in config.json that turns them on.

    Attributes:
        windows: How its sliding windows are told, `""` for a family without: `sliding_window` alone (`all`), a
            switch, one full layer in so many (`pattern`), or Llama 4's `chunks`. `layer_types` goes before them.
        sparse: DeepSeek's sparse attention: its layers have an indexer.
        qk_norm: Norms of queries and keys: one of a head's width, or of the whole projection's (`whole`).
        output_gate: The query projection is twice as wide: half of it gates the output.
        linear: Its linear attention, `""` for none. `parallel`: in each layer, beside full attention.
        experts: Field with the number of routed experts, `""` for a family without; `expert_width`: of one of them.
        shared: Whether shared experts are told by number or by width.
        mtp: How its layers for multi-token prediction are built; `mtp_copies`: its checkpoints keep an embedding
            and a head for them a second time.
        draft: The kind of draft that it is, `""` for a model of its own.
        unpublished: What its configuration names and no checkpoint holds.
        knows: Fields that are refused elsewhere (`unmodelled` in families.toml) and understood here.
    """

    name: str
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    attention: Literal["gqa", "mla"] = "gqa"
    qkv_bias: str = "no"
    o_bias: str = "no"
    mlp_bias: str = "no"
    qk_norm: str = "no"
    output_gate: bool = False
    sinks: bool = False
    windows: str = ""
    sparse: bool = False
    norms: int = 2
    tied: bool = False
    linear: Literal["", "gdn", "mamba2", "kda"] = ""
    parallel: bool = False
    gated_norm: bool = False
    mixer_name: str = "self_attn"
    mlp_name: str = "mlp"
    gated_mlp: bool = True
    experts: str = ""
    expert_width: str = ""
    expert_bias: bool = False
    dense_width: str = "intermediate_size"
    router_name: str = "gate"
    router_bias: str = "no"
    shared: Literal["", "count", "width"] = ""
    shared_field: str = ""
    shared_gate: bool = False
    mtp: Literal["", "deepseek", "qwen", "mimo", "nemotron"] = ""
    mtp_field: str = ""
    mtp_copies: bool = False
    vision: Literal["", "qwen3", "siglip", "llama4"] = ""
    draft: Literal["", "eagle", "eagle3"] = ""
    unpublished: str = ""
    knows: tuple[str, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("families.toml").read_text(encoding="utf-8"))


def unmodelled(family: Family) -> list[str]:
    """Fields that this family's models must not have set."""
    return [name for name in _tables()["unmodelled"] if name not in family.knows]


@cache
def families() -> tuple[Family, ...]:
    """All of them, in the order of the file."""
    tables = {name: table for name, table in _tables().items() if isinstance(table, dict)}
    built = []
    for name, table in tables.items():
        keys = {**tables.get(table.get("like", ""), {}), **table}
        keys.pop("like", None)
        keys = {key: tuple(value) if isinstance(value, list) else value for key, value in keys.items()}
        built.append(Family(name=name, **keys))
    return tuple(built)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The text model of a config.json.

    Attributes:
        architecture: Its class, or its `model_type` where no class is named.
        text: Its part of the file, with what only the outer part says (`tie_word_embeddings`, type, quantization).
    """

    family: Family
    architecture: str
    text: Mapping[str, object]
    assumptions: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()


def find(config: Mapping[str, object]) -> Found:
    """Which family a config.json belongs to.

    Raises:
        UnknownArchitectureError: To none. It says which there are.
        BadInputError: It names neither a class nor a type.
    """
    inner = next((mapping(config[name], name) for name in _NESTED if config.get(name) is not None), None)
    text = config if inner is None else _merged(config, inner)
    named = words(config.get("architectures"))
    if named:
        family = _by("architectures", named[0])
        if family:
            return Found(family=family, architecture=named[0], text=text)
    outer = named[0] if named else str(config.get("model_type") or "")
    if inner is not None:
        return _inner(outer, inner, text)
    kind = config.get("model_type")
    family = _by("model_types", kind)
    if family and not named:
        note = f"config.json names no class: read as {family.name} by its model_type {kind}"
        return Found(family=family, architecture=str(kind), text=text, assumptions=(note,))
    if not outer:
        raise BadInputError(
            "config.json names neither an architecture nor a model_type",
            evidence=(f"fields there: {', '.join(sorted(map(str, config)))[:200]}",),
            next_step="give the config.json that lies beside the model's weights",
        )
    raise _unknown(outer)


def _inner(outer: str, inner: Mapping[str, object], text: Mapping[str, object]) -> Found:
    """The text model of a wrapper that is not known itself."""
    named = words(inner.get("architectures"))
    kind = inner.get("model_type")
    family = (_by("architectures", named[0]) if named else None) or _by("model_types", kind)
    if family is None:
        raise _unknown(f"{outer} around {named[0] if named else kind}")
    return Found(
        family=family,
        architecture=outer or str(kind),
        text=text,
        assumptions=(f"{outer} is not known: its text model is read as {family.name}",),
        not_counted=(f"whatever {outer} has besides its text model",),
    )


def _merged(config: Mapping[str, object], inner: Mapping[str, object]) -> Mapping[str, object]:
    outer_says = ("tie_word_embeddings", "dtype", "torch_dtype", "quantization_config", "compression_config")
    given = {name: config[name] for name in outer_says if config.get(name) is not None}
    return {**given, **{name: value for name, value in inner.items() if value is not None}}


def _by(what: Literal["architectures", "model_types"], name: object) -> Family | None:
    return next((each for each in families() if name in getattr(each, what)), None)


def _unknown(name: str) -> UnknownArchitectureError:
    known = sorted(one for each in families() for one in each.architectures)
    return UnknownArchitectureError(
        f"The architecture {name} is not known: its layers and weights cannot be told from config.json",
        evidence=(f"known: {', '.join(known)}",),
        next_step="if it is built like one of these, put that one first in `architectures` of a copy of its "
        "config.json; else only a start tells",
    )
