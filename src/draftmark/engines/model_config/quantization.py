"""`quantization_config` of a config.json (or ModelOpt's hf_quant_config.json): which weights are stored how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from draftmark.engines.model_config import scheme as schemes
from draftmark.engines.model_config.fields import words
from draftmark.engines.model_config.names import Names, parents, rootless
from draftmark.engines.model_config.scheme import Scheme
from draftmark.engines.model_config.tensors import Part, Tensor

_Table = Mapping[str, object]
# The names of matrix classes that mean every projection.
_ANY_LINEAR = {"Linear"}
_BITS = (2, 3, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a checkpoint's matrices are stored.

    Attributes:
        method: As the file calls it; "" for a checkpoint that is not quantized.
        scheme_name: Of its (first) scheme.
        kv_cache: The type of KV cache that the checkpoint is made for, where it says so (`fp8`); else None.
        unknown: Why its sizes cannot be told; "" when they can.
    """

    method: str = ""
    scheme_name: str = ""
    kv_cache: str | None = None
    unknown: str = ""
    rules: tuple[tuple[Names | None, Scheme], ...] = field(default=(), repr=False)
    named: Mapping[str, Scheme] = field(default_factory=dict, repr=False)
    ignored: Names = field(default_factory=lambda: Names(()), repr=False)
    head: bool = False
    parts: frozenset[Part] | None = None

    def scheme(self, tensor: Tensor) -> Scheme | None:
        """How this weight is stored, or None for as it is."""
        if not tensor.linear or not (self.rules or self.named):
            return None
        if self.parts is not None and tensor.part not in self.parts:
            return None
        if tensor.part == "lm_head" and not self.head:
            return None
        if self.ignored.has(tensor.name):
            return None
        if self.named:
            found = next((each for each in parents(tensor.name.replace("*", "0")) if each in self.named), None)
            return self.named[found] if found else None
        return next((found for names, found in self.rules if names is None or names.has(tensor.name)), None)


def quantization(config: _Table | None) -> Quantization:
    """Reads it. A method that is not known gives one whose `unknown` says so: shapes hold, bytes are refused."""
    if not config:
        return Quantization()
    table = config.get("quantization")
    if isinstance(table, Mapping) and "quant_method" not in config:  # hf_quant_config.json
        config = {"quant_method": "modelopt", **table}
    method = str(config.get("quant_method") or ("modelopt" if "quant_algo" in config else "")).lower()
    method = method.replace("_", "-")
    reader = _READERS.get(method)
    if reader is None:
        return _refused(
            config, method or "unnamed", f"the quantization method {method or '(none named)'} is not known"
        )
    return reader(config, method)


def _refused(config: _Table, method: str, why: str) -> Quantization:
    return Quantization(method=method, unknown=why, kv_cache=_kv_cache(config))


def _single(config: _Table, method: str, found: Scheme, *lists: str, head: bool = False) -> Quantization:
    return Quantization(
        method=method,
        scheme_name=found.name,
        rules=((None, found),),
        ignored=Names(entry for name in lists for entry in words(config.get(name))),
        kv_cache=_kv_cache(config),
        head=head,
    )


def _kv_cache(config: _Table) -> str | None:
    told = config.get("kv_cache_quant_algo") or config.get("kv_cache_scheme")
    if isinstance(told, Mapping):
        return f"{'fp' if told.get('type') == 'float' else 'int'}{told.get('num_bits')}"
    return told.lower() if isinstance(told, str) else None


def _whole(config: _Table, *names: str) -> int | None:
    value = next((config[name] for name in names if config.get(name) is not None), None)
    usable = isinstance(value, int) and not isinstance(value, bool) and (value == -1 or 0 < value <= 2**20)
    return value if usable and isinstance(value, int) else None


def _positive(value: int | None) -> int | None:
    return value if value and value > 0 else None


