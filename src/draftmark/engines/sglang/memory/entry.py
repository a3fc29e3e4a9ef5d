"""From a service, its host and a log to the verdict on its arms: what the port `Engine.fit` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from draftmark.engines.model_config import UnknownArchitectureError
from draftmark.engines.sglang import refusals
from draftmark.engines.sglang.arms import ADAPTIVE, candidates_in, usual_candidates
from draftmark.engines.sglang.memory import budget as budgets
from draftmark.engines.sglang.memory import reading
from draftmark.engines.sglang.memory.boot import Boot, boot_of, command_of, read
from draftmark.engines.sglang.memory.cell import item_bytes
from draftmark.engines.sglang.memory.environment import in_force
from draftmark.engines.sglang.memory.files import beside, has_file, overridden, read_config
from draftmark.engines.sglang.memory.fit import Case, judge
from draftmark.engines.sglang.memory.fraction import defaults
from draftmark.engines.sglang.memory.refused import Refused, refused
from draftmark.engines.sglang.memory.refused_files import Files, refused_by_files
from draftmark.engines.sglang.memory.rules import Choice, Rules, choose
from draftmark.engines.sglang.memory.same_model import another_model
from draftmark.engines.sglang.memory.service import Service, WithArm, settings_in_force, with_kv_type
from draftmark.engines.sglang.memory.settings import (
    SPECULATIVE_RUNNING,
    Settings,
    adapts,
    values_of,
)
from draftmark.engines.sglang.memory.slack import graphs_wanted
from draftmark.engines.sglang.memory.sources import budget_of, draft_of, fraction_of
from draftmark.engines.sglang.memory.unmodelled import SPREAD, not_modelled, refuse_model
from draftmark.engines.sglang.versions import rules_for
from draftmark.errors import BadInputError, UsageError
from draftmark.model import Arm, Fit, FitArm
from draftmark.ports import FitScene

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog


def fit(command: Sequence[str], arms: Sequence[Arm], scene: FitScene, with_arm: WithArm) -> Fit:
    """The verdict on every arm, each written by `with_arm`; an empty command line takes the flags from the log.

    Raises:
        BadInputError: The model, its config or the log cannot be used.
        UsageError: Neither a card nor a log tells how much memory there is, or an arm cannot be written.
    """
    scene = replace(scene, environment=in_force(command, scene.environment))
    log = read(scene.log) if scene.log is not None else None
    version = scene.version or (log.version if log else None)
    version, choice = _choice(version, log)
    assumptions = dict.fromkeys(filter(None, (choice.assumption,)))
    told = version or choice.rules.version
    try:
        boot = boot_of(log, values_of(command, told)) if log is not None else None
    except ValueError as error:
        raise BadInputError(f"the log's arguments cannot be read: {error}", next_step="check the log") from None
    boot_flags = not command
    if boot_flags:
        if boot is None or not boot.log.server_args:
            raise BadInputError(
                "neither a command line nor a log with server_args tells the flags",
                next_step="give them with --flags, or a log from its beginning",
            )
        command = _command_of(boot, scene.model_dir, assumptions)
    path = scene.model_dir or _model_path(values_of(command, told))
    stored = read_config(scene, path)
    config = overridden(stored, values_of(command, told))
    refuse_model(config)
    target = _target(config, scene, path, log)
    other = None if boot is None else _another(boot, target, scene, values_of(command, told), stored)
    if other is not None and not boot_flags:
        assumptions[f"{other}: nothing is taken from it"] = None
        boot = None
    elif other is not None:
        raise BadInputError(
            other,
            next_step="give the log of another start of this model, with nothing else starting on its GPU, or "
            "--flags and --gpu",
        )
    service = Service(
        scene=scene,
        choice=choice,
        command=tuple(command),
        with_arm=with_arm,
        told=told,
        target=target,
        path=path,
        boot=boot,
        gpus=scene.gpus(),
        assumptions=assumptions,
        boot_flags=boot_flags,
    )
    verdicts = tuple(_verdict(service, arm) for arm in arms)
    return Fit(
        engine="sglang",
        version=version,
        arms=verdicts,
        calibrated_from=scene.log_name if service.used else None,
        assumptions=tuple(assumptions),
    )


def _command_of(boot: Boot, model_dir: str | None, assumptions: dict[str, None]) -> tuple[str, ...]:
    missing = boot.missing()
    if missing:
        raise BadInputError(
            "the log's arguments are cut off, and the flags are not known",
            evidence=(f"missing: {', '.join(missing)}",),
            next_step="give the flags with --flags, or the service itself with --log",
        )
    if not boot.complete:
        assumptions["the log's arguments are cut off: what stood behind is taken as not set"] = None
    return command_of(boot.values, model_dir)


def _target(config: Mapping[str, object], scene: FitScene, path: str, log: BootLog | None) -> reading.Target:
    """The model, by its files.

    Raises:
        UnknownArchitectureError: It is of none of the kinds that are known; what a log has of it is shown.
    """
    try:
        return reading.Target(config, beside(scene, path))
    except UnknownArchitectureError as error:
        if log is None or log.summary is None:
            raise
        had = log.summary
        own = f"{had.max_total_num_tokens:,} tokens, {had.max_running_requests} requests at once"
        raise UnknownArchitectureError(
            error.what, evidence=(*error.evidence, f"the start in the log had {own}"), next_step=error.next_step
        ) from None


def _another(
    boot: Boot, target: reading.Target, scene: FitScene, values: Mapping[str, object], stored: Mapping[str, object]
) -> str | None:
    """Why a log is not of this model: by its path, or by what it loaded where the path says nothing."""
    if scene.model_dir is None and boot.values.get("model_path") == values.get("model_path"):
        return None
    anatomy = reading.anatomy_of(target, boot.settings, weighed=False)
    classes = stored.get("architectures")
    own = [str(each) for each in classes if isinstance(each, str)] if isinstance(classes, list) else []
    return another_model(boot.log, boot.settings, boot.values, anatomy, (anatomy.architecture, *own))


def _choice(version: str | None, log: BootLog | None) -> tuple[str | None, Choice]:
    """The version and its rules: as told, else by what the log's wording leaves possible."""
    if version is not None or log is None:
        return version, choose(version)
    since, until = log.version_range.since, log.version_range.until
    if since is None and until is None:
        return None, choose(None)
    best = choose(since or until)
    if since == until:
        return since, replace(best, assumption=f"SGLang {since} or the like, by the log's wording")
    other = choose(until).rules if since is not None and until is not None else choose(None).rules
    what = (
        f"the log's wording fits SGLang {since or 'older'} to {until or 'newer'}: the accounting of "
        f"{best.rules.version} is assumed"
    )
    return None, Choice(rules=best.rules, others=(other,) if other != best.rules else (), assumption=what)


