"""What a version's server would refuse at its start, told before it. Pure; SGLang's own words are quoted.

All of these end the launcher within seconds, before any weights are read: a restart that need not be spent.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftmark.engines.sglang import arms
from draftmark.engines.sglang.flags import Given, Parsed, options, parse
from draftmark.engines.sglang.versions import Rules, facts, read_minors
from draftmark.errors import UsageError
from draftmark.model import Arm, Refusal

# --- flags that a version does not have ------------------------------------------------------------------------


def inferred(command: Sequence[str]) -> Rules:
    """Rules for a command line whose version nothing tells: the newest that has all its flags."""
    newest, *older = reversed(read_minors())
    told = "the version is not known"
    unknown = [each for each in parse(command, Rules(newest)).given if each.option is None]
    for minor in older if unknown else ():
        if all(each.option for each in parse(command, Rules(minor)).given):
            gone = ", ".join(dict.fromkeys(each.spelled for each in unknown))
            return Rules(
                minor, None, f"{told}: the rules of SGLang 0.5.{minor} are assumed, as newer have no {gone}"
            )
    return Rules(newest, None, f"{told}: the rules of SGLang 0.5.{newest} are assumed")


def check_flags(command: Sequence[str], rules: Rules) -> None:
    """Flags that this version's parser refuses.

    Raises:
        UsageError: One is gone, not there yet, ambiguous or misspelt; or lacks its value.
    """
    for each in parse(command, rules).given:
        if each.option is None:
            _no_such_flag(each, rules)
        elif each.option.arity in "1+" and (not each.values or each.values[0].startswith("--")):
            raise UsageError(f"{each.spelled} lacks its value", evidence=(" ".join((each.spelled, *each.values)),))
    _check_shape(parse(command, rules))


def _no_such_flag(each: Given, rules: Rules) -> None:
    """Raise, where it is sure that the server would."""
    spelled = options().get(each.spelled)
    where = f"SGLang {rules.version or f'0.5.{rules.minor}'}"
    if spelled is not None and spelled.until < rules.minor:
        raise UsageError(
            f"{where} no longer has the flag {each.spelled}",
            evidence=(f"{each.spelled}: up to 0.5.{spelled.until}, of the versions read",),
            next_step=f"write {spelled.instead} in its place" if spelled.instead else "take it out",
        )
    if not rules.certain:
        return  # it may well be a flag of that version
    if each.could_be:
        raise UsageError(
            f"{each.spelled} is ambiguous to {where}",
            evidence=(f"it could be {', '.join(each.could_be[:8])}",),
            next_step="write one of them out",
        )
    if spelled is not None:
        raise UsageError(
            f"{where} does not have the flag {each.spelled} yet",
            evidence=(f"{each.spelled}: from 0.5.{spelled.since} on, of the versions read",),
            next_step="take it out, or upgrade SGLang",
        )
    close = difflib.get_close_matches(each.spelled, list(options()), n=1)
    raise UsageError(
        f"{where} has no flag {each.spelled}",
        evidence=(each.spelled,),
        next_step=f"did you mean {close[0]}?" if close else "take it out",
    )


def _check_shape(parsed: Parsed) -> None:
    """All of steps, topk and draft tokens or none; the server dies of a bare assertion or a TypeError else."""
    method = arms.method_of(parsed)
    family = facts()["methods"].get(method or "", {}).get("family")
    if family != "chain" or arms.adaptive(parsed):
        return
    steps, topk, tokens = (arms.number(parsed, name) for name in (arms.STEPS, arms.TOPK, arms.TOKENS))
    if steps is None and (topk is not None or tokens is not None):
        raise UsageError(
            f"{arms.STEPS} is missing beside {arms.TOPK} or {arms.TOKENS}: SGLang ends with an AssertionError",
            evidence=(f"{arms.ALGORITHM} {method}",),
            next_step=f"add {arms.STEPS}, or take the others out",
        )
    if steps is not None and topk is None:
        raise UsageError(
            f"{arms.TOPK} is missing beside {arms.STEPS}: SGLang ends with a TypeError",
            evidence=(f"{arms.ALGORITHM} {method} {arms.STEPS} {steps}",),
            next_step=f"add {arms.TOPK} 1",
        )
    if topk is not None and topk > 1 and tokens is None:
        raise UsageError(
            f"{arms.TOKENS} is missing beside {arms.TOPK} {topk}: the size of the tree is not known",
            evidence=(f"{arms.ALGORITHM} {method} {arms.STEPS} {steps} {arms.TOPK} {topk}",),
            next_step=f"add {arms.TOKENS}",
        )


def deprecated(command: Sequence[str], rules: Rules) -> list[Given]:
    """Flags that this version still takes, and that a later one does not."""
    return [
        each
        for each in parse(command, rules).given
        if each.option and each.option.deprecated is not None and each.option.deprecated <= rules.minor
    ]


# --- arms that a server refuses --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """A command line with speculation on."""

    parsed: Parsed
    rules: Rules
    method: str
    arm: Arm

    @property
    def topk(self) -> int:
        if self.method == "NGRAM":
            return arms.number(self.parsed, "--speculative-ngram-max-bfs-breadth") or 10
        chain = facts()["methods"][self.method]["family"] == "chain"
        return arms.shape_of(self.parsed, self.rules).topk if chain else 1

    @property
    def tokens(self) -> int:
        chain = facts()["methods"][self.method]["family"] == "chain"
        return arms.shape_of(self.parsed, self.rules).tokens if chain else self.arm.depth

    @property
    def backends(self) -> set[str]:
        """Attention backends that are named; one that is left to the server is not known."""
        names = ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")
        return {value for name in names if (value := self.parsed.value(name)) is not None}

    @property
    def dp_attention(self) -> bool:
        return self.parsed.has("--enable-dp-attention") or self._above_one("--attn-dp-size")

    def _above_one(self, name: str) -> bool:
        return (self.parsed.value(name) or "1") not in ("0", "1")

    @property
    def paged(self) -> bool:
        return self._above_one("--page-size")

    @property
    def pipeline(self) -> bool:
        return self._above_one("--pp-size")

    @property
    def is_adaptive(self) -> bool:
        return arms.adaptive(self.parsed) or arms.ADAPTIVE in dict(self.arm.knobs)


def refusal(command: Sequence[str], arm: Arm, rules: Rules, *, bring: str | None = None) -> Refusal | None:
    """Why an arm need not be started; None when nothing speaks against it."""
    if arm.depth == 0:
        dead = [flag for flag, _ in arm.knobs if flag in (arms.TOPK, arms.TOKENS)]
        return Refusal("dead-knob", f"{dead[0]} does nothing while nothing is drafted") if dead else None
    return of_written(arms.with_arm(command, arm, rules, bring=bring), arm, rules)


def of_written(command: Sequence[str], arm: Arm, rules: Rules) -> Refusal | None:
    """The same for an arm's command line, written already."""
    parsed = parse(command, rules)
    method = arms.method_of(parsed)
    if method is None:
        return None
    known = arms.known_method(method, rules)
    least = known.get("least")
    if isinstance(least, int) and arm.depth < least:
        return Refusal(
            "dead-depth",
            f"depth {arm.depth} drafts nothing: the {known['depth']} of {method} count the last round's token, too",
        )
    asked = _Asked(parsed, rules, method, arm)
    return next((found for rule in _RULES if (found := rule(asked)) is not None), None)


