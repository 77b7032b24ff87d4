"""POST /v1/responses through the official client."""

import openai
import pytest

from claw.sdk import EngineError
from claw.sdk.doubles import Line

KEY = "key-of-the-tests"
TOOLS = [{"type": "function", "name": "read", "description": "Read a file.",
          "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]
CALLS = Line("I look.", reasoning="Which file?",
             calls=(("read", '{"path": "a.txt"}'), ("read", '{"path": "b.txt"}')))


@pytest.fixture
def client_of(served):
    clients = []

    def make(*lines):
        address, engine = served(*lines)
        clients.append(openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0,
                                     timeout=30))
        return clients[-1], engine

    yield make
    for client in clients:
        client.close()


def ask(client, **rest):
    return client.responses.create(**({"model": "claw-policy", "input": "hello"} | rest))


def test_text_in_one_piece(client_of):
    client, engine = client_of("Good morning.")
    answer = ask(client, instructions="Be brief.", max_output_tokens=9, temperature=0.5)
    assert (answer.output_text, answer.status) == ("Good morning.", "completed")
    assert answer.id == "resp_turn_0000"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 2)
    [asked] = engine.asks
    assert asked.messages == [{"role": "system", "content": "Be brief."},
                              {"role": "user", "content": "hello"}]
    assert asked.sampling == {"max_tokens": 9, "temperature": 0.5}


def test_a_cut_answer_is_incomplete_and_says_why(client_of):
    client, _ = client_of("one two three")
    answer = ask(client, max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    last = list(ask(client, max_output_tokens=2, stream=True))[-1]
    assert (last.type, last.response.output_text) == ("response.incomplete", "one two")


def test_a_stream_tells_thinking_text_and_two_calls_in_their_own_items(client_of):
    client, _ = client_of(CALLS)
    events = list(ask(client, tools=TOOLS, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    added = [e for e in events if e.type == "response.output_item.added"]
    assert [(e.output_index, e.item.type) for e in added] == [
        (0, "reasoning"), (1, "message"), (2, "function_call"), (3, "function_call")]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    thought = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    assert (thought, text) == ("Which file?", "I look.")
    said = [e.arguments for e in events if e.type == "response.function_call_arguments.done"]
    assert said == ['{"path": "a.txt"}', '{"path": "b.txt"}']
    pieces = [(e.output_index, e.delta) for e in events
              if e.type == "response.function_call_arguments.delta"]
    assert len(pieces) == 12 and "".join(d for at, d in pieces if at == 3) == said[1]
    whole = events[-1].response
    assert events[-1].type == "response.completed" and whole.output_text == "I look."
    assert [item.type for item in whole.output] == [
        "reasoning", "message", "function_call", "function_call"]


def test_the_clients_own_stream_helper_builds_the_same_answer(client_of):
    client, _ = client_of(CALLS)
    with client.responses.stream(model="claw-policy", input="hello", tools=TOOLS) as stream:
        final = stream.get_final_response()
    assert final.output_text == "I look."
    assert [i.arguments for i in final.output if i.type == "function_call"] == [
        '{"path": "a.txt"}', '{"path": "b.txt"}']


def test_what_the_client_sends_back_is_one_turn_of_ours_and_the_results(client_of):
    client, engine = client_of(CALLS, "Done.")
    first = ask(client, tools=TOOLS)
    calls = [item for item in first.output if item.type == "function_call"]
    history = [{"role": "user", "content": "hello"},
               *(item.model_dump(exclude_none=True) for item in first.output)]
    history += [{"type": "function_call_output", "call_id": c.call_id, "output": f"text {i}"}
                for i, c in enumerate(calls)]
    assert ask(client, input=history, tools=TOOLS).output_text == "Done."
    hello, ours, *results = engine.asks[1].messages
    assert hello == {"role": "user", "content": "hello"}
    assert (ours["content"], ours["reasoning_content"]) == ("I look.", "Which file?")
    assert [c["id"] for c in ours["tool_calls"]] == [c.call_id for c in calls]
    assert [(r["tool_call_id"], r["content"]) for r in results] == [
        (calls[0].call_id, "text 0"), (calls[1].call_id, "text 1")]
    assert engine.asks[1].tools[0]["function"]["name"] == "read"


@pytest.mark.parametrize(("fields", "param"), [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"background": True}, "background"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
     "messages[0].content[0]"),
])
def test_what_cannot_be_honoured_is_refused_by_name(client_of, fields, param):
    client, engine = client_of("x")
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert refused.value.param == param and not engine.asks


def test_a_stream_that_breaks_off_is_raised(client_of):
    client, _ = client_of(Line("one two", error=EngineError(503, "gone", type="server_error")))
    with pytest.raises(openai.APIError, match="gone"):
        list(ask(client, stream=True))


@pytest.mark.parametrize("item", [
    {"type": "reasoning", "summary": 5}, {"type": "reasoning", "content": "so"},
    {"role": "user", "content": [{"type": []}]}, {"role": "user", "content": [{"type": {}}]},
])
def test_an_item_of_another_shape_is_refused_with_its_place(endpoint, item):
    answer = endpoint("hi").ask("POST", "/v1/responses", json={"input": [item]})
    assert answer.status_code == 400 and answer.json()["error"]["param"]
