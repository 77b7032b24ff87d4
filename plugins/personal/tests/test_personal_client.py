"""The official client against a real server on loopback."""

import socket
import time

import openai
import pytest

from claw.sdk import EngineError
from claw.sdk.doubles import Line, ScriptedEngine

KEY = "key-of-the-tests"
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
TWO_CALLS = Line("", calls=(("read", '{"path": "a.txt"}'), ("read", '{"path": "b.txt"}')))


@pytest.fixture
def client_of(served):
    clients = []

    def make(*lines, key=KEY, **rest):
        address, engine = served(*lines, **rest)
        client = openai.OpenAI(
            base_url=f"{address}/v1", api_key=key, max_retries=0, timeout=30
        )
        clients.append(client)
        return client, engine

    yield make
    for client in clients:
        client.close()


def chat(client, **rest):
    return client.chat.completions.create(
        **({"model": "claw-policy", "messages": HELLO} | rest)
    )


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_plain_answer(client_of):
    client, engine = client_of("Good morning.")
    engine.version = 12
    answer = chat(client)
    assert answer.id == "chatcmpl-turn_0000"
    assert answer.choices[0].message.content == "Good morning."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.system_fingerprint == "claw-v12"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.choices[0].logprobs is None


def test_a_stream_has_the_role_first_and_the_finish_reason_last(client_of):
    client, _ = client_of("one two three")
    chunks = list(chat(client, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(c.choices[0].delta.role is None for c in chunks[1:])
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "one two three"
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({(c.id, c.created, c.model, c.system_fingerprint) for c in chunks}) == 1
    assert all(c.usage is None for c in chunks)


def test_a_stream_ends_with_the_usage_when_it_is_asked_for(client_of):
    client, _ = client_of("one two three")
    *_, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (1, 3)


def test_logprobs_come_per_token_with_alternatives(client_of):
    client, engine = client_of("one two")
    whole = chat(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert [t.token for t in whole] == ["one", " two"]
    assert [len(t.top_logprobs) for t in whole] == [3, 3]
    assert whole[0].bytes == [111, 110, 101]
    assert engine.asks[0].sampling["logprobs_k"] == 3
    chunks = chat(client, logprobs=True, stream=True)
    pieces = [c.choices[0].logprobs for c in chunks if c.choices[0].logprobs]
    assert [t.token for p in pieces for t in p.content] == ["one", " two"]
    assert all(t.top_logprobs == [] for p in pieces for t in p.content)


def test_thinking_streams_before_the_answer_and_never_inside_it(client_of):
    client, _ = client_of(Line("It is four.", reasoning="Two and two."))
    deltas = [c.choices[0].delta for c in chat(client, stream=True)]
    kinds = ["thinking" if getattr(d, "reasoning_content", None) else "text"
             for d in deltas if d.content or getattr(d, "reasoning_content", None)]
    assert kinds == ["thinking"] * 3 + ["text"] * 3
    assert "".join(d.content or "" for d in deltas) == "It is four."
    whole = chat(client).choices[0].message
    assert (whole.reasoning_content, whole.content) == ("Two and two.", "It is four.")


def test_two_tool_calls_stream_with_their_indices(client_of):
    client, engine = client_of(TWO_CALLS)
    calls, reason = {}, None
    for chunk in chat(client, tools=TOOLS, stream=True):
        reason = chunk.choices[0].finish_reason or reason
        for part in chunk.choices[0].delta.tool_calls or ():
            call = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
            call["name"] += part.function.name or ""
            call["arguments"] += part.function.arguments or ""
    assert reason == "tool_calls"
    assert [calls[i]["arguments"] for i in (0, 1)] == ['{"path": "a.txt"}', '{"path": "b.txt"}']
    assert {c["name"] for c in calls.values()} == {"read"}
    assert len({c["id"] for c in calls.values()}) == 2
    assert engine.asks[0].tools == TOOLS


def test_a_call_streams_its_name_first_and_its_arguments_in_pieces(client_of):
    client, _ = client_of(TWO_CALLS)
    parts = [p for c in chat(client, tools=TOOLS, stream=True)
             for p in c.choices[0].delta.tool_calls or ()]
    heads = [p for p in parts if p.id]
    assert [(h.index, h.type, h.function.name, h.function.arguments) for h in heads] == [
        (0, "function", "read", ""), (1, "function", "read", "")]
    assert parts.index(heads[1]) > 3, "the arguments of the first came in several pieces"
    assert all(p.function.name is None and p.type is None for p in parts if not p.id)


def test_the_clients_own_stream_helper_builds_two_calls_with_arguments(client_of):
    client, _ = client_of(TWO_CALLS)
    with client.chat.completions.stream(
        model="claw-policy", messages=[{"role": "user", "content": "hello"}], tools=TOOLS,
    ) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert [c.function.arguments for c in calls] == ['{"path": "a.txt"}', '{"path": "b.txt"}']


def test_two_tool_calls_in_one_piece(client_of):
    client, _ = client_of(TWO_CALLS)
    choice = chat(client, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert [c.function.name for c in choice.message.tool_calls] == ["read", "read"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "kind"), [
    (EngineError(400, "maximum context length is 8 tokens", code="context_length_exceeded"),
     openai.BadRequestError),
    (EngineError(429, "full", type="rate_limit_error", retry_after_s=1.5), openai.RateLimitError),
    (EngineError(503, "down", type="server_error", code="engine_unavailable", retry_after_s=5),
     openai.InternalServerError),
])
def test_an_error_of_the_engine_becomes_the_clients_own_class(client_of, error, kind, stream):
    client, _ = client_of(Line(error=error))
    with pytest.raises(kind) as caught:
        chat(client, stream=stream)
    assert caught.value.body["message"] == error.message
    assert caught.value.code == error.code
    assert caught.value.request_id
    expected = {400: None, 429: "2", 503: "5"}[error.status]
    assert caught.value.response.headers.get("retry-after") == expected


def test_a_wrong_key_and_a_wrong_model_have_their_own_classes(client_of):
    client, engine = client_of("x", key="wrong")
    with pytest.raises(openai.AuthenticationError):
        chat(client)
    right, _ = client_of("x")
    with pytest.raises(openai.NotFoundError, match="claw-policy"):
        chat(right, model="gpt-5")
    assert engine.asks == []


def test_a_failure_in_mid_stream_arrives_as_an_error(client_of):
    client, _ = client_of(Line("one two", error=EngineError(503, "lost", type="server_error")))
    seen = []
    with pytest.raises(openai.APIError, match="lost"):
        for chunk in chat(client, stream=True):
            seen.append(chunk.choices[0].delta.content)
    assert seen == ["", "one", " two"]


def test_closing_a_stream_cancels_the_answer(client_of):
    client, engine = client_of(Line("word " * 500, word_s=0.02))
    stream = chat(client, stream=True)
    next(iter(stream))
    stream.close()
    assert until(lambda: engine.cancelled == ["turn_0000"])


@pytest.mark.parametrize("stream", [b"true", b"false"])
def test_a_client_that_hangs_up_before_the_first_word_cancels_too(served, stream):
    address, engine = served(Line("late", wait_s=60))
    host, port = address.removeprefix("http://").split(":")
    body = b'{"messages": [{"role": "user", "content": "hi"}], "stream": ' + stream + b"}"
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            + KEY.encode() + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )
        assert until(lambda: len(engine.asks) == 1)
        assert engine.cancelled == []
    assert until(lambda: engine.cancelled == ["turn_0000"])


def test_a_waiting_stream_sends_comments_and_then_the_answer(served):
    address, _ = served(Line("at last", wait_s=0.5), settings={"keepalive_s": 0.1})
    client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0, timeout=30)
    with client, client.chat.completions.with_streaming_response.create(
        model="claw-policy", messages=HELLO, stream=True
    ) as answer:
        lines = list(answer.iter_lines())
    assert lines.count(": keepalive") >= 2
    assert lines[0] == ": keepalive"
    assert [line for line in lines if line][-1] == "data: [DONE]"
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-request-id"]


def test_an_error_after_a_wait_comes_inside_the_stream(client_of):
    error = EngineError(503, "never came", type="server_error")
    client, _ = client_of(Line(error=error, wait_s=0.4), settings={"keepalive_s": 0.1})
    with pytest.raises(openai.APIError, match="never came"):
        list(chat(client, stream=True))


def test_models_and_feedback_through_the_client(client_of):
    client, engine = client_of("x")
    assert [m.id for m in client.models.list()] == ["claw-policy", "smollm2-135m"]
    assert client.models.retrieve("smollm2-135m").owned_by == "claw"
    answer = chat(client)
    client.post("/feedback", body={"id": answer.id, "value": 1}, cast_to=object)
    assert engine.votes == [("turn_0000", 1, "")]


def test_two_requests_at_once_do_not_wait_for_each_other(client_of):
    engine = ScriptedEngine(script=lambda ask: Line("done", wait_s=0.5))
    client, _ = client_of(engine=engine)
    first = chat(client, stream=True)
    second = chat(client, stream=True)
    began = time.monotonic()
    for stream in (first, second):
        list(stream)
    assert time.monotonic() - began < 0.9
