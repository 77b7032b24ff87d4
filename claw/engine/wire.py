"""Messages between processes: one msgpack header, then raw array frames, over ZeroMQ.

Owns: messages <-> frames, sockets, addresses, CURVE keys.
Does not own: what a message means (the two ends), retries, answering who may connect (door).

A message is `Message(type, id, fields, arrays)`. On the wire it is a list of frames: a msgpack map
`{v, type, id, fields, arrays: [[name, dtype, shape], ...]}` and then the bytes of each array in
that order; several small ones share a frame, each from a multiple of 8 bytes on, for a frame costs
more than its copy. Nothing is pickled; numbers travel as arrays, never as lists.
"""

import dataclasses
import enum
import functools
import os
import stat
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from claw import records
from claw.engine import door
from claw.errors import UsageError, WireError

VERSION = 1
"""the major version of the protocol; a newer one is refused by name"""

MAX_HEADER = 64 * 1024 * 1024
"""bytes: a request may carry images in content parts"""
MAX_FRAMES = 4096
MAX_ARRAY = 1 << 31
"""bytes of one array frame"""
JOINED = 256 * 1024
"""bytes up to which the arrays of a message share one frame"""
ALIGNED = 8
"""arrays in a shared frame begin at multiples of it"""
BRIEF = 200
"""characters of what a peer sent that are said again of it"""
HIGH_WATER = 1000
"""messages that may queue on a socket; peers use credit, so this is never reached in health"""
LOCAL_BUFFER = 1 << 20
"""bytes that the kernel holds of an ipc:// socket: with its usual 0.2 MB the two ends change places
at every quarter of a reply's array; TCP sizes its own"""

_DTYPES = {name: np.dtype(name) for name in (
    "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bool")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `fields` holds plain values only; arrays go into `arrays`."""

    type: str
    id: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return the field `name`; a missing one is a WireError that names it."""
        try:
            return self.fields[name]
        except KeyError:
            raise WireError(f"message {self.type!r} has no field {name!r}") from None

    def get(self, name: str, default: Any = None) -> Any:
        return self.fields.get(name, default)


def encode(message: Message) -> list[bytes | memoryview]:
    """Return the frames of a message (the routing frame is the socket's)."""
    arrays = {name: np.ascontiguousarray(a) for name, a in message.arrays.items()}
    for name, a in arrays.items():
        if a.dtype not in _NAMES:
            raise WireError(f"array {name!r} has dtype {a.dtype.name}; allowed: {sorted(_DTYPES)}")
    header = {
        "v": VERSION,
        "type": message.type,
        "id": message.id,
        "fields": message.fields,
        "arrays": [[name, _NAMES[a.dtype], a.shape] for name, a in arrays.items()],
    }
    try:
        # surrogatepass: a lone surrogate from a client must travel, not kill the sender
        packed = msgpack.packb(header, use_bin_type=True, unicode_errors="surrogatepass")
    except (TypeError, ValueError, OverflowError) as error:  # nested too deeply, or too large
        raise WireError(f"message {message.type!r} holds what does not travel: {error}") from error
    if len(arrays) > 1 and sum(a.nbytes for a in arrays.values()) <= JOINED:
        return [packed, b"".join(_padded(a.tobytes()) for a in arrays.values())]
    return [packed, *(memoryview(a).cast("B") if a.size else b"" for a in arrays.values())]


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % ALIGNED)


def decode(frames: Sequence[bytes | memoryview]) -> Message:
    """Return the message in `frames`, or raise WireError that says what is wrong with them.

    Its arrays are views of the frames: nothing is copied.
    """
    if not frames or len(frames) > MAX_FRAMES or len(frames[0]) > MAX_HEADER:
        raise WireError(f"a message has 1 to {MAX_FRAMES} frames; found {len(frames)}")
    header = _header(frames[0])
    specs = header["arrays"]
    sizes = [_num_bytes(spec) for spec in specs]
    if len(specs) > 1 and len(frames) == 2:
        frames = [frames[0], *_split(sizes, memoryview(frames[1]))]
    if len(specs) != len(frames) - 1:
        raise WireError(f"header names {len(specs)} arrays; {len(frames) - 1} frames followed")
    arrays = {
        spec[0]: _array(spec, size, raw)
        for spec, size, raw in zip(specs, sizes, frames[1:], strict=True)
    }
    return Message(header["type"], header["id"], header["fields"], arrays)


