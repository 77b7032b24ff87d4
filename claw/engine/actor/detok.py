"""Token ids -> text, a few at a time, never half a character.

Owns: when sampled ids have become whole characters.
Does not own: which of the text a person sees (`parse.py`).
"""

from collections.abc import Callable, Sequence

HALF = "\ufffd"
MAX_HELD = 8
"""ids held back for an unfinished character; longer means the bytes are no UTF-8 at all"""


class Detokeniser:
    """Turns one reply's ids into text. `decode` maps ids to text, special tokens included."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0  # decoding starts one emitted piece back: leading spaces depend on it
        self._read = 0

    def add(self, ids: Sequence[int]) -> str:
        """Take sampled ids and return the text that is whole now."""
        self._ids.extend(ids)
        return self._take(final=False)

    def end(self) -> str:
        """Return what is left; an unfinished character becomes U+FFFD."""
        return self._take(final=True)

    def _take(self, final: bool) -> str:
        if self._read == len(self._ids):
            return ""
        before = self._decode(self._ids[self._start : self._read])
        after = self._decode(self._ids[self._start :])
        held = len(self._ids) - self._read
        if after.endswith(HALF) and not final and held <= MAX_HELD:
            return self._whole_part(before)
        self._start, self._read = self._read, len(self._ids)
        return after[len(before) :]

    def _whole_part(self, before: str) -> str:
        """Give out the ids in front of the unfinished character, if several came at once."""
        for end in range(len(self._ids) - 1, self._read, -1):
            text = self._decode(self._ids[self._start : end])
            if not text.endswith(HALF):
                self._start, self._read = self._read, end
                return text[len(before) :]
        return ""
