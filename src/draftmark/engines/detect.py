"""Which engine answers at a URL. Asks only what is free of side effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from draftmark.engines.http import call, tried
from draftmark.engines.llamacpp.client import LlamaServerClient
from draftmark.engines.llamacpp.engine import LlamaCpp
from draftmark.engines.sglang.client import SglangClient
from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import BadInputError
from draftmark.ports import EngineClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What was found at a URL.

    Attributes:
        engine: Name, or `unknown`.
        version: As the server says; None when it does not.
        evidence: What it was recognised by.
        client: For asking it about itself; None for an engine without a folder of its own here.
        extra: Fields for measured requests, such as a switch that turns the prompt cache off.
        api: The wire format that tells most, as `--api` names it.
    """

    engine: str
    version: str | None
    evidence: str
    client: EngineClient | None
    extra: Mapping[str, object] = field(default_factory=dict)
    api: str = "openai-chat"


def detect(url: str, headers: Mapping[str, str] | None = None) -> Detected:
    """Recognise the server at a URL.

    Args:
        url: With or without /v1.
        headers: Sent with every request, such as the key that a server wants; the client keeps them.

    Raises:
        BadInputError: Nothing answers there.
    """
    base = url.rstrip("/").removesuffix("/v1")
    props = call(f"{base}/props", headers=headers)
    if props is not None and props.status == 200:
        document = props.json()
        if isinstance(document, dict) and "default_generation_settings" in document:
            build = document.get("build_info")
            return Detected(
                engine="llamacpp",
                version=build if isinstance(build, str) else None,
                evidence="GET /props has default_generation_settings",
                client=LlamaServerClient(base, headers=headers),
                extra=LlamaCpp().request_extra(),
            )
    found = _sglang(base, headers)
    if found is not None:
        return found
    reply = call(f"{base}/version", headers=headers)
    document = reply.json() if reply is not None and reply.status == 200 else None
    if isinstance(document, dict):
        version = document.get("version")
        return Detected(
            engine="vllm",
            version=version if isinstance(version, str) else None,
            evidence="GET /version answers",
            client=None,
        )
    told = tried(f"{base}/v1/models", headers=headers)
    if isinstance(told, str) and props is None:
        raise BadInputError(
            f"nothing answers at {url}",
            evidence=(f"GET {base}/v1/models: {told}",),
            next_step="check host and port; the server may still be loading",
        )
    models = None if isinstance(told, str) else told
    wants_key = any(each is not None and each.status in (401, 403) for each in (props, models))
    seen = (
        "it wants a key: --header 'Authorization: Bearer …'" if wants_key else "none of the known endpoints answers"
    )
    return Detected(engine="unknown", version=None, evidence=seen, client=None)


def _sglang(base: str, headers: Mapping[str, str] | None) -> Detected | None:
    """By its model document; /get_model_info is the name that old servers have and new ones warn of."""
    for path in ("/model_info", "/get_model_info"):
        reply = call(base + path, headers=headers)
        document = reply.json() if reply is not None and reply.status == 200 else None
        if isinstance(document, dict) and "model_path" in document:
            client = SglangClient(base, headers=headers)
            version = client.version()
            engine = SGLang(version=version)
            return Detected(
                engine="sglang",
                version=version,
                evidence=f"GET {path} has model_path",
                client=client,
                extra=engine.request_extra(),
                api="sglang" if engine.native_api(()) else "openai-chat",
            )
    return None