def keeps_steps(command: Sequence[str], arm: Arm, rules: Rules) -> str | None:
    """Why an arm that is to adapt its steps would start and keep them, in words."""
    parsed = parse(command, rules)
    asked = _Asked(parsed, rules, arms.method_of(parsed) or "", arm)
    return _static_because(asked) if asked.is_adaptive and rules.minor >= facts()["adaptive"]["since"] else None


def _tree(asked: _Asked) -> Refusal | None:
    if asked.method == "NGRAM" or asked.topk <= 1:
        return None
    if "trtllm_mha" in asked.backends:
        return _refused("trtllm_mha backend only supports topk = 1 for speculative decoding.")
    named = asked.parsed.value("--attention-backend")
    if asked.paged and named is not None and named not in ("flashinfer", "fa3", "triton"):
        return _refused(
            "speculative_eagle_topk > 1 with page_size > 1 is only supported on flashinfer, fa3, triton"
        )
    return None


def _tree_size(asked: _Asked) -> Refusal | None:
    """What an arm asks of its tree: no more than its branches have, and of a chain only what it has anyway."""
    wanted = dict(asked.arm.knobs)
    if arms.TOKENS not in wanted and arms.TOPK not in wanted:
        return None
    tokens, most = int(wanted.get(arms.TOKENS, asked.tokens)), asked.arm.depth * asked.topk + 1
    if asked.topk < 1 or tokens > most:
        what = f"depth {asked.arm.depth} with topk {asked.topk} has at most {most} tokens"
        return Refusal("bad-tree", f"{arms.TOKENS} {tokens}: {what}")
    if tokens < asked.arm.depth + 1 or (asked.topk == 1 and tokens != most):
        return Refusal(
            "bad-tree", f"{arms.TOKENS} {tokens}: a chain of depth {asked.arm.depth} has {asked.arm.depth + 1}"
        )
    return None


