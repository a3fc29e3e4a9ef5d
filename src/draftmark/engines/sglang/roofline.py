"""What of a command line the roofline depends on: the model, its draft, how it is split and in which types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from draftmark.engines.model_config import ModelShape, read_shape
from draftmark.engines.model_config.quantization import quantization
from draftmark.engines.model_config.weights import ITEMSIZES
from draftmark.engines.roofline import Card, DraftKind, Served, card_of
from draftmark.engines.sglang.memory.files import beside, read_config
from draftmark.engines.sglang.memory.settings import Settings, settings_of, values_of
from draftmark.errors import BadInputError, UsageError
from draftmark.ports import FitScene

_DTYPES = {"half": "float16", "float": "float32"}
# Drafts that run token by token, with layers of their own.
_CHAINS = ("EAGLE", "EAGLE3", "STANDALONE")


def served(
    plain: Sequence[str], drafting: Sequence[str], scene: FitScene, version: str | None
) -> tuple[Served, tuple[str, ...]] | None:
    """How a service is served, and what was assumed; None where no card of its host is known.

    Args:
        plain: Its command line as it is.
        drafting: The same with the drafts that are asked about.
        scene: Where its files and cards are.
        version: Of SGLang.

    Raises:
        BadInputError: The model cannot be read, or is split in a way that is not modelled.
        UsageError: A flag cannot be read, or no model is named.
    """
    card = _card(scene)
    if card is None:
        return None
    values = values_of(drafting, version)
    settings = _settings(values)
    path = settings.model_path or _settings(values_of(plain, version)).model_path
    if path is None:
        raise UsageError("no model is named", next_step="give --model-path")
    if settings.pp > 1 or settings.dp > 1:
        raise BadInputError("pipeline and data parallel groups are not modelled here")
    shape = _quantized(read_shape(read_config(scene, path), hf_quant_config=beside(scene, path)), settings)
    kind, draft = _draft(settings, shape, scene, path)
    assumptions = list(shape.assumptions)
    if kind == "unknown":
        assumptions.append("the draft is not known: its passes are in no floor")
    return (
        Served(
            shape=shape,
            card=card,
            tensor_parallel=settings.tp,
            expert_parallel=_expert_parallel(values, settings),
            dtype=_dtype(shape, settings),
            kv_bytes=_kv_bytes(shape, settings),
            state_bytes=ITEMSIZES.get(settings.ssm_dtype or scene.environment.get("SGLANG_MAMBA_SSM_DTYPE", "")),
            draft=kind,
            draft_shape=draft,
        ),
        tuple(assumptions),
    )


def same_model(one: Sequence[str], other: Sequence[str], version: str | None) -> bool:
    """Whether two command lines serve the same model over as many cards: only then are their rounds comparable."""
    first, second = (_settings(values_of(each, version)) for each in (one, other))
    return (first.model_path, first.tp) == (second.model_path, second.tp)


def _settings(values: Mapping[str, object]) -> Settings:
    try:
        return settings_of(values)
    except ValueError as error:
        raise UsageError(str(error), next_step="check the command line") from None


def _card(scene: FitScene) -> Card | None:
    """The fastest of them: a floor must hold whichever the service uses."""
    found = [card for gpu in scene.gpus() if (card := card_of(gpu.name)) is not None]
    return max(found, key=lambda card: card.bandwidth, default=None)


def _quantized(shape: ModelShape, settings: Settings) -> ModelShape:
    """With what is quantized when it is loaded.

    Raises:
        BadInputError: In a way whose bytes are not known.
    """
    if settings.quantization is None or shape.quantization.method:
        return shape
    if settings.quantization != "fp8":
        raise BadInputError(f"the bytes of --quantization {settings.quantization[:40]} are not known here")
    return replace(shape, quantization=quantization({"quant_method": "fp8"}))


def _dtype(shape: ModelShape, settings: Settings) -> str | None:
    if settings.dtype == "auto":
        return "float16" if shape.dtype == "float32" else None
    return _DTYPES.get(settings.dtype, settings.dtype)


def _kv_bytes(shape: ModelShape, settings: Settings) -> float | None:
    name = settings.kv_dtype
    if name == "auto":
        name = shape.quantization.kv_cache or "auto"
    if name.startswith(("fp8", "mxfp8")):
        return 1.0
    if name.startswith("fp4"):
        return 0.5
    return {"bf16": 2.0, "bfloat16": 2.0, "half": 2.0, "float16": 2.0}.get(name)


def _expert_parallel(values: Mapping[str, object], settings: Settings) -> int:
    if str(values.get("moe_a2a_backend", "none")) not in ("none", "None"):
        return settings.tp  # such a backend spreads whole experts over all cards
    told = str(values.get("ep_size", "1"))
    return max(1, min(int(told), settings.tp)) if told.isdecimal() else 1


def _draft(
    settings: Settings, shape: ModelShape, scene: FitScene, path: str
) -> tuple[DraftKind, ModelShape | None]:
    if settings.algorithm in (None, "NGRAM"):
        return "none", None
    if settings.algorithm not in _CHAINS:
        return "unknown", None
    if settings.draft_path in (None, path, scene.model_dir):
        return ("own-layers" if shape.mtp_layers else "unknown"), None
    try:
        return "model", read_shape(read_config(scene, str(settings.draft_path)))
    except BadInputError:
        return "unknown", None
