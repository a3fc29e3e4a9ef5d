"""What is asked of a server: its paths and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from draftmark.model import Prompt


@dataclass(frozen=True, slots=True)
class Api:
    """One HTTP surface.

    Attributes:
        name: As `--api` says it.
        path: Below the server's base.
        chat: Messages are sent as they are; otherwise their contents are joined into one prompt.
        native: SGLang's own form, which takes token ids; see `draftmark.load.native`.
    """

    name: str
    path: str
    chat: bool
    native: bool = False


APIS = {
    api.name: api
    for api in (
        Api("openai-chat", "/v1/chat/completions", chat=True),
        Api("openai", "/v1/completions", chat=False),
        Api("sglang", "/generate", chat=True, native=True),
    )
}


def request_body(
    api: Api,
    prompt: Prompt,
    *,
    tag: str,
    model: str | None = None,
    usage: bool = True,
    extra: Mapping[str, object] | None = None,
) -> bytes:
    """The JSON body of one request to an OpenAI-compatible server.

    Args:
        api: The surface.
        prompt: What to ask.
        tag: Sent as `user`, the one field of this API that names a request; the header carries it too.
        model: None leaves the field out.
        usage: Ask for token counts with `stream_options`.
        extra: The engine's further fields, which win over ours. A value `"{tag}"` becomes the tag: engines with
            a request id of their own (SGLang's `rid`, vLLM's `request_id`) get it that way.
    """
    body: dict[str, object] = {} if model is None else {"model": model}
    if api.chat:
        body["messages"] = [{"role": m.role, "content": m.content} for m in prompt.messages]
    else:
        body["prompt"] = "\n".join(m.content for m in prompt.messages)
    body |= {"max_tokens": prompt.max_tokens, "temperature": prompt.temperature, "user": tag}
    if prompt.seed is not None:
        body["seed"] = prompt.seed
    options: dict[str, object] = {"include_usage": True}
    for key, value in (extra or {}).items():
        if key == "stream_options" and isinstance(value, Mapping):
            options |= value
        else:
            body[key] = tag if value == "{tag}" else value
    body["stream"] = True
    if usage:
        body["stream_options"] = options
    return msgspec.json.encode(body)


class _ModelCard(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ModelCard]


_decode_models = msgspec.json.Decoder(_ModelList).decode


def first_model(body: bytes) -> str | None:
    """The first id of a `/v1/models` answer; None when it is not one."""
    try:
        return next((card.id for card in _decode_models(body).data), None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