def _fp8(config: _Table, method: str) -> Quantization:
    lists = ("modules_to_not_convert", "ignored_layers")
    block = config.get("weight_block_size")
    if block is None:
        channel = method == "fbgemm-fp8"
        found = schemes.fp8(static=config.get("activation_scheme") == "static", channel=channel)
        return _single(config, method, found, *lists)
    shared = _block(block)
    if not shared:
        return _refused(config, method, f"weight_block_size {block} is not usable")
    if config.get("moe_quant_algo"):
        return _refused(config, method, "its experts are stored another way than the rest")
    return _single(config, method, schemes.fp8(shared), *lists)


def _block(value: object) -> tuple[int, int] | None:
    """Rows and columns that share a scale."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    rows, columns = (each if isinstance(each, int) and each > 0 else None for each in value)
    return (rows, columns) if rows and columns else None


def _awq(config: _Table, method: str) -> Quantization:
    bits, group = _whole(config, "bits", "w_bit"), _whole(config, "group_size", "q_group_size")
    if bits is None or group is None:
        return _refused(config, method, "quantization_config names no bits or no group_size")
    if bits not in _BITS:
        return _refused(config, method, f"weights of {bits} bits are not known")
    zeros = config.get("zero_point") is not False
    return _single(config, method, schemes.integer(bits, group, zeros=zeros), "modules_to_not_convert")


def _gptq(config: _Table, method: str) -> Quantization:
    bits, group = _whole(config, "bits"), _whole(config, "group_size")
    if bits is None or group is None:
        return _refused(config, method, "quantization_config names no bits or no group_size")
    if bits not in _BITS:
        return _refused(config, method, f"weights of {bits} bits are not known")
    dynamic = config.get("dynamic")
    rules = list(dynamic) if isinstance(dynamic, Mapping) else []
    if any(not str(rule).startswith("-:") for rule in rules):
        return _refused(config, method, "it stores some modules with other bits than the rest (`dynamic`)")
    made = _single(
        config,
        method,
        schemes.integer(bits, group, zeros=True, act_order=True),
        "modules_to_not_convert",
        head=config.get("lm_head") is True,
    )
    if not rules:
        return made
    return Quantization(
        method=method,
        scheme_name=made.scheme_name,
        rules=made.rules,
        head=made.head,
        ignored=Names(f"re:.*{str(rule)[2:]}" for rule in rules),
    )


def _mxfp4(_config: _Table, method: str) -> Quantization:
    made = schemes.microscaled(4)
    return Quantization(
        method=method, scheme_name=made.name, rules=((None, made),), parts=frozenset(("experts",))
    )  # gpt-oss: the experts alone


def _bitsandbytes(config: _Table, method: str) -> Quantization:
    skip = ("llm_int8_skip_modules",)
    if config.get("load_in_8bit"):
        return _single(config, method, schemes.channel_integer(), *skip)
    if config.get("load_in_4bit"):
        double = config.get("bnb_4bit_use_double_quant") is True
        return _single(config, method, schemes.bnb4(double=double), *skip)
    return _refused(config, method, "quantization_config says neither load_in_4bit nor load_in_8bit")


def _weights_scheme(weights: object, form: str) -> Scheme | str:
    """A scheme from compressed-tensors' description, or why there is none."""
    if not isinstance(weights, Mapping):
        return "a config group says nothing of its weights"
    bits, group = _whole(weights, "num_bits"), _whole(weights, "group_size")
    kind, strategy = weights.get("type"), weights.get("strategy") or ("group" if group else "tensor")
    if kind == "float" and bits == 8:
        return _float8(weights, str(strategy), group)
    if kind == "float" and bits == 4:
        micro = "mxfp4" in form or group == 32
        return schemes.microscaled(4) if micro else schemes.nvfp4(_positive(group) or 16)
    if kind == "int" and bits in (4, 8):
        if strategy in ("channel", "tensor") and bits == 8 and "pack" not in form:
            return schemes.channel_integer()
        return schemes.integer(bits, group or 0, zeros=weights.get("symmetric") is False)
    return f"weights of {bits} bits of type {kind} are not known"