def _ngram_pages(asked: _Asked) -> Refusal | None:
    named = asked.parsed.value("--attention-backend")
    if asked.method != "NGRAM" or not asked.paged or asked.topk <= 1 or named in (None, "flashinfer"):
        return None
    page = asked.parsed.value("--page-size")
    return _refused(f"speculative_eagle_topk({asked.topk}) > 1 with page_size({page}) > 1 is unstable")


def _parallel(asked: _Asked) -> Refusal | None:
    if asked.dp_attention and asked.method in ("STANDALONE", "NGRAM"):
        return _refused(f"Currently {asked.method.lower()} speculative decoding does not support dp attention.")
    if asked.method == "DFLASH":
        lm_head = asked.rules.minor >= 23 and asked.parsed.has("--enable-dp-lm-head")
        if asked.dp_attention and not lm_head:
            return _refused("Currently DFLASH speculative decoding does not support dp attention.")
        if asked.pipeline:
            return _refused("Currently DFLASH speculative decoding does not support pipeline parallelism.")
    if asked.pipeline and asked.rules.minor <= 17:
        return _refused("Pipeline parallelism is not compatible with overlap schedule, speculative decoding")
    return None


def _draft(asked: _Asked) -> Refusal | None:
    if asked.method == "DFLASH" and asked.parsed.value("--speculative-draft-model-path") is None:
        return _refused("DFLASH speculative decoding requires setting --speculative-draft-model-path.")
    return None


def _features(asked: _Asked) -> Refusal | None:
    parsed, minor = asked.parsed, asked.rules.minor
    if (parsed.has("--enable-lora") or parsed.has("--lora-paths")) and asked.method != "NGRAM" and minor <= 17:
        return _refused("Currently LoRA is only compatible with NGRAM speculative decoding.")
    if "flex_attention" in asked.backends:
        return _refused("Speculative decoding is currently not supported with Flex Attention backend")
    strategy = parsed.value("--mamba-radix-cache-strategy") or parsed.value("--mamba-scheduler-strategy")
    if strategy == "extra_buffer_lazy" and minor == 14:
        return _refused("extra_buffer_lazy unsupported with spec.")
    interval = arms.number(parsed, "--mamba-track-interval")
    if interval is not None and interval < asked.tokens:
        return _refused(f"--mamba-track-interval {interval} is below the {asked.tokens} draft tokens")
    decode = parsed.value("--disaggregation-mode") == "decode"
    if (
        decode
        and parsed.has("--disaggregation-decode-enable-radix-cache")
        and asked.method not in ("DSPARK", "EAGLE", "EAGLE3", "NEXTN")
        and minor >= 20
    ):
        return _refused("--disaggregation-decode-enable-radix-cache is incompatible with speculative decoding")
    return None


def _adaptive(asked: _Asked) -> Refusal | None:
    if not asked.is_adaptive:
        return None
    since = facts()["adaptive"]["since"]
    if asked.rules.minor < since and (asked.rules.neighbour or 0) < since:
        return Refusal("bad-flag", f"--speculative-adaptive came with SGLang 0.5.{since}")
    reason = _static_because(asked)
    if reason is not None:
        return Refusal("engine-refuses", f"SGLang would run it with fixed steps: {reason}")
    candidates = arms.adaptive_candidates(asked.parsed, asked.rules)
    slots = asked.rules.minor >= facts()["adaptive"]["slots_since"]
    if slots and candidates is not None and asked.arm.depth not in candidates:
        shown = list(candidates)
        return _refused(
            f"--speculative-num-steps={asked.arm.depth} is not in the adaptive config candidate_steps {shown}"
        )
    return None


def _static_because(asked: _Asked) -> str | None:
    if asked.method not in ("EAGLE", "EAGLE3", "NEXTN"):
        return f"speculative_algorithm={asked.method} (only EAGLE and EAGLE3 adapt)"
    if asked.topk != 1:
        return f"speculative_eagle_topk={asked.topk}"
    if asked.dp_attention:
        return "attention data parallelism"
    for flag in ("--enable-multi-layer-eagle", "--enable-two-batch-overlap", "--enable-pdmux"):
        if asked.parsed.has(flag):
            return flag
    return None


def _refused(words: str) -> Refusal:
    return Refusal("engine-refuses", f"SGLang refuses it at the start: {words}")


_RULES: tuple[Callable[[_Asked], Refusal | None], ...] = (
    _tree,
    _tree_size,
    _ngram_pages,
    _parallel,
    _draft,
    _features,
    _adaptive,
)
