"""How the command line ends: whatever happens it is one line at most, never a traceback for what a user can cause."""

from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType

from pipetrace.cli.console import error_line, say
from pipetrace.errors import OutputError, PipetraceError
from pipetrace.shown import printable

INTERRUPTED = 130
_AS_WELL_AS_CAN_BE = "pipetrace.plain"
_PLAIN: Mapping[str, str] = {
    "─": "-",
    "│": "|",
    "Σ": "sum",
    "×": "x",
    "…": "...",
    "–": "-",
    "µ": "u",
    "→": "->",
    "·": ".",
    "Δ": "delta",
    "±": "+-",
    "²": "^2",
}
_CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what there is to say about it."""


class Passed(Exception):
    """Carries an error of a command past typer, which would end the program for it in its own way."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def exit_code(run: Callable[[], None]) -> int:
    """Runs the program, tells what went wrong, and returns the exit code."""
    codecs.register_error(_AS_WELL_AS_CAN_BE, _in_ascii)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C does, so that what is half-written goes; with nohup a hang-up stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    _hold_places()
    for stream in (sys.stdout, sys.stderr):
        # File names need not be text, and a terminal need not know every letter.
        with suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors=_AS_WELL_AS_CAN_BE)  # type: ignore[union-attr]
    if os.environ.get("COLUMNS", "").strip("0") == "":
        # A terminal that does not say how wide it is; in no columns nothing at all would be printed.
        os.environ.pop("COLUMNS", None)
    try:
        try:
            return _run(run)
        except BaseException as error:  # noqa: BLE001 - all but what is known is raised again
            return _told(error)
    except KeyboardInterrupt:
        # Once more, while the first was told.
        return INTERRUPTED


def _hold_places() -> None:
    """Opens what the program was started without of standard input, output and error, as by `>&-`.

    Else the next file that is opened would take the number, and what other processes print would land in it. What is
    written to an output that is closed must not get lost silently either, so that this one refuses it: it can be read.
    """
    modes = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
    for place, (stream, mode) in enumerate(zip((sys.stdin, sys.stdout, sys.stderr), modes, strict=True)):
        if stream is None:
            number = os.open(os.devnull, mode)  # the lowest that is free
            os.set_inheritable(number, number == place)
            if place == 1:
                sys.stdout = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for letters that a terminal does not know: an error handler of `codecs`."""
    assert isinstance(error, UnicodeEncodeError)
    letter = error.object[error.start]
    return _PLAIN.get(letter) or ascii(letter)[1:-1], error.start + 1


def _run(run: Callable[[], None]) -> int:
    code = 0
    try:
        run()
    except Passed as passed:
        raise passed.error from None
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code == INTERRUPTED:
            # typer's own way, where Ctrl-C came before a command had begun.
            raise KeyboardInterrupt from None
    if sys.stdout is not None and not sys.stdout.closed:
        # What is still in the buffer would else be lost silently when the interpreter ends.
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_stdout()  # what the command came to stands, read or not
    return code


def _told(error: BaseException) -> int:
    """Prints a known error, and returns its exit code; raises what is not known."""
    match error:
        case BrokenPipeError():
            # The reader of our output went away, as `| head` does: no more can be written, and that is no error.
            _drop_stdout()
            return 0
        case KeyboardInterrupt():
            _say("; ".join(["interrupted", *map(str, error.args)]))
            _drop_stdout_if_full()
            return INTERRUPTED
        case PipetraceError():
            _say(error_line(error))
            _drop_stdout_if_full()
            return 1
        case MemoryError():
            _say("error: there is not enough memory for this (give smaller sizes)")
            return 1
        case OSError():
            _drop_stdout()
            _say(error_line(_of_the_system(error)))
            return 1
        case ValueError() if sys.stdout is not None and sys.stdout.closed:
            _say("error: the output cannot be written: something closed it")
            return 1
        case _:
            raise error


def _of_the_system(error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    if error.filename is not None:
        return OutputError(
            f"{os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename}: {reason}"
        )
    if error.errno == errno.EBADF:
        return OutputError("the output cannot be written: it is closed", "send it to a file, or to /dev/null")
    if error.errno in _CANNOT_BE_WRITTEN:
        return OutputError(f"the output cannot be written: {reason}", "free some space, or write it elsewhere")
    return OutputError(f"the system refused: {reason}")


def _say(line: str) -> None:
    # Where stderr itself cannot be written the exit code has to do.
    with suppress(OSError, ValueError):
        say(printable(line))


def _drop_stdout_if_full() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        _drop_stdout()


def _drop_stdout() -> None:
    """Sends what is still in the buffer nowhere: at its end the interpreter would try to write it, and complain."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
