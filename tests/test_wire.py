"""Messages survive the wire whole; garbage is refused in words."""

import contextlib
import time
from dataclasses import replace

import msgpack
import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from claw import records
from claw.engine import wire
from claw.errors import UsageError, WireError


def frames(message: wire.Message) -> list[bytes]:
    return [bytes(f) for f in wire.encode(message)]


def a_completion(n: int = 3, k: int = 2) -> records.Completion:
    return records.Completion(
        ids=np.arange(n, dtype=np.int32), logps=-np.ones(n, np.float32),
        topk_ids=np.zeros((n, k), np.int32), topk_logps=np.zeros((n, k), np.float32),
        versions=np.full(n, 7, np.int32), finish_reason=records.FinishReason.LENGTH,
    )


def a_turn() -> records.Turn:
    return records.Turn(
        id="turn_1", trace_id="trace_1", index=0, owner="default", adapter="default",
        kind=records.TurnKind.MAIN, messages=({"role": "user", "content": "hi"},), tools=(),
        prompt_ids=np.arange(5, dtype=np.int32), sampling=records.Sampling(stop=("x",)),
        completion=a_completion(), next_state=({"role": "tool", "content": "ok"},),
        state=records.TurnState.WAITING,
    )


def a_sample(hints: int) -> records.Sample:
    return records.Sample(
        id="s", turn_id="t", trace_id="r", owner="o", adapter="a",
        prompt_ids=np.arange(4, dtype=np.int32), reply_ids=np.arange(3, dtype=np.int32),
        logps=-np.ones(3, np.float32), mask=np.ones(3, bool), advantages=np.ones(3, np.float32),
        versions=np.array([2, 1, 3], np.int32), temperature=0.7, has_advantage=True,
        hints=tuple(np.arange(i + 1, dtype=np.int32) for i in range(hints)),
    )


def test_a_turn_comes_back_as_it_was_sent() -> None:
    sent = a_turn()
    got = wire.read_record(wire.decode(frames(wire.record_message("turn", sent))), records.Turn)
    assert got.sampling == sent.sampling and got.messages == sent.messages
    assert got.state is records.TurnState.WAITING and got.next_state == sent.next_state
    assert got.completion.finish_reason is records.FinishReason.LENGTH
    assert got.completion.versions.tolist() == [7, 7, 7]
    assert got.prompt_ids.dtype == np.int32 and got.completion.kept_ids is None


@pytest.mark.parametrize("hints", [0, 1, 3])
def test_samples_keep_their_hints_apart(hints: int) -> None:
    message = wire.samples_message("lease.samples", [a_sample(hints), a_sample(0)], "1")
    first, second = wire.read_samples(wire.decode(frames(message)))
    assert [len(h) for h in first.hints] == list(range(1, hints + 1))
    assert second.hints == () and first.version == 1


def test_a_lone_surrogate_travels() -> None:
    text = "broken \ud83c and whole \U0001f600 and \x00"
    assert wire.decode(frames(wire.Message("x", fields={"t": text})))["t"] == text


def test_a_newer_major_version_is_refused_by_name() -> None:
    header = msgpack.packb({"v": 2, "type": "x", "id": "", "fields": {}, "arrays": []})
    with pytest.raises(WireError, match="version 2"):
        wire.decode([header])


@pytest.mark.parametrize(("spec", "raw", "word"), [
    (["a", "float32", [3]], b"\0" * 11, "12 bytes"),
    (["a", "object", [1]], b"\0" * 8, "object"),
    (["a", "float32", [-1]], b"", "shape"),
    (["a", "float32", [1 << 40]], b"", "shape"),
    ("a", b"", "announced"),
])
def test_a_wrong_array_is_refused_with_what_is_wrong(spec: object, raw: bytes, word: str) -> None:
    header = msgpack.packb({"v": 1, "type": "x", "id": "", "fields": {}, "arrays": [spec]})
    with pytest.raises(WireError, match=word):
        wire.decode([header, raw])


def test_a_missing_frame_is_refused() -> None:
    whole = frames(wire.Message("x", arrays={"a": np.zeros(2, np.float32)}))
    with pytest.raises(WireError, match="0 frames followed"):
        wire.decode(whole[:1])


def test_what_does_not_travel_is_named() -> None:
    with pytest.raises(WireError, match="does not travel"):
        wire.encode(wire.Message("x", fields={"s": {1, 2}}))
    with pytest.raises(WireError, match="complex128"):
        wire.encode(wire.Message("x", arrays={"a": np.zeros(2, complex)}))


def test_an_unknown_field_of_a_record_is_refused() -> None:
    message = wire.record_message("turn", a_turn())
    extra = {**message.fields, "record": {**message["record"], "colour": "red"}}
    with pytest.raises(WireError, match="colour"):
        wire.read_record(replace(message, fields=extra), records.Turn)


