"""POST /v1/messages through the official client of Anthropic."""

import anthropic
import pytest

from claw.sdk import EngineError
from claw.sdk.doubles import Line

KEY = "key-of-the-tests"
TOOLS = [{"name": "read", "description": "Read a file.",
          "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
CALLS = Line("I look.", reasoning="Which file?",
             calls=(("read", '{"path": "a.txt"}'), ("read", '{"path": "b.txt"}')))


@pytest.fixture
def client_of(served):
    clients = []

    def make(*lines, key=KEY):
        address, engine = served(*lines)
        clients.append(anthropic.Anthropic(base_url=address, api_key=key, max_retries=0,
                                           timeout=30))
        return clients[-1], engine

    yield make
    for client in clients:
        client.close()


def asked(**rest):
    return {"model": "claw-policy", "max_tokens": 64,
            "messages": [{"role": "user", "content": "hello"}]} | rest


def test_text_in_one_piece(client_of):
    client, engine = client_of("Good morning.")
    answer = client.messages.create(**asked(system="Be brief.", stop_sequences=["\n"],
                                           extra_body={"top_k": 5}))
    assert [block.text for block in answer.content] == ["Good morning."]
    assert (answer.stop_reason, answer.id) == ("end_turn", "msg_turn_0000")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 2)
    [ask] = engine.asks
    assert ask.messages[0] == {"role": "system", "content": "Be brief."}
    assert ask.sampling == {"max_tokens": 64, "stop": ["\n"], "top_k": 5}


def test_a_cut_answer_says_max_tokens(client_of):
    client, _ = client_of("one two three")
    assert client.messages.create(**asked(max_tokens=2)).stop_reason == "max_tokens"


def test_the_clients_stream_helper_builds_thinking_text_and_two_calls(client_of):
    client, _ = client_of(CALLS)
    with client.messages.stream(**asked(tools=TOOLS)) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "I look."
    assert [b.type for b in final.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert final.content[0].thinking == "Which file?"
    assert [b.input for b in final.content[2:]] == [{"path": "a.txt"}, {"path": "b.txt"}]
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", 2)


def test_the_events_of_a_stream_come_in_the_order_of_the_contract(client_of):
    client, _ = client_of(Line("one", calls=(("read", "{}"),)))
    events = list(client.messages.create(**asked(tools=TOOLS, stream=True)))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [e.type for e in events] == [
        "message_start", *block, *block, "message_delta", "message_stop"]
    assert [e.index for e in events if e.type == "content_block_start"] == [0, 1]


def test_the_input_of_a_tool_streams_in_pieces(client_of):
    client, _ = client_of(CALLS)
    events = list(client.messages.create(**asked(tools=TOOLS, stream=True)))
    starts = [e.content_block for e in events if e.type == "content_block_start"]
    assert [(b.name, b.input) for b in starts if b.type == "tool_use"] == [("read", {})] * 2
    pieces = [(e.index, e.delta.partial_json) for e in events
              if e.type == "content_block_delta" and e.delta.type == "input_json_delta"]
    assert [at for at, _ in pieces] == [2] * 6 + [3] * 6
    assert "".join(said for at, said in pieces if at == 3) == '{"path": "b.txt"}'


def test_a_client_that_wants_one_tool_use_gets_one(client_of):
    client, engine = client_of(CALLS)
    for choice, num in (({"type": "auto", "disable_parallel_tool_use": True}, 1),
                        ({"type": "auto"}, 2)):
        done = client.messages.create(**asked(tools=TOOLS, tool_choice=choice))
        assert sum(block.type == "tool_use" for block in done.content) == num
    assert [ask.one_call for ask in engine.asks] == [True, False]


def test_what_the_client_sends_back_is_one_turn_of_ours_and_the_results_first(client_of):
    client, engine = client_of(CALLS, "Done.")
    first = client.messages.create(**asked(tools=TOOLS))
    calls = first.content[2:]
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": f"text {i}"}
               for i, c in enumerate(calls)]
    history = [{"role": "user", "content": "hello"},
               {"role": "assistant", "content": [b.model_dump() for b in first.content]},
               {"role": "user", "content": [*results, {"type": "text", "text": "and now?"}]}]
    client.messages.create(**asked(messages=history, tools=TOOLS))
    _, ours, *rest = engine.asks[1].messages
    assert (ours["content"], ours["reasoning_content"]) == ("I look.", "Which file?")
    assert [c["function"]["arguments"] for c in ours["tool_calls"]] == [
        '{"path": "a.txt"}', '{"path": "b.txt"}']
    assert [m["role"] for m in rest] == ["tool", "tool", "user"]
    assert rest[2]["content"] == "and now?"


@pytest.mark.parametrize("fields", [
    {"tool_choice": {"type": "any"}, "tools": TOOLS},
    {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    {"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "http://x"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "strange"}]}]},
    {"messages": [{"role": "tool", "content": "x"}]},
])
def test_what_cannot_be_honoured_is_refused_in_anthropics_shape(client_of, fields):
    client, engine = client_of("x")
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**asked(**fields))
    body = refused.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"] and not engine.asks


def test_a_wrong_key_and_an_unknown_model_have_the_clients_own_classes(client_of):
    client, _ = client_of("x", key="wrong")
    with pytest.raises(anthropic.AuthenticationError):
        client.messages.create(**asked())
    client, _ = client_of("x")
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.messages.create(**asked(model="gpt"))
    assert refused.value.body["error"]["type"] == "not_found_error"


def test_a_stream_that_breaks_off_is_raised(client_of):
    client, _ = client_of(Line("one two", error=EngineError(503, "gone", type="server_error")))
    with pytest.raises(anthropic.APIError, match="gone"):
        list(client.messages.create(**asked(stream=True)))


@pytest.mark.parametrize("arguments", ['{"p": NaN}', '{"p": 1e999}', "[" * 3000])
@pytest.mark.parametrize("stream", [False, True])
def test_arguments_that_are_no_json_are_kept_as_text(endpoint, arguments, stream):
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "stream": stream}
    answer = endpoint(Line("so", calls=(("ls", arguments),))).ask(
        "POST", "/v1/messages", json=body)
    assert answer.status_code == 200 and "api_error" not in answer.text
    assert "arguments" in answer.text