def _model_path(values: Mapping[str, object]) -> str:
    path = values.get("model_path")
    if not isinstance(path, str) or not path:
        raise UsageError("no model is named", next_step="give --model-path, or the model's directory")
    return path


def _verdict(service: Service, arm: Arm) -> FitArm:
    values = service.values(arm)
    settings = settings_in_force(service, values)
    written = service.with_arm(service.command, arm, service.told)
    keeps = refusals.keeps_steps(written, arm, rules_for(service.told)) if ADAPTIVE in dict(arm.knobs) else None
    if keeps is not None:
        service.assume(f"SGLang would run it with fixed steps: {keeps}")
    found = _refused(service, arm, written, settings, keeps)
    if found and all(found):
        because = next(each for each in found if each)
        return FitArm(arm=arm, fits=False, because=(because.because,), to_get_more=because.more)
    case, unknown = _case(service, values, settings, adaptive=keeps is None)
    if unknown:
        return FitArm(arm=arm, fits=None, because=tuple(unknown))
    verdict = judge(arm, case)
    unsure = [each.because for each in found if each]
    if not unsure:
        return verdict
    return replace(verdict, fits=None if verdict.fits else verdict.fits, because=(*unsure[:1], *verdict.because))


def _refused(
    service: Service, arm: Arm, written: Sequence[str], settings: Settings, keeps: str | None
) -> list[Refused | None]:
    """Why an arm would not start, by each of the versions that it may be."""
    found = []
    for rules in (service.choice.rules, *service.choice.others):
        told = rules_for(service.told if rules is service.choice.rules else rules.version)
        refusal = refusals.of_written(written, arm, told)
        own = None
        if refusal is not None and not (keeps and keeps in refusal.because):
            own = Refused(refusal.because)
        found.append(own or _refused_model(service, rules, settings))
    return found


