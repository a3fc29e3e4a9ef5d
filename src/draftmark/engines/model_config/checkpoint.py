"""A directory with a model: its config.json, and what lies beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from draftmark.engines.model_config.read import read_shape
from draftmark.engines.model_config.safetensors import (
    StoredWeights,
    from_safetensors_headers,
    from_safetensors_index,
    header_length,
)
from draftmark.engines.model_config.shape import ModelShape
from draftmark.errors import BadInputError

_MOST_JSON = 64 * 2**20
# Beyond what is left out on purpose (scales in another type, a buffer): the config.json is not of these files.
_APART = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as its directory tells of it.

    Attributes:
        stored: Exact bytes of the weights: preferred to what the shape adds up to. None where no file says them.
        notes: In words, what beside it could not be used.
    """

    directory: Path
    shape: ModelShape
    stored: StoredWeights | None = None
    notes: tuple[str, ...] = ()

    @property
    def weights_bytes(self) -> int:
        """Of the whole checkpoint: exact where that is known, else added up from the shape.

        A head that is stored although the embedding serves for it is no weight that an engine keeps.

        Raises:
            BadInputError: Neither can be told.
        """
        if not self.stored:
            return self.shape.weights().bytes
        return self.stored.bytes - ((self.stored.head_bytes or 0) if self.shape.tied else 0)


def read_model(directory: Path) -> Model:
    """Reads a directory's config.json, hf_quant_config.json and the sizes of its weights. Only headers are read.

    Raises:
        BadInputError: There is no config.json, or it is of no use.
        UnknownArchitectureError: Its class is not known.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise BadInputError(
            f"{directory} has no config.json: nothing can be told of this model",
            next_step="name a directory that has one (a snapshot of the Hugging Face cache does)",
        )
    extra = directory / "hf_quant_config.json"
    shape = read_shape(_json(path), hf_quant_config=_json(extra) if extra.is_file() else None)
    notes: list[str] = []
    stored = _stored(directory, shape, notes)
    model = Model(directory=directory, shape=shape, stored=stored)
    if stored and not shape.quantization.unknown:
        told, added = model.weights_bytes, shape.weights().bytes
        if abs(told - added) > _APART * added:
            notes.append(f"the files hold {told:,} bytes, config.json adds up to {added:,}: the files are right")
    return replace(model, notes=tuple(notes))


def _json(path: Path) -> Mapping[str, object]:
    try:
        data = path.read_bytes()[: _MOST_JSON + 1]
        parsed = json.loads(data) if len(data) <= _MOST_JSON else None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(
            f"{path} cannot be read as JSON", evidence=(str(error)[:200],), next_step="check the file"
        ) from error
    if not isinstance(parsed, dict):
        raise BadInputError(f"{path} is no JSON object of a usable size", next_step="check the file")
    return parsed


def _stored(directory: Path, shape: ModelShape, notes: list[str]) -> StoredWeights | None:
    """Headers before the index: they are the files themselves, and tell what the index only sums up."""
    index, path = None, directory / "model.safetensors.index.json"
    if path.is_file():
        try:
            index = from_safetensors_index(_json(path))
        except BadInputError as error:
            notes.append(error.what)
    listed = index.files if index else ()
    names = listed or tuple(sorted(each.name for each in directory.glob("model*.safetensors")))
    files = [directory / Path(name).name for name in names]
    if not files or not all(each.is_file() for each in files):
        return index
    try:
        return from_safetensors_headers(map(_header, files), mtp_prefixes=_mtp_prefixes(shape))
    except (BadInputError, OSError) as error:
        notes.append(error.what if isinstance(error, BadInputError) else str(error))
        return index


def _mtp_prefixes(shape: ModelShape) -> tuple[str, ...]:
    """DeepSeek and GLM number such layers after the last of the model; Qwen and Nemotron name them."""
    numbers = range(shape.layers, shape.layers + shape.mtp_layers)
    return ("mtp.", "model.mtp.", *(f"model.layers.{number}." for number in numbers))


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(header_length(file.read(8)))
