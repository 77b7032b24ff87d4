"""Whatever comes over a socket is a message, or a WireError that says why not in few words."""

import dataclasses
import functools
import types
import typing
from random import Random
from typing import Any

import msgpack
import numpy as np
from some_json import cut, deep, one_of, text, value
from tried import Tried

from claw import records
from claw.engine import wire
from claw.errors import WireError
from claw.sdk.app import Ask

DTYPES = ("int8", "int32", "int64", "float16", "float32", "float64", "bool")
RECORDS = (records.Turn, records.Sample, records.Completion, records.Version, records.Update,
           records.Trace, records.Signal, records.Sampling, Ask)
LONGEST = 2000
"""characters of what is said of a message: it is logged, and sent back"""


def small(of: type, **changes: Any) -> Any:
    """A record with a plain value in each field."""
    made = {
        str: "x", int: 3, float: 0.5, bool: True, list: [], dict: {}, tuple: (),
        np.ndarray: np.arange(3, dtype=np.int32),
    }
    given: dict[str, Any] = {}
    for name, hint in wire._hints(of).items():
        if name in changes:
            given[name] = changes[name]
        elif hint in made:
            given[name] = made[hint]
        elif isinstance(hint, type) and hasattr(hint, "__members__"):
            given[name] = next(iter(hint))
        elif hint is records.Sampling or hint is records.Loss:
            given[name] = small(hint)
        elif getattr(hint, "__origin__", None) in made:
            given[name] = made[hint.__origin__]
        else:
            given[name] = None
    return of(**given)


@functools.cache
def real_frames() -> tuple[tuple[bytes, ...], ...]:
    """Messages as the processes send them."""
    two_hints = (np.arange(4, dtype=np.int32), np.arange(2, dtype=np.int32))
    sample = small(records.Sample, hints=two_hints, topk_ids=np.zeros((3, 4), np.int32))
    turn = small(records.Turn, completion=small(records.Completion))
    messages = [wire.record_message("r", small(of), "1") for of in RECORDS]
    messages += [wire.record_message("turn", turn, "2"),
                 wire.samples_message("lease.samples", [sample, sample], "3"),
                 wire.Message("chunk", "4", {"start": 0}, {"ids": np.zeros(70_000, np.float32)}),
                 wire.Message("status", "5")]
    return tuple(tuple(bytes(f) for f in wire.encode(m)) for m in messages)


def refused(error: WireError) -> None:
    assert 0 < len(str(error)) <= LONGEST, f"{len(str(error))} characters of an error"


def check_types(record: Any) -> None:
    """A record that was read holds what its fields are declared to hold."""
    for name, hint in wire._hints(type(record)).items():
        value = getattr(record, name)
        for option in typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
            kind = typing.get_origin(option) or option
            kind = (int, float) if kind is float else kind
            if kind is Any or isinstance(value, kind):
                break
        else:
            raise AssertionError(f"{type(record).__name__}.{name} is {value!r}")
        if typing.get_origin(hint) in (tuple, list):
            item = typing.get_args(hint)[0]
            kinds = [typing.get_origin(o) or o for o in typing.get_args(item) or (item,)]
            kinds = [dict] if typing.get_origin(item) is dict else kinds
            assert all(any(isinstance(v, k) for k in kinds) for v in value), f"{name}: {value!r}"
        if dataclasses.is_dataclass(value):
            check_types(value)


def decoded(frames: list[bytes]) -> wire.Message | None:
    try:
        message = wire.decode(frames)
    except WireError as error:
        return refused(error)
    total = sum(a.nbytes for a in message.arrays.values())
    assert total <= sum(map(len, frames[1:])), "an array is not larger than what came"
    return message


def read(frames: list[bytes]) -> None:
    """Decode, and read every record out of what is there."""
    message = decoded(frames)
    if message is None:
        return
    for of in RECORDS:
        try:
            record = wire.read_record(message, of)
        except WireError as error:
            refused(error)
            continue
        check_types(record)
    try:
        wire.read_samples(message)
    except WireError as error:
        refused(error)


def packed(value: Any) -> bytes:
    try:
        return msgpack.packb(value, unicode_errors="surrogatepass")
    except (ValueError, OverflowError, TypeError):
        return b"\x80"


SIZES = (0, 1, 2, 3, -1, 1 << 16, 1 << 31, (1 << 31) + 1, 1 << 62)


def shape(random: Random) -> Any:
    return [random.choice(SIZES) for _ in range(random.randrange(10))]


def spec(random: Random) -> Any:
    dtype = random.choice((*DTYPES, text(random)))
    return random.choice(([text(random), dtype, shape(random)], value(random)))


def header(random: Random) -> bytes:
    """A map like a header; each part may be anything."""
    made = {"v": 1, "type": "x", "id": "1", "fields": {"a": value(random)},
            "arrays": [spec(random) for _ in range(random.randrange(4))]}
    if random.random() < 0.5:
        made[random.choice(list(made))] = value(random)
    return packed(made)


def garbage(random: Random) -> list[bytes]:
    return [one_of(random, header, lambda r: r.randbytes(r.randrange(40)),
                   lambda r: packed(value(r)), lambda r: packed(deep(r)))
            for _ in range(random.randrange(5))]


def test_bytes_are_messages_or_refused(tried: Tried) -> None:
    tried(read, garbage, 250)


def mangled(random: Random) -> list[bytes]:
    """A real message with frames cut, flipped, doubled, left out, or in another order."""
    frames = list(random.choice(real_frames()))
    at = random.randrange(len(frames))
    match random.randrange(5):
        case 0:
            frames[at] = cut(random, frames[at])
        case 1:
            random.shuffle(frames)
        case 2:
            del frames[at]
        case 3:
            frames.insert(at, frames[at])
        case 4:
            frames[at] = random.choice(random.choice(real_frames()))
    return frames


def test_real_messages_that_broke_on_the_way_are_refused(tried: Tried) -> None:
    tried(read, mangled, 300)


def changed_header(random: Random) -> list[bytes]:
    """A real message whose fields, array names or shapes say something else."""
    first, *rest = random.choice(real_frames())
    header = msgpack.unpackb(first)
    record = header["fields"].get("record")
    match random.randrange(3):
        case 0 if record:
            record[random.choice(list(record))] = value(random)
        case 1 if header["arrays"]:
            names = ("id", "temperature", "hints.0", "messages", "sampling")
            part = random.randrange(3)
            random.choice(header["arrays"])[part] = (
                random.choice(names), random.choice(DTYPES), shape(random))[part]
        case _:
            name = random.choice(("record", "samples", text(random)))
            header["fields"][name] = value(random)
    return [packed(header), *rest]


def test_real_messages_that_say_something_else_are_read_or_refused(tried: Tried) -> None:
    tried(read, changed_header, 300)


def test_what_is_sent_comes_back_or_is_refused_by_the_sender(tried: Tried) -> None:
    def check(fields: Any) -> None:
        try:
            frames = [bytes(f) for f in wire.encode(wire.Message("x", "1", {"f": fields}))]
        except WireError as error:
            return refused(error)
        assert wire.decode(frames).type == "x"

    tried(check, lambda random: one_of(random, value, deep), 100)
