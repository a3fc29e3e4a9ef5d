"""A model's files, where its service finds them: config.json, and what ModelOpt lays beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from draftmark.errors import BadInputError, UsageError
from draftmark.ports import FitScene


def read_config(scene: FitScene, path: str, name: str = "config.json") -> Mapping[str, Any]:
    """A model's `config.json`, or another of its files: in its directory, or in the user's Hugging Face cache.

    Raises:
        BadInputError: It cannot be found, or is no JSON object.
    """
    tried = []
    for place in _places(scene, path, name):
        try:
            data = scene.read(place)
        except OSError as error:
            tried.append(f"{place}: {error.strerror or error}")
            continue
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadInputError(
                f"{place} is no JSON", evidence=(str(error)[:200],), next_step="check the file"
            ) from None
        if isinstance(found, dict):
            return found
        raise BadInputError(f"{place} holds no JSON object", next_step="check the file")
    raise BadInputError(
        f"no {name} of {path[:200]}",
        evidence=tuple(tried),
        next_step="give the directory that holds config.json: draftmark fit DIR",
    )


def overridden(config: Mapping[str, Any], values: Mapping[str, object]) -> Mapping[str, Any]:
    """With `--json-model-override-args`.

    Raises:
        UsageError: They are no JSON object.
    """
    text = values.get("json_model_override_args")
    if text in (None, "", "{}"):
        return config
    try:
        changes = json.loads(str(text))
    except (ValueError, RecursionError):
        changes = None
    if not isinstance(changes, dict):
        raise UsageError("--json-model-override-args is no JSON object", next_step="check the command line")
    return {**config, **changes}


def _places(scene: FitScene, path: str, name: str) -> list[str]:
    if path.endswith(".json"):
        return [path]
    places = [f"{path.rstrip('/')}/{name}"]
    if path.count("/") == 1 and not path.startswith(("/", ".", "~")):
        cache = scene.environment.get("HF_HUB_CACHE") or (
            (scene.environment.get("HF_HOME") or scene.environment.get("HOME", "/root") + "/.cache/huggingface")
            + "/hub"
        )
        folder = f"{cache}/models--{path.replace('/', '--')}"
        try:
            revision = scene.read(f"{folder}/refs/main").decode("ascii", "replace").strip()[:64]
            places.append(f"{folder}/snapshots/{revision}/{name}")
        except OSError:
            places.append(f"{folder}/snapshots/…/{name}")
    return places


def beside(scene: FitScene, path: str) -> Mapping[str, Any] | None:
    """ModelOpt's file, which speaks of quantization where config.json does not; None where there is none."""
    if path.endswith(".json"):
        path = path.rpartition("/")[0]
    try:
        found = read_config(scene, path, "hf_quant_config.json")
    except BadInputError:
        return None
    return found if isinstance(found.get("quantization"), Mapping) else None


def has_file(scene: FitScene, path: str, name: str) -> bool:
    """Whether a model has a file, by its name in the model's directory."""
    try:
        read_config(scene, path, name)
    except BadInputError:
        return False
    return True
