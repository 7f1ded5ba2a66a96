"""Names and keys that are nearly what is looked for: what one wrong letter hides would be lost without a word."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pipetrace.action import Kind

_WORDS = ("Forward ", "Backward ", "gloo:send", "gloo:recv", "c10d::send", "c10d::recv_", "ProfilerStep#", "STEP")
_LONGEST = max(map(len, _WORDS)) + 6
_AN_ACTION = re.compile(
    rf"\D{{0,6}}\d+(?:{'|'.join(sorted((k.name for k in Kind), key=len, reverse=True))})\d*(?:@.*)?"
)


def is_nearly_a_label(name: str) -> bool:
    """Whether a name is one letter away from what a label, a mark or a transfer is called, or lacks its prefix only."""
    if len(name) > _LONGEST:
        return False
    if _AN_ACTION.fullmatch(name):
        return True
    bare = name.rstrip("0123456789")
    return is_nearly_one_of(bare, _WORDS)


def is_nearly_one_of(text: str, words: Iterable[str]) -> bool:
    """Whether a text is none of some words, but one letter away from one."""
    return text not in (words := tuple(words)) and any(is_one_off(text, word) for word in words)


def is_damaged_one_of(text: str, words: Iterable[str]) -> bool:
    """Whether a text is none of some words, but one where a piece was changed, put in or taken out.

    Four fifths of the word stand in their place: for what has few names, of which none is another one's part.
    """
    words = tuple(words)
    return text not in words and any(sum(_in_common(text, word)) >= 0.8 * len(word) for word in words)


def is_one_off(text: str, word: str) -> bool:
    """Whether a text is a word with one letter changed, too many or missing."""
    if text == word or abs(len(text) - len(word)) > 1:
        return False
    return max(len(text), len(word)) - sum(_in_common(text, word)) <= 1


def _in_common(text: str, word: str) -> tuple[int, int]:
    """How many letters two begin and end with alike, none counted twice."""
    shorter = min(len(text), len(word))
    first = next((i for i in range(shorter) if text[i] != word[i]), shorter)
    return first, next((i for i in range(shorter - first) if text[-1 - i] != word[-1 - i]), shorter - first)