def _float8(weights: _Table, strategy: str, group: int | None) -> Scheme | str:
    if strategy == "block":
        shared = _block(weights.get("block_structure"))
        return schemes.fp8(shared) if shared else "the blocks of its 8-bit floats are not usable"
    if strategy == "group" and group == 32:
        return schemes.microscaled(8)
    return schemes.fp8(channel=strategy == "channel")


def _compressed_tensors(config: _Table, method: str) -> Quantization:
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        return _refused(config, method, "quantization_config has no config_groups")
    rules: list[tuple[Names | None, Scheme]] = []
    for group in groups.values():
        table = group if isinstance(group, Mapping) else {}
        form = str(table.get("format") or config.get("format") or "")
        made = _weights_scheme(table.get("weights"), form)
        if isinstance(made, str):
            return _refused(config, method, made)
        targets = words(table.get("targets")) or ("Linear",)
        strange = [each for each in targets if each[:1].isupper() and each not in _ANY_LINEAR]
        if strange:
            return _refused(config, method, f"it stores modules of class {strange[0]} in a way of their own")
        if set(targets) & _ANY_LINEAR:
            rules.append((None, made))
        else:  # named modules go before a rule for all the others
            rules.insert(0, (Names(targets), made))
    return Quantization(
        method=method,
        scheme_name=rules[0][1].name,
        rules=tuple(rules),
        ignored=Names(words(config.get("ignore"))),
        kv_cache=_kv_cache(config),
        head=True,
    )


def _algorithm(name: object, group: int | None) -> Scheme | None:
    """ModelOpt's names."""
    found: dict[str, Scheme] = {
        "FP8": schemes.fp8(static=True),
        "FP8_PER_CHANNEL_PER_TOKEN": schemes.fp8(channel=True),
        "FP8_PB_WO": schemes.fp8((128, 128)),
        "NVFP4": schemes.nvfp4(_positive(group) or 16),
        "W4A16_NVFP4": schemes.nvfp4(_positive(group) or 16),
        "MXFP4": schemes.microscaled(4),
        "MXFP8": schemes.microscaled(8),
        "W4A16_AWQ": schemes.integer(4, group or 128, zeros=False),
        "INT8": schemes.channel_integer(),
    }
    return found.get(str(name).upper())


def _modelopt(config: _Table, method: str) -> Quantization:
    lists = ("exclude_modules", "ignore")
    group = _whole(config, "group_size")
    if str(config.get("quant_algo")).upper() != "MIXED_PRECISION":
        made = _algorithm(config.get("quant_algo"), group)
        if made is None:
            return _refused(config, method, f"the quantization {config.get('quant_algo')} of ModelOpt is not known")
        return _single(config, method, made, *lists, head=True)
    layers = config.get("quantized_layers")
    named: dict[str, Scheme] = {}
    for name, table in layers.items() if isinstance(layers, Mapping) else ():
        told = table if isinstance(table, Mapping) else {}
        made = _algorithm(told.get("quant_algo"), _whole(told, "group_size"))
        if made is None:
            return _refused(config, method, f"the quantization {told.get('quant_algo')} of {name} is not known")
        named[rootless(str(name))] = made
    if not named:
        return _refused(config, method, "it mixes quantizations, and does not say where")
    return Quantization(
        method=method,
        scheme_name="mixed",
        named=named,
        ignored=Names(entry for each in lists for entry in words(config.get(each))),
        kv_cache=_kv_cache(config),
        head=True,
    )


_READERS: dict[str, Callable[[_Table, str], Quantization]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "awq": _awq,
    "awq-marlin": _awq,
    "gptq": _gptq,
    "gptq-marlin": _gptq,
    "auto-round": _gptq,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
}
