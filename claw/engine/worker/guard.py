"""Requests are checked before an engine sees them: engines die of what gets past this page.

Owns: wire fields -> a checked request, or a RequestError with code bad_request.
Does not own: overload (the worker) or what the engine does with a good request.
"""

import dataclasses
import time

import numpy as np

from claw.engine import wire
from claw.engine.pictures import MAX_PICTURES
from claw.engine.wire import Message
from claw.engine.worker.backend import Code, Generate, Limits, RequestError, Score
from claw.errors import WireError
from claw.records import DEFAULT_OWNER, Sampling

MAX_STOP_IDS = 1024
MAX_TOPK = 1024


def read_generate(message: Message, limits: Limits, deadline_s: float) -> Generate:
    """Return the checked request of a `generate` message."""
    prompt = _ids(message, "prompt_ids", limits)
    if len(prompt) >= limits.context:
        raise _bad(f"prompt_ids has {len(prompt)} tokens; the context holds {limits.context} "
                   "with the reply")
    return Generate(
        message.id, prompt, _sampling(message, limits), _stop_ids(message, limits),
        _text(message, "session", ""), _text(message, "owner", DEFAULT_OWNER),
        _text(message, "adapter", DEFAULT_OWNER), _deadline(message, deadline_s),
        _pictures(message, prompt, limits),
    )


def read_score(message: Message, limits: Limits, deadline_s: float) -> Score:
    """Return the checked request of a `score` message."""
    ids = _ids(message, "ids", limits)
    if len(ids) < 2 or len(ids) > limits.context:
        raise _bad(f"ids has {len(ids)} tokens; scoring takes 2 to {limits.context}")
    temperature = _number(message.get("temperature", 1.0), "temperature", 0.0, 100.0)
    topk = _whole(message.get("topk", 0), "topk", 0, min(limits.vocab_size, MAX_TOPK))
    return Score(
        message.id, ids, _text(message, "owner", DEFAULT_OWNER),
        _text(message, "adapter", DEFAULT_OWNER), temperature, topk,
        _deadline(message, deadline_s),
    )


def _bad(text: str) -> RequestError:
    return RequestError(Code.BAD_REQUEST, text)


def _ids(message: Message, name: str, limits: Limits) -> np.ndarray:
    ids = message.arrays.get(name)
    if ids is None:
        raise _bad(f"array {name} is missing")
    if ids.ndim != 1 or ids.dtype.kind != "i":
        raise _bad(f"{name} must be a row of whole numbers; got {ids.dtype.name}{list(ids.shape)}")
    if not len(ids):
        raise _bad(f"{name} is empty")
    wrong = np.flatnonzero((ids < 0) | (ids >= limits.vocab_size))
    if len(wrong):
        raise _bad(f"{name}[{wrong[0]}] is {ids[wrong[0]]}; ids are 0 to {limits.vocab_size - 1}")
    return ids.astype(np.int32)


def _pictures(message: Message, prompt: np.ndarray, limits: Limits) -> tuple[np.ndarray, ...]:
    """Arrays `pictures.0`, `pictures.1`, ...: they must be those that the prompt has tokens for."""
    number = _whole(message.get("pictures", 0), "pictures", 0, MAX_PICTURES)
    if not number:
        return ()
    if limits.lens is None:
        raise _bad(f"a worker of kind {limits.kind!r} with this model takes no pictures")
    names = [f"pictures.{i}" for i in range(number)]
    if missing := [name for name in names if name not in message.arrays]:
        raise _bad(f"array {missing[0]} is missing")
    pictures = tuple(message.arrays[name] for name in names)
    for name, picture in zip(names, pictures, strict=True):
        if problem := limits.lens.problem(picture):
            raise _bad(f"{name}: {problem}")
    try:
        limits.lens.places(prompt, pictures)
    except ValueError as error:
        raise _bad(f"prompt_ids do not fit the pictures: {error}") from None
    return pictures


def _sampling(message: Message, limits: Limits) -> Sampling:
    fields = message.get("sampling")
    if not isinstance(fields, dict):
        raise _bad("field sampling is missing")
    try:
        asked = wire.unpack(Sampling, fields, {})
    except (WireError, TypeError, ValueError) as error:
        raise _bad(f"sampling: {error}") from None
    seed = asked.seed
    if seed is not None:
        seed = _whole(seed, "seed", -(2**63), 2**63 - 1)
    return dataclasses.replace(
        asked,
        temperature=_number(asked.temperature, "temperature", 0.0, 100.0),
        top_p=_top_p(asked.top_p),
        top_k=_whole(asked.top_k, "top_k", 0, limits.vocab_size),
        max_tokens=_whole(asked.max_tokens, "max_tokens", 1, 2**31 - 1),
        logprobs_k=_whole(asked.logprobs_k, "logprobs_k", 0, min(limits.vocab_size, MAX_TOPK)),
        seed=seed,
        ignore_eos=bool(asked.ignore_eos),
    )


def _top_p(value: object) -> float:
    top_p = _number(value, "top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise _bad("top_p is 0; allowed: above 0 to 1")
    return top_p


def _stop_ids(message: Message, limits: Limits) -> tuple[int, ...]:
    ids = message.get("stop_ids") or []
    if not isinstance(ids, list) or len(ids) > MAX_STOP_IDS:
        raise _bad(f"stop_ids must be a list of at most {MAX_STOP_IDS} ids")
    return tuple(_whole(i, "stop_ids", 0, limits.vocab_size - 1) for i in ids)


def _text(message: Message, name: str, default: str) -> str:
    value = message.get(name, default)
    if not isinstance(value, str):
        raise _bad(f"{name} must be text; got {type(value).__name__}")
    return value


def _deadline(message: Message, deadline_s: float) -> float:
    asked = message.get("deadline_s")
    if asked is not None:
        deadline_s = min(deadline_s, _number(asked, "deadline_s", 0.0, 1e9))
    return time.monotonic() + deadline_s


def _number(value: object, name: str, low: float, high: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore  # a nan is in no range
        raise _bad(f"{name} is {value!r}; allowed: {low:g} to {high:g}")
    return float(value)  # type: ignore


def _whole(value: object, name: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _bad(f"{name} is {value!r}; allowed: whole numbers from {low} to {high}")
    return value