def name_of(frames: Sequence[bytes | memoryview]) -> tuple[str, str]:
    """Return (type, id) of a message that is only passed on; its arrays are not looked at."""
    header = _header(frames[0])
    return header["type"], header["id"]


def receive(socket: Any) -> list[memoryview]:
    """Return the frames of the next message where ZeroMQ put them: large arrays are not copied."""
    return [frame.buffer for frame in socket.recv_multipart(copy=False)]


def _header(raw: bytes | memoryview) -> dict[str, Any]:
    try:
        header = msgpack.unpackb(
            raw, raw=False, strict_map_key=True, unicode_errors="surrogatepass"
        )
    except Exception as error:  # msgpack raises many kinds; all mean: not a header
        raise WireError(f"the first frame is no msgpack map: {type(error).__name__}") from error
    if not isinstance(header, dict):
        raise WireError(f"the first frame is a {type(header).__name__}, not a map")
    version = header.get("v")
    if not isinstance(version, int) or version > VERSION or version < 1:
        raise WireError(
            f"protocol version {_brief(version)} is not spoken here; this side is {VERSION}")
    kinds = {"type": str, "id": str, "fields": dict, "arrays": list}
    for name, kind in kinds.items():
        if not isinstance(header.get(name), kind):
            raise WireError(f"header field {name!r} must be a {kind.__name__}")
    return header


def _split(sizes: list[int], raw: memoryview) -> list[memoryview]:
    """The arrays that share a frame; one that ends too early leaves pieces that are too short."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(raw[at : at + size])
        at += size + -size % ALIGNED
    if at != len(raw):
        raise WireError(f"the arrays of a shared frame need {at} bytes; {len(raw)} came")
    return pieces


def _array(spec: Any, wanted: int, raw: bytes | memoryview) -> np.ndarray:
    name, dtype, shape = spec
    if wanted != len(raw) or wanted > MAX_ARRAY:
        raise WireError(
            f"array {_brief(name)} of {dtype}{shape} needs {wanted} bytes; {len(raw)} came")
    flat = np.frombuffer(raw, _DTYPES[dtype])
    try:
        return flat if len(shape) == 1 else flat.reshape(shape)
    except ValueError as error:  # a 0 among dimensions whose product has no number
        raise WireError(f"array {_brief(name)} has an impossible shape {shape}") from error


def _num_bytes(spec: Any) -> int:
    """Check how an array is announced; return its size."""
    if not (isinstance(spec, list) and len(spec) == 3 and isinstance(spec[2], list)):
        raise WireError("an array is announced as [name, dtype, shape]")
    name, dtype, shape = spec
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in _DTYPES:
        raise WireError(f"array {_brief(name)} has dtype {_brief(dtype)}; "
                        f"allowed: {sorted(_DTYPES)}")
    if len(shape) > 8 or any(type(n) is not int or not 0 <= n <= MAX_ARRAY for n in shape):
        raise WireError(f"array {_brief(name)} has an impossible shape {_brief(shape)}")
    size = _DTYPES[dtype].itemsize
    for n in shape:
        size *= n
    return size


def _brief(value: Any) -> str:
    """What a peer sent, for a message that is logged and sent back: a header has 64 MB."""
    shown = repr(value)
    return shown if len(shown) <= BRIEF else f"{shown[:BRIEF]}..."


# --- records ---------------------------------------------------------------------------------


def pack(record: Any, prefix: str = "") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Split a record into plain fields and arrays; array names carry `prefix`.

    Tuples of arrays (hint candidates) become `name.0`, `name.1`, ...; nested records nest.
    """
    fields: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for own in _hints(type(record)):
        value, name = getattr(record, own), prefix + own
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields[own], inner = pack(value, name + ".")
            arrays |= inner
        elif isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            fields[own] = len(value)
            arrays |= {f"{name}.{i}": a for i, a in enumerate(value)}
        else:
            fields[own] = list(value) if isinstance(value, tuple) else value
    return {k: _plain(v) for k, v in fields.items()}, arrays


