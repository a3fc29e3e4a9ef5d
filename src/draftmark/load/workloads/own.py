"""The user's own prompts, from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from draftmark.errors import BadInputError
from draftmark.load import files
from draftmark.load.workloads.entries import Entry, entries
from draftmark.load.workloads.forms import FORMS, NothingAskedError, Reading, UnusableError, prompt_of
from draftmark.load.workloads.sampling import sampled
from draftmark.model import Prompt, Workload

_PURPOSE = files.Purpose(
    option="--prompts",
    kind="prompt file",
    forms=FORMS,
    save="save it as UTF-8 JSON Lines",
    take="take a part of it: --requests N takes the first N prompts, with --seed S any N",
)


def workload_from_file(
    path: Path,
    *,
    max_tokens: int,
    multi_turn: bool = False,
    lengths_from_data: bool = False,
    take: int | None = None,
    seed: int | None = None,
) -> Workload:
    """Prompts from a file: JSON Lines, or one JSON list.

    Each entry is one of: `{"messages": [{"role", "content"}, …]}` with optional `max_tokens` (or
    `max_completion_tokens`), `temperature`, `seed` and `id`; ShareGPT's
    `{"conversations": [{"from", "value"}, …]}`; `{"turns": ["…", …]}` of MT-Bench, Spec-Bench and SPEED-Bench; or
    vLLM's `{"prompt": "…"}`. All may have a `category`. Of a recorded conversation the turns up to the last human
    one are sent, for the answer to it is what is asked for; of `turns` the first, since nobody knows yet what is
    answered to it. With `multi_turn` either is held turn by turn, each with the server's own answers.

    A recorded conversation in which nothing is asked is left out, and counted in `about`.

    Args:
        path: The file.
        max_tokens: For entries that do not say it themselves.
        multi_turn: Ask the further turns as well.
        lengths_from_data: Force each answer to the length of the recorded one.
        take: So many prompts at most. A file over 256 MiB needs it, and is read only as far as that takes;
            a smaller one is read whole, so that what is wrong in it is known before anything is sent.
        seed: Take them, and ask them, in an order drawn with it.

    Raises:
        BadInputError: The file or an entry cannot be used; says where and why.
    """
    whole = take is None or files.size_of(path, _PURPOSE) <= files.MAX_FILE_BYTES
    reader = _Reader(
        path, Reading(max_tokens=max_tokens, multi_turn=multi_turn, lengths_from_data=lengths_from_data)
    )
    found = reader.prompts(limit=files.MAX_FILE_BYTES if whole else None)
    prompts = sampled(list(found) if whole else found, take=take, seed=seed)
    if not prompts:
        raise BadInputError(
            f"{path} has no prompts",
            evidence=reader.first_left_out,
            next_step=f"each line should be {FORMS}",
        )
    return Workload(
        name=files.stem_of(path, "prompts"),
        prompts=prompts,
        source=files.name_of(path),
        about=_about(reader.left_out),
    )


def _about(left_out: int) -> str:
    if not left_out:
        return ""
    return f"{left_out} recorded conversation{'s' if left_out > 1 else ''} without a question left out"


@dataclass(slots=True)
class _Reader:
    path: Path
    reading: Reading
    left_out: int = 0
    first_left_out: tuple[str, ...] = ()
    _ids: set[str] = field(default_factory=set)

    def prompts(self, limit: int | None) -> Iterator[Prompt]:
        for entry in entries(self.path, files.chunks(self.path, _PURPOSE, limit=limit), _PURPOSE):
            try:
                prompt = prompt_of(entry, self.reading)
            except NothingAskedError as error:
                if not self.left_out:
                    self.first_left_out = (f"line {entry.line}: {error}",)
                self.left_out += 1
                continue
            except UnusableError as error:
                raise self._bad(entry, str(error), error.next_step) from None
            if prompt.id in self._ids:
                raise self._bad(entry, f"the id {prompt.id!r} was used before", "give each entry an id of its own")
            self._ids.add(prompt.id)
            yield prompt

    def _bad(self, entry: Entry, why: str, next_step: str) -> BadInputError:
        return files.bad_line(self.path, entry.line, why, entry.raw, next_step)
