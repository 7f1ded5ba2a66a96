"""Commands whose options stand once: what is typed twice is a mistake, of which half would be dropped silently."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class OnceCommand(TyperCommand):
    """A command that refuses a second value of an option that takes one, and numbers that only Python reads."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As of a command; raises BadParameter for an option that is given twice, or a number such as 1_0."""
        rest = super().parse_args(ctx, list(args))
        parsed: Any = self.make_parser(ctx).parse_args(args=list(args))
        given, _, order = parsed
        for parameter in order:
            single = parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_flag
            if single and order.count(parameter) > 1:
                raise typer.BadParameter("it is given twice", ctx=ctx, param=parameter)
            value, read = given.get(parameter.name), ctx.params.get(parameter.name)
            if isinstance(read, int | float) and isinstance(value, str) and "_" in value:
                raise typer.BadParameter(f"{value!r} is no number of plain digits", ctx=ctx, param=parameter)
        return rest
