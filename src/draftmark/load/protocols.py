"""What is asked of a server: its paths and bodies.

What the two native forms need before they can be asked is found out by `draftmark.load.sender`: SGLang's
`/generate` takes the token ids, llama-server's `/completion` the text, that the server's chat template makes of the
messages. So each gets the very prompt that its chat completions would have made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from draftmark.model import Message, Prompt

NativeInput: TypeAlias = str | Sequence[int]
"""A prompt as an engine's own form takes it: as text, or as token ids."""


@dataclass(frozen=True, slots=True)
class Api:
    """One HTTP surface.

    Attributes:
        name: As `--api` says it.
        path: Below the server's base.
        chat: The server's chat template is applied; otherwise the messages' contents are joined into one prompt.
        native: An engine's own form, without OpenAI's options.
        token_ids: It can be asked with token ids.
    """

    name: str
    path: str
    chat: bool
    native: bool = False
    token_ids: bool = True


APIS = {
    api.name: api
    for api in (
        Api("openai-chat", "/v1/chat/completions", chat=True, token_ids=False),
        Api("openai", "/v1/completions", chat=False),
        Api("sglang", "/generate", chat=True, native=True),
        Api("llamacpp", "/completion", chat=True, native=True),
    )
}


def request_body(
    api: Api,
    prompt: Prompt,
    *,
    tag: str,
    model: str | None = None,
    usage: bool = True,
    stream: bool = True,
    extra: Mapping[str, object] | None = None,
) -> bytes:
    """The JSON body of one request to an OpenAI-compatible server.

    Args:
        api: The surface.
        prompt: What to ask.
        tag: Sent as `user`, the one field of this API that names a request; the header carries it too.
        model: None leaves the field out.
        usage: Ask for token counts with `stream_options`; an answer that comes whole has them unasked.
        stream: Ask for a stream.
        extra: The engine's further fields, which win over ours. A value `"{tag}"` becomes the tag: engines with
            a request id of their own (SGLang's `rid`, vLLM's `request_id`) get it that way.
    """
    body: dict[str, object] = {} if model is None else {"model": model}
    if api.chat:
        body["messages"] = _messages(prompt.messages)
    elif prompt.token_ids is not None:
        body["prompt"] = prompt.token_ids
    else:
        body["prompt"] = plain_text(prompt)
    body |= {"max_tokens": prompt.max_tokens, "temperature": prompt.temperature, "user": tag}
    if prompt.seed is not None:
        body["seed"] = prompt.seed
    if prompt.forced:  # the word of vLLM, SGLang and llama-server alike
        body["ignore_eos"] = True
    options: dict[str, object] = {"include_usage": True}
    for key, value in (extra or {}).items():
        if key == "stream_options" and isinstance(value, Mapping):
            options |= value
        else:
            body[key] = tag if value == "{tag}" else value
    body["stream"] = stream
    if usage and stream:
        body["stream_options"] = options
    return msgspec.json.encode(body)


def generate_body(
    prompt: Prompt, said: NativeInput, extra: Mapping[str, object], tag: str, *, stream: bool = True
) -> bytes:
    """The JSON body of one request to SGLang's `/generate`.

    Args:
        prompt: What to ask.
        said: The prompt as the server's tokeniser has it, or as text.
        extra: As for the chat API; `cache_salt` is `extra_key` here.
        tag: Takes the place of a value `"{tag}"`.
        stream: Ask for a stream.
    """
    sampling: dict[str, object] = {"max_new_tokens": prompt.max_tokens, "temperature": prompt.temperature}
    if prompt.seed is not None:
        sampling["sampling_seed"] = prompt.seed
    if prompt.forced:
        sampling["ignore_eos"] = True
    body: dict[str, object] = {"text" if isinstance(said, str) else "input_ids": said, "sampling_params": sampling}
    for key, value in extra.items():
        body["extra_key" if key == "cache_salt" else key] = tag if value == "{tag}" else value
    return msgspec.json.encode(body | {"stream": stream})


def completion_body(
    prompt: Prompt, text: NativeInput, extra: Mapping[str, object], tag: str, *, stream: bool = True
) -> bytes:
    """The JSON body of one request to llama-server's `/completion`.

    Args:
        prompt: What to ask.
        text: The prompt with the chat template applied, or its token ids.
        extra: As for the chat API; `timings_per_token` is on unless it says otherwise, for a count in each chunk.
        tag: Takes the place of a value `"{tag}"`.
        stream: Ask for a stream.
    """
    body: dict[str, object] = {"prompt": text, "n_predict": prompt.max_tokens, "temperature": prompt.temperature}
    if prompt.seed is not None:
        body["seed"] = prompt.seed
    if prompt.forced:
        body["ignore_eos"] = True
    body["timings_per_token"] = stream
    for key, value in extra.items():
        body[key] = tag if value == "{tag}" else value
    return msgspec.json.encode(body | {"stream": stream})


def plain_text(prompt: Prompt) -> str:
    """The messages' contents, without a chat template."""
    return "\n".join(m.content for m in prompt.messages)


def tokenize_body(prompt: Prompt, model: str | None) -> bytes:
    """The body that asks SGLang's `/tokenize` for a prompt with the chat template applied (since 0.5.12)."""
    messages = _messages(prompt.messages)
    return msgspec.json.encode({"messages": messages} if model is None else {"model": model, "messages": messages})


def template_body(prompt: Prompt) -> bytes:
    """The body that asks llama-server's `/apply-template` for a prompt as text."""
    return msgspec.json.encode({"messages": _messages(prompt.messages)})


def _messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


# --- what the server says beforehand ------------------------------------------------------------------------

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _ModelCard(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ModelCard]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Templated(msgspec.Struct):
    prompt: str


_decode_models = msgspec.json.Decoder(_ModelList).decode
_decode_tokens = msgspec.json.Decoder(_Tokens).decode
_decode_templated = msgspec.json.Decoder(_Templated).decode


def first_model(body: bytes) -> str | None:
    """The first id of a `/v1/models` answer; None when it is not one."""
    try:
        return next((card.id for card in _decode_models(body).data), None)
    except _ERRORS:
        return None


def token_ids(body: bytes) -> list[int] | None:
    """The answer of `/tokenize`; None when it is none."""
    try:
        return _decode_tokens(body).tokens or None
    except _ERRORS:
        return None


def templated(body: bytes) -> str | None:
    """The answer of `/apply-template`; None when it is none."""
    try:
        return _decode_templated(body).prompt or None
    except _ERRORS:
        return None