def unpack(
    kind: type, fields: dict[str, Any], arrays: dict[str, np.ndarray], prefix: str = ""
) -> Any:
    """Rebuild a record of `kind` from what `pack` made; unknown or missing parts are refused."""
    if not isinstance(fields, dict):
        raise WireError(f"a {kind.__name__} is a map of fields; a {type(fields).__name__} came")
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for own, hint in hints.items():
        name = prefix + own
        if name in arrays and np.ndarray in _options(hint):
            values[own] = arrays[name]
        elif own in fields:
            values[own] = _restore(hint, fields[own], arrays, name)
    unknown = fields.keys() - hints.keys()
    if unknown:
        raise WireError(f"{kind.__name__} has no field {_brief(min(unknown, key=str))}")
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


@functools.cache  # a record's types are read from their text, which costs more than a message
def _hints(kind: type) -> dict[str, Any]:
    """The type of each field of a record, in order."""
    hints = typing.get_type_hints(kind, localns={"np": np})  # records name it without importing
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    return value


def _restore(whole: Any, value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    options = _options(whole)
    if value is None and type(None) in options:
        return None
    hint = next(h for h in options if h is not type(None))
    if dataclasses.is_dataclass(hint):
        return unpack(typing.cast(type, hint), value, arrays, name + ".")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise WireError(f"{name} is {_brief(value)}; allowed: {[*hint]}") from error
    if typing.get_origin(hint) is tuple:
        return _restore_tuple(hint, value, arrays, name)
    if typing.get_origin(hint) is list:
        _check_plain(list, value, name)
        return [_checked(typing.get_args(hint)[0], item, name) for item in value]
    return _checked(whole, value, name)


def _restore_tuple(hint: Any, value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    kind = typing.get_args(hint)[0]
    if kind is not np.ndarray or value == []:
        _check_plain(list, value, name)
        return tuple(_checked(kind, item, name) for item in value)
    _check_plain(int, value, name)
    # as many as announced were announced as arrays too, so no more are looked for than came
    names = [f"{name}.{i}" for i in range(min(value, len(arrays) + 1))]
    if missing := [n for n in names if n not in arrays]:
        raise WireError(f"array {missing[0]!r} is announced and did not come")
    return tuple(arrays[n] for n in names)


def _checked(hint: Any, value: Any, name: str) -> Any:
    """A plain value of a field, or an item of one, whose type is that of the record."""
    kinds = [typing.get_origin(option) or option for option in _options(hint)]
    if Any in kinds:
        return value
    _check_plain(tuple(kinds) if len(kinds) > 1 else kinds[0], value, name)
    return value


def _check_plain(kind: Any, value: Any, name: str) -> None:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, (*kinds, int) if float in kinds else kinds):
        wanted = " or a ".join(k.__name__ for k in kinds if k is not type(None))
        raise WireError(f"{name} must be a {wanted}; a {type(value).__name__} came")


def record_message(type: str, record: Any, id: str = "", **extra: Any) -> Message:
    """A message that carries one record (and a few plain fields beside it)."""
    fields, arrays = pack(record)
    return Message(type, id, {"record": fields, **extra}, arrays)


def read_record(message: Message, kind: type) -> Any:
    """Return the record of `kind` that `record_message` put into `message`."""
    return unpack(kind, message["record"], message.arrays)


def samples_message(type: str, samples: list[records.Sample], id: str, **extra: Any) -> Message:
    """A message that carries many samples; arrays are named `<index>.<field>`."""
    packed = [pack(sample, f"{i}.") for i, sample in enumerate(samples)]
    arrays = {name: a for _, part in packed for name, a in part.items()}
    return Message(type, id, {"samples": [f for f, _ in packed], **extra}, arrays)


def read_samples(message: Message) -> list[records.Sample]:
    _check_plain(list, message["samples"], "samples")
    return [
        unpack(records.Sample, fields, message.arrays, f"{i}.")
        for i, fields in enumerate(message["samples"])
    ]


# --- sockets ---------------------------------------------------------------------------------


CLIENTS = "clients"
"""folder, in that of a server's keys, with the public keys of those who have a pair of their own"""


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys of one side, and the public key of the server it talks to."""

    public: bytes
    secret: bytes
    server: bytes
    folder: Path

    def admit(self, client: bytes) -> bool:
        """Whether who proved to hold this public key's secret may connect to a socket of ours.

        The folder is read anew each time: whose file is gone is not let in again.
        """
        if client == self.public:
            return True
        files = sorted((self.folder / CLIENTS).glob("*.public"))
        return any(file.read_bytes().strip() == client for file in files)


def make_keys(folder: Path, of: Path | None = None) -> None:
    """Write `wire.public` and `wire.secret` (mode 600) into `folder`; one pair serves a run.

    Whoever has the pair may connect. With `of`, the folder of a server's pair, the new pair is that
    of one more client: it may connect as long as `<of>/clients/<name of folder>.public` is there.
    """
    server = read_keys(of).public if of is not None else None
    public = _make_pair(folder)
    if of is not None and server is not None:
        _write_key(folder / "server.public", server)
        admit(of, folder.resolve().name, public)


def make_client(folder: Path, server: bytes) -> bytes:
    """Write a pair for a client of the server with that public key; return its own public one."""
    public = _make_pair(folder)
    _write_key(folder / "server.public", server)
    return public


def admit(of: Path, name: str, public: bytes) -> Path:
    """Let a client connect to who has the keys in `of`, as long as the returned file is there."""
    (of / CLIENTS).mkdir(exist_ok=True, mode=0o700)
    file = of / CLIENTS / f"{name}.public"
    _write_key(file, public)
    return file


def _make_pair(folder: Path) -> bytes:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    public, secret = zmq.curve_keypair()
    _write_key(folder / "wire.public", public)
    _write_key(folder / "wire.secret", secret)
    return public


def _write_key(path: Path, key: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(key)


def read_keys(folder: Path) -> Keys:
    """Read what `make_keys` wrote; a secret that others can read is refused."""
    path = folder / "wire.secret"
    if not path.exists():
        raise UsageError(
            "no wire keys", found=str(folder), do=f"make them: claw keys {folder}"
        )
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise UsageError(
            "the wire's secret key is readable by others", found=str(path), do=f"chmod 600 {path}"
        )
    public, secret = (folder / "wire.public").read_bytes(), path.read_bytes()
    server = folder / "server.public"
    return Keys(public, secret, server.read_bytes() if server.exists() else public, folder)


def keys_of(folder: str) -> Keys | None:
    """Read the keys that `wire.keys` names; None where it names none."""
    return read_keys(Path(folder)) if folder else None


def check_address(address: str, keys: Keys | None) -> None:
    """ipc:// and inproc:// need no keys; tcp:// is refused without CURVE keys."""
    if address.startswith(("ipc://", "inproc://")):
        return
    if not address.startswith("tcp://"):
        raise UsageError(
            "not a wire address", found=address, allowed="ipc://PATH or tcp://HOST:PORT"
        )
    if keys is None:
        raise UsageError(
            "tcp:// needs CURVE keys",
            found=address,
            allowed="ipc:// on one machine; tcp:// with keys",
            do="make keys with `claw keys FOLDER` and name the folder in wire.keys",
        )


def open_socket(
    context: zmq.Context, kind: int, address: str, *, bind: bool,
    keys: Keys | None = None, identity: bytes = b"", watch: int = 0,
) -> Any:
    """Open, secure and bind or connect one socket with bounded queues and no linger.

    `watch` are events for its monitor, which listens before there is a connection to miss:
    `socket.get_monitor_socket()` returns it.
    """
    check_address(address, keys)
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    if identity:
        socket.setsockopt(zmq.IDENTITY, identity)
    if kind == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a restarted peer takes its name back
    if keys is not None and address.startswith("tcp://"):
        _secure(socket, keys, server=bind)
    if address.startswith("ipc://"):
        socket.setsockopt(zmq.SNDBUF, LOCAL_BUFFER)
        socket.setsockopt(zmq.RCVBUF, LOCAL_BUFFER)
    if watch:
        socket.get_monitor_socket(watch)
    if bind:
        socket.bind(address)
    else:
        socket.connect(address)
    return socket


def _secure(socket: Any, keys: Keys, *, server: bool) -> None:
    socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret
    if server:
        door.guard(socket.context, keys.public, keys.admit)
        socket.zap_domain = keys.public
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # nobody is let in while nobody is asked
        socket.curve_server = True
    else:
        socket.curve_serverkey = keys.server
