"""`--config FILE.toml`: every option of every command can stand in a file.

The keys are the options' names. At the top they hold for all commands that have them, in a table named as a command
for that one only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from pipetrace.errors import ConfigError
from pipetrace.shown import printable, shown
from pipetrace.toml_file import read_toml

RIVALS = (({"name"}, {"source"}), ({"costs"}, {"costs_file"}))
"""Parameters that cannot stand together: where the command line has one side, the file's other side is dropped."""


def load(ctx: typer.Context, value: Path | None) -> Path | None:
    """Makes what stands in the file the defaults of a command; called before all other options are looked at.

    Raises:
        ConfigError: The file cannot be read, or holds an unknown option or a wrong value.
    """
    if value is None or ctx.resilient_parsing:
        return value
    table = read_toml(value, ConfigError, "give a TOML file with options: --config FILE.toml")
    mine = _names(ctx.command)
    program: Any = ctx.find_root().command
    commands = {name: _names(command) for name, command in program.commands.items()}
    of_any = {option: parameter for names in commands.values() for option, parameter in names.items()}
    given: dict[str, Any] = {}
    for names in (table, *(entry for entry in table.values() if isinstance(entry, Mapping))):
        _once(value, names)
    for key, entry in table.items():
        option = key.replace("_", "-")
        if isinstance(entry, Mapping):
            if key not in commands and option in of_any:
                raise _no_table(value, option, entry, of_any[option])
            if key not in commands:
                raise _unknown(value, f"[{key}]", "command", key, commands)
            for inner in entry:
                if inner.replace("_", "-") not in commands[key]:
                    raise _unknown(value, f"{inner!r} in [{key}]", "option", inner, commands[key])
        elif key in commands and key not in of_any:
            raise ConfigError(f"{value}: {key} is {shown(entry)}, no table", f"write [{key}] and below it its options")
        elif option not in of_any:
            others = {name: of_any[name] for name in sorted(set(of_any) - set(mine))}
            raise _unknown(value, repr(key), "option", key, mine | others)
        elif option in mine:
            given[option] = entry
    given |= {key.replace("_", "-"): entry for key, entry in table.get(ctx.info_name or "", {}).items()}
    ctx.default_map = {mine[option].name: _checked(ctx, value, mine[option], option, given[option]) for option in given}
    return value


def _once(path: Path, names: Iterable[str]) -> None:
    """Refuses an option that stands twice, once with dashes and once with underscores."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.replace("_", "-"), name)
        if other != name:
            raise ConfigError(f"{path}: {other} and {name} are one option", "leave one of them out")


def typed(ctx: typer.Context, values: Iterable[str]) -> frozenset[str]:
    """Those options that stand on the command line itself, not in the file."""
    sources = {name: ctx.get_parameter_source(name) for name in values}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")


def without_rivals(ctx: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options' values without those of the file whose rival stands on the command line."""

    def come_from(names: Iterable[str], source: str) -> bool:
        sources = (ctx.get_parameter_source(name) for name in names if name in values)
        return any(found is not None and found.name == source for found in sources)

    out = dict(values)
    for pair in RIVALS:
        for side, other in (pair, pair[::-1]):
            if come_from(side, "COMMANDLINE") and come_from(other, "DEFAULT_MAP"):
                out |= {name: None for name in other if name in values}
    return out


def _names(command: Any) -> dict[str, Any]:
    """What a command's parameters are called in the file: an option as it is typed, an argument by its name."""
    found = {}
    for parameter in command.params:
        long = [option[2:] for option in parameter.opts if option.startswith("--")]
        name = long[-1] if long else parameter.name
        if name not in ("help", "config"):
            found[name] = parameter
    return found


def _checked(ctx: typer.Context, path: Path, parameter: Any, option: str, entry: Any) -> Any:
    many = getattr(parameter, "multiple", False) or parameter.nargs == -1
    if getattr(parameter, "is_flag", False):
        if not isinstance(entry, bool):
            raise ConfigError(f"{path}: {option} is {shown(entry)}", f"write {option} = true, or leave it out")
        return entry
    entries = entry if isinstance(entry, list) and many else [entry]
    if any(isinstance(one, bool | list | Mapping) for one in entries):
        raise ConfigError(f"{path}: {option} is {shown(entry)}", "give a number or text" + ", or a list of them" * many)
    if any(isinstance(one, int) and one.bit_length() > 64 for one in entries):
        raise ConfigError(f"{path}: {option} is {shown(entry)}", "give a smaller number")
    # As if typed: 8.5 is then no whole number, and a time in quotes is one.
    typed: Any = [str(one) for one in entries] if many else str(entry)
    try:
        parameter.process_value(ctx, typed)
    except typer.BadParameter as error:
        raise ConfigError(f"{path}: {option} = {shown(entry)}: {printable(error.message)[:200]}") from None
    return typed


def _no_table(path: Path, option: str, entry: Mapping[str, Any], parameter: Any) -> ConfigError:
    if "=" not in (getattr(parameter, "metavar", None) or ""):
        return ConfigError(f"{path}: {option} is a table", f"give a value: {option} = …")
    pairs = [f"{name}={value}" for name, value in entry.items()]
    text = ", ".join(f'"{pair}"' for pair in pairs) if getattr(parameter, "multiple", False) else f'"{",".join(pairs)}"'
    like = f"[{text}]" if getattr(parameter, "multiple", False) else text
    return ConfigError(
        f"{path}: {option} is a table", f"write it as on the command line: {option} = {shown(like)[1:-1]}"
    )


def _unknown(path: Path, where: str, what: str, key: str, known: Mapping[str, Any]) -> ConfigError:
    long = next((name for name, of in known.items() if f"-{key}" in getattr(of, "opts", ())), None)
    if long is not None:
        return ConfigError(f"{path}: unknown {what} {where}", f"-{key} is called {long} here: {long} = …")
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=1, cutoff=0.3)
    few = f"{what}s are {', '.join(known)}" if len(known) < 12 else "`pipetrace COMMAND --help` names them all"
    hint = f"did you mean {near[0]}?" if near else few
    return ConfigError(f"{path}: unknown {what} {where}", hint)
