"""Whether an answer is right: a table of checkers.

Owns: exact and numeric comparison, and choosing the checker that a task names.
Does not own: finding the answer in the reply (`find`), mathematics (`maths`), the checkers of
generated tasks (`tasks.gym`).
"""

import math
import unicodedata
from collections.abc import Awaitable, Callable
from fractions import Fraction

from .maths import equal

MAX_ANSWER = 2000
"""characters; a longer answer is wrong"""
MAX_DIGITS = 400
"""characters of a number"""


async def exact(answer: str, right: str) -> bool:
    """Equal after Unicode normalisation, without outer space, case and a final full stop."""
    return _plain(answer) == _plain(right)


async def number(answer: str, right: str) -> bool:
    """Equal as numbers: 1,000 = 1000.0 = 2000/2. Floats to nine digits, whole numbers exactly."""
    found, wanted = _number(answer), _number(right)
    if found is None or wanted is None:
        return False
    if found.denominator == wanted.denominator == 1:
        return found == wanted
    return math.isclose(found, wanted, rel_tol=1e-9)


async def maths(answer: str, right: str) -> bool:
    """Equal as mathematics, by math-verify: 0.5 = \\frac{1}{2}, sets and intervals too."""
    return await exact(answer, right) or await equal(answer, right)


CHECKERS: dict[str, Callable[[str, str], Awaitable[bool]]] = {
    "exact": exact, "number": number, "math": maths,
}


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).removesuffix(".").strip()


def _number(text: str) -> Fraction | None:
    plain = unicodedata.normalize("NFKC", text).strip().strip("$%").replace(",", "").strip()
    if len(plain) > MAX_DIGITS:
        return None
    try:
        if "e" not in plain.lower():
            return Fraction(plain)
        value = float(plain)  # as a fraction 1e999999999 would fill the memory
        return Fraction(value) if math.isfinite(value) else None
    except (ValueError, ZeroDivisionError):
        return None
