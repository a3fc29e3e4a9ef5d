"""Exact sizes of stored weights: from a sharded checkpoint's index, or from the headers of its files."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from draftmark.errors import BadInputError

# The format's own limit of a header; a longer one is no safetensors file (github.com/huggingface/safetensors).
MAX_HEADER = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """Bytes that a checkpoint holds.

    Attributes:
        mtp_bytes: Of them, of layers for multi-token prediction; None where that cannot be told.
        head_bytes: Of them, of the output head; a checkpoint may hold one although the embedding serves for it.
        tensors: How many weights, all files together; None where that is not listed.
        elements: Elements by stored type (`BF16`); empty where that is not listed.
        files: The checkpoint's files.
        source: What told it.
    """

    bytes: int
    mtp_bytes: int | None = None
    head_bytes: int | None = None
    tensors: int | None = None
    elements: tuple[tuple[str, int], ...] = ()
    files: tuple[str, ...] = ()
    source: str


def from_safetensors_index(index: Mapping[str, object]) -> StoredWeights:
    """The total of a parsed model.safetensors.index.json.

    Raises:
        BadInputError: It has none.
    """
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if (
        isinstance(total, bool)
        or not isinstance(total, (int, float))
        or not 0 < total < 2**60
        or total != int(total)
    ):
        raise BadInputError(
            "model.safetensors.index.json has no usable metadata.total_size",
            evidence=(f"total_size: {str(total)[:60]}",),
            next_step="put the .safetensors files beside it: their headers say it too",
        )
    names = index.get("weight_map")
    named = names if isinstance(names, Mapping) else {}
    return StoredWeights(
        bytes=int(total),
        tensors=len(named) or None,
        files=tuple(sorted({each for each in named.values() if isinstance(each, str)})),
        source="model.safetensors.index.json",
    )


def header_length(start: bytes) -> int:
    """How long a file's header is, from its first eight bytes.

    Raises:
        BadInputError: It is no safetensors file.
    """
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= MAX_HEADER:
        raise BadInputError(
            "A .safetensors file does not begin with the length of its header",
            evidence=(f"first bytes: {start[:8].hex(' ')}",),
            next_step="check that it was fetched whole (a Git LFS pointer is not the file)",
        )
    return int(length)


def from_safetensors_headers(
    headers: Iterable[bytes], *, mtp_prefixes: tuple[str, ...] = ("mtp.",)
) -> StoredWeights:
    """The sum over files' headers: their JSON, without the eight bytes before it.

    Args:
        headers: One a file.
        mtp_prefixes: How the names of weights for multi-token prediction begin.

    Raises:
        BadInputError: One of them is no such header.
    """
    total = mtp = head = tensors = 0
    elements: dict[str, int] = {}
    for header in headers:
        for name, entry in _entries(header):
            size, kind, count = _sizes(name, entry)
            total, tensors = total + size, tensors + 1
            elements[kind] = elements.get(kind, 0) + count
            if name.startswith(mtp_prefixes):
                mtp += size
            if name.endswith("lm_head.weight"):
                head += size
    if not tensors:
        raise BadInputError(
            "The .safetensors files hold no weights", next_step="check that they were fetched whole"
        )
    return StoredWeights(
        bytes=total,
        mtp_bytes=mtp,
        head_bytes=head,
        tensors=tensors,
        elements=tuple(sorted(elements.items())),
        source="headers of the .safetensors files",
    )


def _entries(header: bytes) -> list[tuple[str, object]]:
    try:
        parsed = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise _broken(str(error)) from error
    if not isinstance(parsed, dict):
        raise _broken("no object")
    return [(name, entry) for name, entry in parsed.items() if name != "__metadata__"]


def _sizes(name: str, entry: object) -> tuple[int, str, int]:
    """Bytes, type and elements of one weight."""
    table = entry if isinstance(entry, dict) else {}
    offsets, shape = _wholes(table.get("data_offsets")), _wholes(table.get("shape"))
    if offsets is None or shape is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _broken(f"{name[:80]}: no usable data_offsets or shape")
    return offsets[1] - offsets[0], str(table.get("dtype")), math.prod(shape)


def _wholes(value: object) -> list[int] | None:
    usable = isinstance(value, list) and all(isinstance(each, int) and 0 <= each < 2**60 for each in value)
    return value if usable and isinstance(value, list) else None


def _broken(why: str) -> BadInputError:
    return BadInputError(
        "A .safetensors file's header cannot be read",
        evidence=(why[:200],),
        next_step="check that the file was fetched whole",
    )
