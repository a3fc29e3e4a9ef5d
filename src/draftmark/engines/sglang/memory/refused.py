"""Why a model does not start under some flags, whatever memory there is: SGLang's own checks of shapes. Pure.

Those of a command line alone are `refusals`; these look at the model, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from draftmark.engines.model_config.shape import ModelShape
from draftmark.engines.model_config.tensors import Tensor
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.engines.sglang.versions import choices, rules_for
from draftmark.errors import UsageError

_LISTED = (
    "quantization", "load-format", "attention-backend", "prefill-attention-backend", "decode-attention-backend",
)  # fmt: skip
_IN_BLOCKS = ("attention", "mlp", "experts")
_ROW_PARALLEL = ("o_proj", "down_proj", "out_proj", "w2")  # their inputs are divided among ranks, not their outputs


@dataclass(frozen=True, slots=True)
class Refused:
    """Why, in words, and what starts instead."""

    because: str
    instead: str = ""

    @property
    def more(self) -> tuple[str, ...]:
        """What to change."""
        return (self.instead,) if self.instead else ()


def check_choices(rules: Rules, settings: Settings, values: Mapping[str, object]) -> None:
    """Values that this version's parser does not take.

    Raises:
        UsageError: One of them.
    """
    early = rules.state == "upfront"
    strategies = ("auto", "no_buffer", "extra_buffer", *(() if early else ("extra_buffer_lazy",)))
    chosen: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
        ("--mamba-scheduler-strategy" if early else "--mamba-radix-cache-strategy", settings.strategy, strategies),
        ("--mamba-ssm-dtype", settings.ssm_dtype, ("float32", "bfloat16", "float16")),
        ("--dtype", settings.dtype, ("auto", "half", "float16", "bfloat16", "float", "float32")),
        ("--kv-cache-dtype", settings.kv_dtype, ("auto", *rules.kv_dtypes)),
        *_listed(rules, values),
    )
    for flag, value, known in chosen:
        if value is not None and value not in known:
            raise UsageError(
                f"{flag} {value[:60]}: SGLang {rules.version} has no such choice",
                next_step=f"one of {', '.join(known)}",
            )


def _listed(rules: Rules, values: Mapping[str, object]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Values whose choices are in choices.toml, which is read only for one who gives them."""
    for name in _LISTED:
        value = values.get(name.replace("-", "_"))
        if isinstance(value, str) and value != "None":
            known = "attention-backend" if name.endswith("attention-backend") else name
            yield f"--{name}", value, choices(known, rules_for(rules.version).minor)


