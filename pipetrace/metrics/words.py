"""Actions in the words of sentences, where the text of an action would be too terse."""

from __future__ import annotations

from pipetrace.action import NO_ACTION, Action


def words(code: int, partner: int = NO_ACTION) -> str:
    """An action as people say it.

    >>> from pipetrace.action import parse_action
    >>> words(parse_action("3I5").code), words(parse_action("d1:0F2").code)
    ('I5 of stage 3', 'F2 of stage 0 of pipe 1')
    """
    if partner != NO_ACTION:
        return f"the pair of {words(code)} and {words(partner)}"
    action = Action.from_code(code)
    microbatch = "" if action.microbatch is None else action.microbatch
    part = "" if action.part is None else f" ({action.part.name.lower()} of layer {action.layer})"
    pipe = f" of pipe {action.pipe}" if action.pipe else ""
    return f"{action.kind.name}{microbatch} of stage {action.stage}{pipe}{part}"
