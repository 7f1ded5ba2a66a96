"""Builders that are not pipetrace's: from a user's Python file or an installed plug-in.

Whatever goes wrong in one is its author's to mend, so it is told as one line with the author's file and line.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from pipetrace.errors import PipetraceError, ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.schedules.spec import FLAGS, ScheduleSpec
from pipetrace.shown import printable

DEFAULT_BUILDER = "build"
_LONGEST = 200
_STDOUT, _STDERR = 1, 2


def spec_from_file(source: str) -> ScheduleSpec:
    """The builder that `FILE.py:builder` names; `FILE.py` alone means its `build`.

    Raises:
        ScheduleError: There is no such file or builder, or the file cannot be run: with file and line.
    """
    file, _, name = source.rpartition(":") if not source.endswith(".py") else (source, "", DEFAULT_BUILDER)
    builder = getattr(_module(Path(file)), name, None)
    if not callable(builder):
        raise ScheduleError(
            f"{file} has no function {name!r}", f"define: def {name or 'build'}(ranks, microbatches) -> Schedule"
        )
    return spec_of(name if name != DEFAULT_BUILDER else Path(file).stem, builder, file)


def spec_of(name: str, builder: Callable[..., Any], source: str) -> ScheduleSpec:
    """The entry of a builder.

    Args:
        name: What it is called.
        builder: (ranks, microbatches, **options) → Schedule; its keyword parameters are the schedule's options.
        source: Its file or package, named where something is wrong with it.

    Raises:
        ScheduleError: It does not take ranks and microbatches.
    """
    try:
        signature = inspect.signature(builder)
        signature.bind(1, 1)
    except (TypeError, ValueError):
        raise ScheduleError(
            f"{name} of {source} cannot be called with (ranks, microbatches)",
            "give it two positional parameters, and a default to every other",
        ) from None
    parameters = list(signature.parameters.values())
    options = [
        parameter.name
        for index, parameter in enumerate(parameters)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        or (parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and index >= 2)
    ]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        options += [option for option in (*FLAGS, "costs") if option not in options]
    paper = printable((inspect.getdoc(builder) or f"from {source}").splitlines()[0])
    return ScheduleSpec(printable(name), guarded(name, builder, source), "own", "-", paper, tuple(options))


def guarded(name: str, builder: Callable[..., Any], source: str) -> Callable[..., Schedule]:
    """`builder` with every error of its author's told as one line, and its result checked."""

    def build(ranks: int, microbatches: int, **options: object) -> Schedule:
        try:
            with quiet():
                schedule = builder(ranks, microbatches, **options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - it is not our code, and may raise anything
            raise _told(error, source, _file_of(builder)) from None
        if inspect.iscoroutine(schedule):
            schedule.close()  # an async function's, which else complains that nobody waited for it
        if not isinstance(schedule, Schedule):
            raise ScheduleError(
                f"{name} of {source} returned {type(schedule).__name__}, no Schedule",
                "end it with: return Schedule.from_orders(name, placement, microbatches, orders)",
            )
        try:
            # The name goes into files and onto terminals. Made anew, its columns are looked at too.
            schedule = replace(schedule, name=text_of(schedule.name))
            if (schedule.ranks, schedule.microbatches) == (ranks, microbatches):
                return schedule.validate()
        except PipetraceError as error:
            raise type(error)(f"{source}: {error.message}", error.hint) from None
        raise ScheduleError(
            f"{name} of {source} was asked for {ranks} ranks and {microbatches} microbatches, "
            f"and made a schedule of {schedule.ranks} and {schedule.microbatches}"
        )

    return build


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ScheduleError(f"there is no file {path}", "give --from FILE.py:BUILDER")
    spec = importlib.util.spec_from_file_location(f"pipetrace_own_{path.stem}", path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # so that it can import what lies beside it
    try:
        with quiet():
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - it is not our code, and may raise anything
        raise _told(error, str(path), str(path.absolute())) from None
    return module


def _told(error: BaseException, source: str, file: str) -> ScheduleError:
    """An error of somebody's code as one line: the innermost line of `file` that it came through."""
    name, line, text, hint = file, _line(error.__traceback__, file), error_text(error), ""
    if isinstance(error, SyntaxError) and error.filename is not None:
        name, line, text = error.filename, error.lineno, f"{type(error).__name__}: {error.msg}"
    elif isinstance(error, PipetraceError):
        # Of a class of theirs it may be that these are no text, or not there.
        text = text_of(getattr(error, "message", "")) or text
        hint = text_of(getattr(error, "hint", ""))
    if name == str(Path(source).absolute()):
        name = source  # as it was given
    at = [source] * (name != source) + [f"{name}:{line}"] * (line is not None)
    return ScheduleError(": ".join([*(at or [source]), text]), hint)


def error_text(error: BaseException) -> str:
    """What somebody's code raised, on one line of bearable length."""
    said = text_of(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def text_of(value: object) -> str:
    """Something of somebody's as text on one line of bearable length; empty where it cannot even say what it is."""
    try:
        text = " ".join(f"{value}".split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - their __str__ is not our code either, and may raise anything
        return ""
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


@contextmanager
def quiet() -> Iterator[None]:
    """Sends what somebody's code prints to stderr: stdout holds results, which others parse.

    Also what is not printed by Python: of libraries in C, and of programs that the code starts.
    """
    with redirect_stdout(sys.stderr), _descriptor_to_stderr():
        yield


@contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    """`quiet` for file descriptor 1; where that or stderr's is closed there is nothing to do."""
    saved = None
    with suppress(OSError, ValueError, AttributeError):
        sys.__stdout__.flush()  # type: ignore[union-attr]
    try:
        saved = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
    except OSError:
        pass
    try:
        yield
    finally:
        if saved is not None:
            _flush_c()
            os.dup2(saved, _STDOUT)
            os.close(saved)


def _flush_c() -> None:
    """Has C's own streams write what they still hold, which they would else do later, onto the right stdout."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).fflush(None)


def _file_of(builder: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(builder), "__code__", None)
    return code.co_filename if code is not None else ""


def _line(traceback: TracebackType | None, file: str) -> int | None:
    found = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            found = traceback.tb_lineno
        traceback = traceback.tb_next
    return found