def refused(rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    """The first check that would end the start; None where none does."""
    return next((found for check in _CHECKS if (found := check(rules, settings, shape)) is not None), None)


def _ranks(_rules: Rules, settings: Settings, _shape: ModelShape) -> Refused | None:
    if settings.dp_attention and settings.tp % settings.dp:
        return Refused(
            f"--enable-dp-attention divides {settings.tp} ranks among {settings.dp}, which does not come out even: "
            "SGLang ends with an AssertionError",  # 14:server_args.py:5052, 23:arg_groups/parallel_hook.py:326
            f"a --tp-size that {settings.dp} divides",
        )
    return None


def _heads(_rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    """Every class asserts them alike (17:models/llama.py:160-170, qwen3_moe.py:463-473, deepseek_v2.py:1774)."""
    ranks = settings.attention_tp
    for layers in shape.attention:
        told = f"{shape.architecture} cannot be divided among {ranks} ranks"
        if layers.heads % ranks:
            return Refused(
                f"{told}: it has {layers.heads} attention heads. SGLang ends with an AssertionError", _sizes(shape)
            )
        if layers.kind != "mla" and layers.kv_heads % ranks and ranks % layers.kv_heads:
            return Refused(
                f"{told}: it has {layers.kv_heads} KV heads. SGLang ends with an AssertionError", _sizes(shape)
            )
    linear = shape.linear
    if linear is not None and linear.heads % ranks:  # 17:configs/mamba_utils.py:224, 296
        return Refused(
            f"{shape.architecture} cannot be divided among {ranks} ranks: it has {linear.heads} heads of linear "
            "attention. SGLang ends with an AssertionError",
            _sizes(shape),
        )
    return None


def _sizes(shape: ModelShape) -> str:
    """Tensor-parallel sizes that its heads allow, up to 64."""
    good = [str(ranks) for ranks in range(1, 65) if _divides(shape, ranks)]
    return f"--tp-size {', '.join(good)}"


def _divides(shape: ModelShape, ranks: int) -> bool:
    for layers in shape.attention:
        if layers.heads % ranks:
            return False
        if layers.kind != "mla" and layers.kv_heads % ranks and ranks % layers.kv_heads:
            return False
    return shape.linear is None or shape.linear.heads % ranks == 0


def _blocks(_rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    """Matrices with a scale a block are divided between blocks only.

    Source: 10:layers/quantization/fp8.py:325-336, 821; 17:…:496-520, 1135; 23:…:597-608, 1591.
    """
    if settings.tp == 1 or settings.quantization not in (None, "fp8"):
        return None
    for tensor, size, block in _divided(settings, shape):
        if size % block:
            return Refused(
                f"{shape.architecture} in FP8 blocks cannot be divided among {settings.tp} ranks: {size} of "
                f"{tensor.name.rpartition('.')[2]} a rank are no multiple of its block of {block}. SGLang ends "
                "with a ValueError",
                "a smaller --tp-size, or --ep-size for its experts"
                if tensor.part == "experts"
                else "a smaller --tp-size",
            )
    return None


def _divided(settings: Settings, shape: ModelShape) -> Iterator[tuple[Tensor, int, int]]:
    """Matrices stored in blocks, with what one rank has of the side that is divided, and the block's size there."""
    for tensor in shape.tensors:
        scheme = shape.quantization.scheme(tensor) if tensor.linear else None
        if scheme is None or not scheme.group or scheme.group_rows == 1 or tensor.part not in _IN_BLOCKS:
            continue
        ranks = settings.tp // settings.ep if tensor.part == "experts" else settings.tp
        if tensor.pieces == 1 or ranks <= 1 or (settings.dp_attention and tensor.part != "experts"):
            continue
        ranks = min(ranks, tensor.pieces) if tensor.pieces else ranks
        if tensor.name.endswith(_ROW_PARALLEL):
            yield tensor, tensor.columns // ranks, scheme.group
        else:
            yield tensor, tensor.rows // ranks, scheme.group_rows


def _strategy(rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    """How a hybrid model's radix cache keeps state, and what goes with it.

    Source: 10:server_args.py:2123-2210, 12:…:2481-2575, 14:…:4355-4400, 17:…:5567-5600, 20:arg_groups/mamba_hook.py
    """
    if shape.linear is None or shape.architecture not in rules.strategy_checked:
        return None
    return _early_strategy(rules, settings, shape) if rules.state == "upfront" else _late(rules, settings, shape)


def _early_strategy(rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    buffered = settings.strategy == "extra_buffer"
    if buffered and shape.architecture in rules.no_extra_buffer:
        return Refused(f"mamba extra_buffer is not supported for {shape.architecture}", "the default strategy")
    if buffered and not settings.radix:
        return Refused(
            "mamba extra_buffer is not compatible with --disable-radix-cache",
            "--mamba-scheduler-strategy no_buffer",
        )
    if not buffered and settings.radix and settings.algorithm is not None:
        others = (
            ""
            if shape.architecture in rules.no_extra_buffer
            else ("--mamba-scheduler-strategy extra_buffer with the variable SGLANG_ENABLE_SPEC_V2=1, or ")
        )
        return Refused(
            f"speculative decoding for {shape.architecture} is not compatible with the radix cache under "
            "--mamba-scheduler-strategy no_buffer, which is the default",
            f"{others}--disable-radix-cache",
        )
    return None


def _late(rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    if not settings.radix:
        return None
    supported = shape.architecture in rules.extra_buffer and settings.linear_backend == "triton"
    if settings.strategy.startswith("extra_buffer"):
        return (
            None
            if supported
            else Refused(
                f"extra_buffer is not supported for {shape.architecture}"
                + ("" if shape.architecture in rules.extra_buffer else f" by SGLang {rules.version}"),
                "--mamba-radix-cache-strategy no_buffer with --disable-overlap-schedule, or auto",
            )
        )
    without = settings.strategy == "no_buffer" or not supported
    if without and settings.page_size > 1:
        return Refused("no_buffer only supports --page-size 1", "--page-size 1")
    if settings.strategy == "no_buffer" and settings.overlap:
        return Refused(
            "no_buffer does not support the overlap schedule", "--disable-overlap-schedule beside it, or auto"
        )
    return None


def _eagle3(_rules: Rules, settings: Settings, shape: ModelShape) -> Refused | None:
    """Only EAGLE-3 drafts have the table of tokens that is looked for (10:…eagle_worker.py:172, 23:…_v2.py:366)."""
    if settings.algorithm != "EAGLE3" or settings.draft_path not in (None, settings.model_path):
        return None
    return Refused(
        f"EAGLE3 without a draft path: SGLang loads {shape.architecture} itself as the draft, which is no EAGLE-3 "
        "model, and ends with an AttributeError",
        "--speculative-draft-model-path with an EAGLE-3 model",
    )


_CHECKS: tuple[Callable[[Rules, Settings, ModelShape], Refused | None], ...] = (
    _ranks,
    _heads,
    _blocks,
    _strategy,
    _eagle3,
)
