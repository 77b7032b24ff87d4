"""The pictures of requests: taken out of the messages, kept once each, by digest.

Owns: what an `image_url` part may hold, pixels at hand, digests in place of data.
Does not own: the journal's copy (`store.py`), how a model reads pixels (`claw.engine.pictures`).
"""

import asyncio
import base64
import binascii
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from claw.engine.pictures import MAX_BYTES, MAX_PICTURES, BadPicture, Lens
from claw.records import Message
from claw.sdk.app import EngineError

MAX_HELD = 256 * 1024 * 1024
"""bytes of pictures and their pixels that are at hand; the journal has the others"""
NAME = "sha256:"
"""begins the url of a picture that was taken out of its message"""
_DATA = re.compile(r"data:image/(png|jpe?g);base64,", re.IGNORECASE)
Find = Callable[[str], bytes | None]


class Album:
    """Pictures by sha256 of what was sent."""

    def __init__(self, lens: Lens, find: Find, max_bytes: int = MAX_HELD) -> None:
        """`find` looks a picture up in the journal."""
        self.lens, self._find, self._max_bytes = lens, find, max_bytes
        self._held: OrderedDict[str, tuple[bytes, np.ndarray]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()  # pictures are decoded in threads

    # --- in ----------------------------------------------------------------------------------

    async def taken(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with digests in place of pictures; EngineError 400: a bad one."""
        if not any(map(_has_parts, messages)):
            return list(messages)
        return await asyncio.to_thread(self._taken, messages)

    def _taken(self, messages: Sequence[Message]) -> list[Message]:
        made, number = [], 0
        for i, message in enumerate(messages):
            if not _has_parts(message):
                made.append(message)
                continue
            parts = []
            for j, part in enumerate(message["content"]):
                if is_picture(part):
                    number += 1
                    at = f"messages[{i}].content[{j}].image_url"
                    if number > MAX_PICTURES:
                        raise _bad(f"more than {MAX_PICTURES} pictures in one request", at)
                    part = _named(self._take(part["image_url"], at))
                parts.append(part)
            made.append({**message, "content": parts})
        return made

    def _take(self, given: Any, at: str) -> str:
        url = given.get("url") if isinstance(given, dict) else given
        if not isinstance(url, str):
            raise _bad(f"{at} is {{url: a data URL}}", at)
        head = _DATA.match(url[:64])
        if head is None:
            raise _bad(f"{at}.url begins with {url[:40]!r}; claw fetches nothing: send the "
                       "picture itself, as data:image/png;base64,... or image/jpeg", at)
        if len(url) > MAX_BYTES * 4 // 3 + 128:
            raise _bad(f"{at} is larger than {MAX_BYTES >> 20} MiB", at)
        try:
            data = base64.b64decode(url[head.end():], validate=True)
        except (binascii.Error, ValueError):
            raise _bad(f"{at}.url is no base64", at) from None
        digest = hashlib.sha256(data).hexdigest()
        if self._at_hand(digest) is None:
            try:
                self._hold(digest, data, self.lens.pixels(data))
            except BadPicture as error:
                raise _bad(f"{at} cannot be shown: {error}", at) from error
        return digest

    def _hold(self, digest: str, data: bytes, pixels: np.ndarray) -> np.ndarray:
        with self._lock:
            self._let_go(digest)
            self._held[digest] = data, pixels
            self._size += len(data) + pixels.nbytes
            while self._size > self._max_bytes and len(self._held) > 1:
                self._let_go(next(iter(self._held)))
        return pixels

    def _at_hand(self, digest: str) -> tuple[bytes, np.ndarray] | None:
        with self._lock:
            if (held := self._held.get(digest)) is not None:
                self._held.move_to_end(digest)
            return held

    def _let_go(self, digest: str) -> None:
        if (held := self._held.pop(digest, None)) is not None:
            self._size -= len(held[0]) + held[1].nbytes

    # --- out ---------------------------------------------------------------------------------

    def data(self, digest: str) -> bytes | None:
        """What was sent, if it is at hand: for the journal to keep."""
        held = self._at_hand(digest)
        return held[0] if held is not None else None

    def pixels(self, digest: str) -> np.ndarray:
        """uint8 [H, W, 3] in the model's size. KeyError: the picture is forgotten."""
        if (held := self._at_hand(digest)) is not None:
            return held[1]
        if (data := self._find(digest)) is None:
            raise KeyError(digest)
        return self._hold(digest, data, self.lens.pixels(data))

    async def shown(self, digests: Sequence[str]) -> tuple[np.ndarray, ...]:
        """The pixels of some pictures, in order."""
        if all(d in self._held for d in digests):
            return tuple(map(self.pixels, digests))
        return await asyncio.to_thread(lambda: tuple(map(self.pixels, digests)))

    def num_tokens(self, digest: str) -> int:
        return self.lens.num_tokens(self.pixels(digest))

    def forget(self, digests: Iterable[str]) -> None:
        """Drop pictures from memory; those that others still show are read again."""
        with self._lock:
            for digest in digests:
                self._let_go(digest)


def is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url" and "image_url" in part


def digests(message: Any) -> list[str]:
    """The pictures that a message shows, once they were taken out of it."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return []
    urls = [p["image_url"].get("url") for p in content
            if is_picture(p) and isinstance(p["image_url"], dict)]
    return [u.removeprefix(NAME) for u in urls if isinstance(u, str) and u.startswith(NAME)]


def _has_parts(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(map(is_picture, content))


def _named(digest: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": NAME + digest}}


def _bad(message: str, param: str) -> EngineError:
    return EngineError(400, message, param=param, code="invalid_image")
