"""Values as error messages show them: on one line, and never longer than a glance."""

from __future__ import annotations

LONGEST = 60


def shown(value: object, longest: int = LONGEST) -> str:
    r"""`repr` of a value, cut in the middle of nowhere rather than filling the screen; text keeps its backslashes.

    >>> shown("F=x"), shown([1, 2])
    ("'F=x'", '[1, 2]')
    >>> print(shown(r"mb\d+ of C:\run"))
    'mb\d+ of C:\run'
    >>> shown("9" * 5000)
    "'99999999999999999999999999999999999999999999999999999999...'"
    """
    if isinstance(value, str):
        text = printable(value if len(value) <= longest - 2 else value[: longest - 4] + "...")
        return f'"{text}"' if "'" in text and '"' not in text else f"'{text}'"
    if isinstance(value, int) and value.bit_length() > 4 * longest:
        # Python refuses to write out integers of thousands of digits.
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:  # the same integer inside a list or a table
        return f"a {type(value).__name__} with a huge integer"
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"
    except Exception:  # noqa: BLE001 - a class of somebody's, which may raise anything
        return f"a {type(value).__name__}"
    return text if len(text) <= longest else text[: longest - 3] + "..."


def printable(text: str) -> str:
    """Text on one line: control characters, line ends and what is no UTF-8 as escapes.

    >>> printable("a\\nb\\x1b[31m"), printable("x\\udcff")
    ('a\\\\nb\\\\x1b[31m', 'x\\\\xff')
    """
    return "".join(
        character
        if character.isprintable()
        else f"\\x{ord(character) - 0xDC00:02x}"  # how Python holds a file name's byte that is no UTF-8
        if "\udc80" <= character <= "\udcff"
        else repr(character)[1:-1]
        for character in text
    )