def _refused_model(service: Service, rules: Rules, settings: Settings) -> Refused | None:
    target = service.target
    return refused(rules, settings, target.shape) or refused_by_files(
        Files(
            rules=rules,
            settings=settings,
            shape=target.shape,
            config=target.config,
            text=target.text,
            environment=service.scene.environment,
            has=lambda name: has_file(service.scene, service.path, name),
        )
    )


def _candidates(service: Service, values: Mapping[str, object]) -> tuple[int, ...]:
    """Steps that an adaptive arm switches between."""
    path = values.get("speculative_adaptive_config")
    usual = usual_candidates(rules_for(service.told))
    if not isinstance(path, str):
        return usual
    try:
        found = candidates_in(service.scene.read(path))
    except OSError:
        found = None
    if found is None:
        service.assume(f"{path} cannot be used: the steps are assumed to be {', '.join(map(str, usual))}")
    return found or usual


def _case(
    service: Service, values: Mapping[str, object], settings: Settings, *, adaptive: bool
) -> tuple[Case, list[str]]:
    """What a verdict follows from, and why there can be none."""
    if adaptive and adapts(values):
        settings = replace(settings, candidates=_candidates(service, values))
    otherwise = _otherwise(service, settings)
    settings, kv_otherwise = with_kv_type(service, settings)
    model = reading.anatomy_of(service.target, settings, weighed=service.boot is None)
    draft = draft_of(service, settings, model)
    if settings.attention_tp != settings.tp and service.boot is None:
        service.assume("--enable-dp-attention: how it divides weights is an estimate")
    service.assume(*model.assumptions, item_bytes(settings, model)[1])
    rules, gpus, boot = service.choice.rules, service.gpus, service.boot
    usual = defaults(rules, settings, model, min(each.total_mib for each in gpus)) if gpus else None
    fraction, spread = fraction_of(service, settings, usual)
    log = boot.log if boot else None
    case = Case(
        rules=rules,
        others=service.choice.others,
        settings=settings,
        model=model,
        draft=draft,
        budget=budgets.UNKNOWN,
        fraction=fraction,
        fraction_spread=spread,
        extra_spread=0.0,
        wanted=graphs_wanted(
            log, boot.settings.draft_tokens if boot else 0, settings, usual.graphs_mib if usual else 1024.0
        ),
        environment=dict(service.scene.environment),
        otherwise=(*otherwise, *kv_otherwise),
    )
    budget, exact = budget_of(service, case)
    unsure = service.choice.outside and budget.fraction is None
    return replace(case, budget=budget, extra_spread=SPREAD * budget.pre * unsure), _unknown(
        service, values, exact=exact
    )


def _unknown(service: Service, values: Mapping[str, object], *, exact: bool) -> list[str]:
    """Why no figure can be given for flags."""
    boot = service.boot
    start = boot.values if boot is not None and exact else None
    asked = {**values, **boot.values} if boot is not None and service.boot_flags else values
    return not_modelled(asked, service.scene.environment, start)


def _otherwise(service: Service, settings: Settings) -> tuple[Settings, ...]:
    """Settings that could be in force as well, as far as that makes a difference."""
    boot = service.boot
    if boot is None or not boot.running_unsure or not service.boot_flags or settings.algorithm is not None:
        return ()
    service.assume(
        f"whether {SPECULATIVE_RUNNING} requests at once were asked for, or are what speculation sets by itself, "
        "is not in the log: the bounds of `off` cover both"
    )
    return (replace(settings, running=None if settings.running is not None else SPECULATIVE_RUNNING),)
