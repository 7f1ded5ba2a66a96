"""Groups of options: what several commands share stands once, as a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from pipetrace.cli import config
from pipetrace.cli.ending import Passed


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer wants it, without groups: each parameter whose type is a dataclass stands for its fields.

    Every command takes `--config` beside. A parameter `typed: frozenset[str]` is told which options were typed.
    """
    hints = get_type_hints(command, include_extras=True)
    flat: dict[str, inspect.Parameter] = {}
    wants_typed = False
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}

    def add(name: str, hint: Any, default: Any) -> None:
        flat[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)

    add("ctx", typer.Context, inspect.Parameter.empty)
    for parameter in inspect.signature(command).parameters.values():
        of = hints[parameter.name]
        if isinstance(of, type) and is_dataclass(of):
            inner = get_type_hints(of, include_extras=True)
            groups[parameter.name] = (of, [field.name for field in fields(of)])
            for field in fields(of):
                add(field.name, inner[field.name], _default(field))
        elif of == frozenset[str]:
            wants_typed = True
        else:
            add(parameter.name, of, parameter.default)
    add("config_file", ConfigFile, None)

    def run(*, ctx: typer.Context, config_file: Path | None, **values: Any) -> None:
        del config_file  # read before all others, by its callback
        typed = config.typed(ctx, values)
        _check_unit(typed)
        values = config.without_rivals(ctx, values)
        for name, (of, names) in groups.items():
            values[name] = of(**{inner: values.pop(inner) for inner in names})
        if wants_typed:
            values["typed"] = typed
        try:
            command(**values)
        except (KeyboardInterrupt, OSError) as error:
            raise Passed(error) from None

    run.__signature__ = inspect.Signature(list(flat.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in flat.items()}
    return run


def _check_unit(typed: frozenset[str]) -> None:
    """Refuses --unit where nothing is left for it to be the unit of.

    Raises:
        typer.BadParameter: A costs file has its own unit.
    """
    if {"unit", "costs_file"} <= typed and not typed & {"p2p", "p2p_across", "post", "sweep"}:
        raise typer.BadParameter('--unit is for times on the command line; a costs file says its own: unit = "us"')


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Any of these options, as TOML: ranks = 8. What the command line says wins.",
        is_eager=True,
        callback=config.load,
    ),
]
