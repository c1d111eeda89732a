"""What the disk of this machine says of a configuration before anything is started: `config validate` and `serve` ask the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outrider.actors.draft.choice.drafter_registry import check_speaks
from outrider.actors.rpc.tls import UnfitTls, check
from outrider.cluster.config.config_errors import ConfigProblem
from outrider.cluster.config.drafter_folders import found_drafters
from outrider.cluster.config.schema import Config
from outrider.cluster.gateway.bearer import NoTokens, Tokens


def problems_here(config: Config) -> tuple[ConfigProblem, ...]:
    """What of a configuration this machine could not run, by its files.

    In a cluster that is joined only the actor's node can tell of models and certificates, which may lie nowhere else.
    """
    problems: list[ConfigProblem] = []
    if config.cluster.address == "local":
        problems += unfit_files(config)
        problems += _models(config)
        problems += _resources(config)
    named = {problem.path for problem in problems}
    found = found_drafters(config.drafters, config.targets)[1]
    return (*problems, *(problem for problem in found if problem.path not in named))


def unfit_files(config: Config) -> Iterator[ConfigProblem]:
    """Certificates and tokens that cannot be used here, where supervisor and first coordinator of any service run that starts here."""
    public, internal = config.security.public, config.security.internal
    for key, section in (("internal", internal), ("public", public)):
        try:
            if section is not None and section.tls is not None:
                check(section.tls)
        except UnfitTls as error:
            yield ConfigProblem(f"security.{key}", str(error))
    try:
        if public is not None and public.tokens:
            Tokens(Path(public.tokens))
    except NoTokens as error:
        yield ConfigProblem("security.public.tokens", str(error))


def _models(config: Config) -> Iterator[ConfigProblem]:
    models = [(f"targets[{i}].model", one.model, True) for i, one in enumerate(config.targets)]
    models += [
        (f"drafters[{i}].model", one.model, False)
        for i, one in enumerate(config.drafters)
        if one.model is not None
    ]
    for key, model, is_target in models:
        try:
            _check_model(model, is_target=is_target)
        except (OSError, ValueError) as error:
            yield ConfigProblem(key, str(error))


def _resources(config: Config) -> Iterator[ConfigProblem]:
    """Our own Ray has the custom resources that the file says, and never gets others."""
    there = config.cluster.local_resources
    for kind, actors in (("targets", config.targets), ("drafters", config.drafters)):
        for index, actor in enumerate(actors):
            for name, amount in actor.resources.items():
                if amount > there.get(name, 0):
                    yield ConfigProblem(
                        f"{kind}[{index}].resources.{name}",
                        f"is {amount:g}, and our own Ray (cluster.address: local) has {there.get(name, 0):g}: "
                        "see cluster.local_resources",
                    )


def _check_model(model: str, *, is_target: bool) -> None:
    """Refuses a path that leads nowhere, a file that is no table, and a draft net for a target.

    Raises:
        ValueError, OSError: The model is refused.
    """
    from outrider.actors.engine.checkpoint.model_source import resolve_model
    from outrider.actors.engine.tables.token_table import load_table

    source = resolve_model(model)
    if source.is_tabular and not source.is_law:
        load_table(Path(source.location))
    if is_target:
        check_speaks(model, "name it under drafters")
