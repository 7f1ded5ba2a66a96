"""The command line: one command a file, no logic of its own."""

from __future__ import annotations


def main() -> None:
    """Runs the command line; exits with 0, 1 for a known error, 2 for wrong usage, 130 after Ctrl-C."""
    from pipetrace.cli.ending import exit_code

    def run() -> None:
        # Inside, since loading takes a moment too, in which Ctrl-C can come.
        from pipetrace.cli.app import app

        app()

    raise SystemExit(exit_code(run))