def test_a_field_of_the_wrong_type_is_refused() -> None:
    message = wire.record_message("turn", a_turn())
    wrong = {**message.fields, "record": {**message["record"], "index": "zero"}}
    with pytest.raises(WireError, match="index must be a int"):
        wire.read_record(replace(message, fields=wrong), records.Turn)


@pytest.mark.parametrize("record", [5, None, "turn", [1]])
def test_what_is_no_record_is_refused(record: object) -> None:
    with pytest.raises(WireError, match="map of fields"):
        wire.read_record(wire.Message("turn", fields={"record": record}), records.Turn)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_random_bytes_never_raise_anything_but_a_wire_error(raw: list[bytes]) -> None:
    with contextlib.suppress(WireError):
        wire.decode(raw)


def test_tcp_without_keys_is_refused() -> None:
    with pytest.raises(UsageError, match="CURVE"):
        wire.check_address("tcp://127.0.0.1:5555", None)


def test_curve_lets_in_who_has_the_key_and_nobody_else(tmp_path) -> None:
    wire.make_keys(tmp_path / "ours")
    wire.make_keys(tmp_path / "theirs")
    ours, theirs = wire.read_keys(tmp_path / "ours"), wire.read_keys(tmp_path / "theirs")
    context = zmq.Context()
    server = wire.open_socket(context, zmq.ROUTER, "tcp://127.0.0.1:*", bind=True, keys=ours)
    address = server.getsockopt_string(zmq.LAST_ENDPOINT)
    friend = wire.open_socket(context, zmq.DEALER, address, bind=False, keys=ours)
    stranger = wire.open_socket(context, zmq.DEALER, address, bind=False, keys=theirs)
    stranger.send_multipart(frames(wire.Message("from.stranger")))
    friend.send_multipart(frames(wire.Message("from.friend")))
    got, until = [], time.monotonic() + 1.5
    while time.monotonic() < until:
        if server.poll(100):
            got.append(wire.decode(server.recv_multipart()[1:]).type)
    assert got == ["from.friend"]
    context.destroy(linger=0)


def test_a_secret_key_that_others_can_read_is_refused(tmp_path) -> None:
    wire.make_keys(tmp_path)
    (tmp_path / "wire.secret").chmod(0o644)
    with pytest.raises(UsageError, match="readable by others"):
        wire.read_keys(tmp_path)


SMALL = {"flags": np.array([True, False, True]), "none": np.empty((0, 4), np.int32),
         "logps": np.linspace(-3, 0, 5, dtype=np.float32), "big": np.arange(3, dtype=np.int64)}


def test_small_arrays_share_a_frame_and_come_out_whole_and_aligned():
    frames = wire.encode(wire.Message("m", "", {}, SMALL))
    assert len(frames) == 2 and len(frames[1]) == 8 + 0 + 24 + 24
    for raw in (frames, [bytes(f) for f in frames], [memoryview(bytes(f)) for f in frames]):
        arrays = wire.decode(raw).arrays
        assert list(arrays) == list(SMALL)
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, SMALL[name])
            assert array.dtype == SMALL[name].dtype and array.flags.aligned


def test_large_arrays_have_a_frame_each():
    arrays = {"a": np.zeros(wire.JOINED, np.uint8), "b": np.ones(3, np.int32)}
    frames = wire.encode(wire.Message("m", "", {}, arrays))
    assert len(frames) == 3
    np.testing.assert_array_equal(wire.decode(frames).arrays["b"], arrays["b"])


@pytest.mark.parametrize("change", [lambda raw: raw[:-8], lambda raw: raw + bytes(8),
                                    lambda raw: b""])
def test_a_shared_frame_of_the_wrong_size_is_refused(change):
    header, raw = wire.encode(wire.Message("m", "", {}, SMALL))
    with pytest.raises(WireError, match=r"needs?"):
        wire.decode([header, change(raw)])


@pytest.mark.parametrize(("record", "word"), [
    ({"hints": 1 << 60}, "announced and did not come"), ({"temperature": []}, "must be a float"),
    ({"hints": "x"}, "must be a int"), ({"images": [1]}, "must be a str"),
    ({"outcome": "x"}, "must be a float"), ({"logps": 5}, "must be a ndarray"),
    ({"topk_ids": {}}, "must be a ndarray"),
])
def test_a_sample_that_says_something_else_is_refused_and_costs_nothing(
    record: dict[str, object], word: str
) -> None:
    fields, arrays = wire.pack(a_sample(0))
    arrays = {name: a for name, a in arrays.items() if name not in record}
    with pytest.raises(WireError, match=word):
        wire.unpack(records.Sample, {**fields, **record}, arrays)


