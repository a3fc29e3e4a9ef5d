"""The bill: parameters and bytes by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftmark.engines.model_config.quantization import Quantization
from draftmark.engines.model_config.tensors import Part, Tensor
from draftmark.errors import BadInputError

ITEMSIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Share:
    """What one part of a model takes: parameters, and bytes as its checkpoint stores them."""

    part: Part
    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a model, or of one rank of it.

    `mtp` is what multi-token prediction has of its own; `mtp_copies` the embedding and head that some checkpoints
    hold for it a second time. Neither belongs to the target that an engine loads first.
    """

    shares: tuple[Share, ...]

    def of(self, *parts: Part) -> Share:
        """These parts together; nothing of a part that the model lacks."""
        chosen = [each for each in self.shares if each.part in parts]
        return Share(parts[0], sum(each.parameters for each in chosen), sum(each.bytes for each in chosen))

    @property
    def parameters(self) -> int:
        """Of the whole checkpoint."""
        return sum(each.parameters for each in self.shares)

    @property
    def bytes(self) -> int:
        """Of the whole checkpoint."""
        return sum(each.bytes for each in self.shares)

    @property
    def target_bytes(self) -> int:
        """What an engine loads as the target: all but multi-token prediction."""
        return self.bytes - self.of("mtp", "mtp_copies").bytes

    @property
    def mtp_draft_bytes(self) -> int:
        """Multi-token prediction loaded as a draft: with an embedding and a head, be they copies or not."""
        if not self.of("mtp").bytes:
            return 0
        embedding, head = self.of("embedding").bytes, self.of("lm_head").bytes
        return self.of("mtp").bytes + embedding + (head or embedding)


def bill(tensors: Iterable[Tensor], quantization: Quantization, dtype: str, ranks: int = 1) -> Weights:
    """Adds up tensors as they are stored.

    Args:
        tensors: All of the model's.
        quantization: How matrices are stored.
        dtype: Of what is not quantized.
        ranks: Of a tensor-parallel group; the bill is of one of them, the fullest.

    Raises:
        BadInputError: The sizes of this quantization or type are not known.
    """
    if quantization.unknown:
        raise BadInputError(
            f"The bytes of the weights cannot be told from config.json: {quantization.unknown}",
            next_step="give the directory with the model's .safetensors files, or a boot log of the server",
        )
    size = ITEMSIZES.get(dtype)
    if size is None:
        raise BadInputError(f"config.json: the type {dtype[:40]} is not known", next_step="check torch_dtype")
    parameters: dict[Part, int] = {}
    stored: dict[Part, int] = {}
    for each in tensors:
        scheme = quantization.scheme(each)
        one = (
            scheme.bytes(each.rows, each.columns) if scheme else each.rows * each.columns * (each.itemsize or size)
        )
        pieces = min(ranks, each.pieces or ranks)
        parameters[each.part] = parameters.get(each.part, 0) + -(-each.parameters // pieces)
        stored[each.part] = stored.get(each.part, 0) + -(-one * each.count // pieces)
    return Weights(tuple(Share(part, parameters[part], stored[part]) for part in parameters))
