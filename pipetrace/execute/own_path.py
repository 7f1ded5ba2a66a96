"""What `--stages package.module:function` names, looked for before ranks are started. Imports neither it nor torch."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from pipetrace.errors import RunError
from pipetrace.shown import shown


def module_and_function(path: str) -> tuple[str, str]:
    """The two names in "package.module:function".

    Raises:
        RunError: There are not two.
    """
    module, _, name = path.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), name]) or module.endswith(".py"):
        raise RunError(f"--stages {shown(path)} names no function", "write package.module:function, without .py")
    return module, name


def no_module(path: str, name: str) -> RunError:
    """What to say where there is no module of that name."""
    return RunError(f"--stages {path}: there is no module {name}", "run where it can be imported, or set PYTHONPATH")


def look_for(path: str) -> None:
    """Sees that the module is there. Whether it can be imported, and has the function, only importing it tells.

    Looks where the ranks will: along Python's path, and in the current folder. A package's own `__init__` is not run,
    so that modules which it conjures up are not seen.

    Raises:
        RunError: It is not there, or `path` is none.
    """
    module, _ = module_and_function(path)
    first, *inner = module.split(".")
    try:
        spec = find_spec(first) or PathFinder.find_spec(first, [str(Path.cwd())])
    except ValueError:
        return  # a program's main module, which has no file to look for
    name = first
    for part in inner:
        if spec is None:
            break
        name = f"{name}.{part}"
        places = spec.submodule_search_locations
        spec = None if places is None else PathFinder.find_spec(name, list(places))
    if spec is None:
        raise no_module(path, name)