def test_a_nested_record_and_its_items_have_their_own_kinds() -> None:
    fields, arrays = wire.pack(a_turn())
    for wrong in ({"sampling": 5}, {"messages": [5]}, {"messages": {}}):
        with pytest.raises(WireError):
            wire.unpack(records.Turn, {**fields, **wrong}, arrays)
    with pytest.raises(WireError, match="Turn"):  # an array is no id
        wire.unpack(records.Turn, {k: v for k, v in fields.items() if k != "id"},
                    {**arrays, "id": np.zeros(1, np.int32)})


@pytest.mark.parametrize("samples", [None, 5, "ab"])
def test_what_is_no_list_of_samples_is_refused(samples: object) -> None:
    with pytest.raises(WireError):
        wire.read_samples(wire.Message("lease.samples", fields={"samples": samples}))


def test_an_empty_array_of_impossible_dimensions_is_refused() -> None:
    shape = [0, 1 << 31, 1 << 31, 1 << 31]
    header = msgpack.packb({"v": 1, "type": "x", "id": "", "fields": {},
                            "arrays": [["a", "float32", shape]]})
    with pytest.raises(WireError, match="impossible shape"):
        wire.decode([header, b""])


def test_what_is_said_of_a_bad_message_is_short_though_the_message_is_long() -> None:
    long = "x" * 100_000
    for header in ({"v": long}, {"v": 1, "type": "x", "id": "", "fields": {}, "arrays": [
            [long, long, [1]]]}):
        with pytest.raises(WireError) as error:
            wire.decode([msgpack.packb(header), b""])
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("value", [1 << 70, [[]] * 2])
def test_numbers_and_depths_that_do_not_travel_are_named_by_the_sender(value: object) -> None:
    if isinstance(value, list):
        for _ in range(2000):
            value = [value]
    with pytest.raises(WireError, match="does not travel"):
        wire.encode(wire.Message("x", fields={"f": value}))


def heard(server: object, *clients: object) -> list[str]:
    """Each client says its number; return what the server hears, the last client's with it."""
    for number, client in enumerate(clients):
        client.send_multipart(frames(wire.Message(f"from.{number}")))
    got, until = [], time.monotonic() + 30
    while f"from.{len(clients) - 1}" not in got and time.monotonic() < until:
        if server.poll(100):
            got.append(wire.decode(server.recv_multipart()[1:]).type)
    return got


def test_who_knows_the_servers_public_key_alone_is_not_let_in(tmp_path) -> None:
    wire.make_keys(tmp_path / "ours")
    wire.make_keys(tmp_path / "theirs")
    ours = wire.read_keys(tmp_path / "ours")
    spy = replace(wire.read_keys(tmp_path / "theirs"), server=ours.public)
    context = zmq.Context()
    server = wire.open_socket(context, zmq.ROUTER, "tcp://127.0.0.1:*", bind=True, keys=ours)
    address = server.getsockopt_string(zmq.LAST_ENDPOINT)
    stranger = wire.open_socket(context, zmq.DEALER, address, bind=False, keys=spy,
                                watch=zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    seen = stranger.get_monitor_socket()
    stranger.send_multipart(frames(wire.Message("from.stranger")))
    assert seen.poll(30_000), "the handshake ends with a refusal"
    friend = wire.open_socket(context, zmq.DEALER, address, bind=False, keys=ours)
    assert heard(server, friend) == ["from.0"]
    context.destroy(linger=0)


def test_a_client_with_keys_of_its_own_is_let_in_until_its_file_is_gone(tmp_path) -> None:
    wire.make_keys(tmp_path / "run")
    wire.make_keys(tmp_path / "host-b", of=tmp_path / "run")
    run, host = wire.read_keys(tmp_path / "run"), wire.read_keys(tmp_path / "host-b")
    assert host.server == run.public != host.public
    context = zmq.Context()
    servers = [wire.open_socket(context, kind, "tcp://127.0.0.1:*", bind=True, keys=run)
               for kind in (zmq.ROUTER, zmq.PUB)]  # the second socket of a context is guarded too
    address, news = (s.getsockopt_string(zmq.LAST_ENDPOINT) for s in servers)
    client = wire.open_socket(context, zmq.DEALER, address, bind=False, keys=host)
    assert heard(servers[0], client) == ["from.0"]
    (tmp_path / "run" / "clients" / "host-b.public").unlink()
    for kind, place in ((zmq.DEALER, address), (zmq.SUB, news)):
        again = wire.open_socket(context, kind, place, bind=False, keys=host,
                                 watch=zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        assert again.get_monitor_socket().poll(30_000), "not let in again"
    context.destroy(linger=0)


def test_key_files_are_their_owners_alone(tmp_path) -> None:
    wire.make_keys(tmp_path / "run")
    wire.make_keys(tmp_path / "b", of=tmp_path / "run")
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
