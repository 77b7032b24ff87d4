"""What clients send, in process: everything is answered or refused in words."""

import json
import time

import pytest

HELLO = [{"role": "user", "content": "hello"}]

TOOL = {"type": "function", "function": {"name": "read", "parameters": {}}}


def refusal(answer, status=400):
    """Return the error of a refused request; every one has the same shape and a request id."""
    assert answer.status_code == status, answer.text
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(("body", "said"), [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b'{"messages": [}', "line 1 column"),
    (b"[]", "must be a JSON object, not an array"),
    (b'"x"', "not a string"),
    (b'{"a": "\xff"}', "not UTF-8"),
    (b'{"temperature": NaN}', "NaN is no JSON value"),
    (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
    (b'{"a":' * 100_000, "nested too deeply"),
])
def test_a_body_that_is_no_json_object_says_where(endpoint, body, said):
    assert said in refusal(endpoint("x").raw(body))["message"]


@pytest.mark.parametrize(("messages", "param"), [
    ([], "messages"),
    ("hello", "messages"),
    ({"role": "user"}, "messages"),
    (["hello"], "messages[0]"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "wizard", "content": "x"}], "messages[0].role"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role"),
    ([{"role": "function", "name": "f", "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "hologram"}]}], "messages[0].content[0]"),
    ([*HELLO, {"role": "tool", "content": "x"}], "messages[1].tool_call_id"),
    ([*HELLO, {"role": "assistant", "tool_calls": "x"}], "messages[1].tool_calls"),
    ([*HELLO, {"role": "assistant", "tool_calls": [{}]}], "messages[1].tool_calls[0]"),
    ([*HELLO, {"role": "assistant", "function_call": {"name": "f"}}], "messages[1].function_call"),
])
def test_a_bad_message_is_refused_with_its_place(endpoint, messages, param):
    error = refusal(endpoint("x").ask(
        "POST", "/v1/chat/completions", json={"messages": messages}
    ))
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("kind", "word"), [
    ("image_url", "an image"), ("input_audio", "audio"), ("file", "a file"),
])
def test_a_part_that_a_text_model_cannot_read_is_refused_not_dropped(endpoint, kind, word):
    made = endpoint("x")
    parts = [{"type": "text", "text": "look"}, {"type": kind, kind: {"url": "data:,x"}}]
    error = refusal(made.chat([{"role": "user", "content": parts}]))
    assert word in error["message"] and "reads text only" in error["message"]
    assert (error["param"], error["code"]) == ("messages[0].content[1]", "unsupported_content")
    assert made.engine.asks == []


DATA = "data:image/png;base64,iVBORw0KGgo="
TEXT = {"type": "text", "text": "What is this?"}
SHOWN = [TEXT, {"type": "image_url", "image_url": {"url": DATA}}]


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [
        TEXT, {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}}]}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": DATA}]}]}),
    ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [
        TEXT, {"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]}]}),
])
def test_a_picture_reaches_a_model_that_sees_and_no_other(endpoint, path, body):
    seeing, blind = endpoint("a cat"), endpoint("a cat")
    seeing.engine.state["takes_pictures"] = True
    for stream in (False, True):
        said = seeing.ask("POST", path, json=body | {"stream": stream})
        assert said.status_code == 200 and "cat" in said.text
    assert [ask.messages for ask in seeing.engine.asks] == [
        [{"role": "user", "content": SHOWN}]] * 2
    refused = blind.ask("POST", path, json=body)
    assert refused.status_code == 400 and "reads text only" in refused.text
    assert blind.engine.asks == []


@pytest.mark.parametrize(("fields", "param"), [
    ({"n": 2}, "n"),
    ({"n": True}, "n"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": "9"}, "max_completion_tokens"),
    ({"seed": 1 << 70}, "seed"),
    ({"stop": [""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"tools": {}, "stream": "yes"}, "stream"),
    ({"tools": "read"}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": 3}}]}, "tools[0].function.name"),
    ({"stream_options": []}, "stream_options"),
    ({"turn_type": "middle"}, "turn_type"),
    ({"session_id": "a\nb"}, "session_id"),
    ({"session_id": "x" * 300}, "session_id"),
    ({"model": 5}, "model"),
])
def test_a_field_that_cannot_be_honoured_is_named(endpoint, fields, param):
    made = endpoint("x")
    assert refusal(made.chat(**fields))["param"] == param
    assert made.engine.asks == []


def test_an_unknown_model_is_not_found_and_both_names_of_the_run_are(endpoint):
    made = endpoint("x")
    error = refusal(made.chat(model="gpt-5"), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert made.chat(model="smollm2-135m").json()["model"] == "smollm2-135m"
    assert made.chat(model=None).json()["model"] == "claw-policy"


def test_fields_that_mean_nothing_here_are_ignored(endpoint):
    made = endpoint("fine")
    answer = made.chat(
        store=True, metadata={"a": 1}, prompt_cache_key="k", safety_identifier="s",
        service_tier="auto", reasoning_effort="high", verbosity="low", prediction=None,
        modalities=["text"], logit_bias={"5": 1}, user="anna", n=1, presence_penalty=0,
        frequency_penalty=0.0, response_format={"type": "text"}, parallel_tool_calls=True,
        tool_choice="auto", made_up=[1, 2],
    )
    assert answer.json()["choices"][0]["message"]["content"] == "fine"
    assert made.engine.asks[0].named_by == "user"


def test_sampling_fields_reach_the_engine_and_the_smaller_limit_wins(endpoint):
    made = endpoint("x")
    made.chat(temperature=0, top_p=0.5, top_k=-1, seed=7, stop="\n", max_tokens=9,
              max_completion_tokens=5)
    assert made.engine.asks[0].sampling == {
        "temperature": 0.0, "top_p": 0.5, "top_k": 0, "seed": 7, "stop": ["\n"], "max_tokens": 5,
    }


def test_messages_become_plain(endpoint):
    made = endpoint("x")
    made.chat([
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
         "name": "anna", "made_up": 1},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": None,
         "tool_calls": [{"id": "call1", "type": "function", "index": 0,
                         "function": {"name": "read", "arguments": '{"path": "/tmp/a", "co'}}]},
        {"role": "tool", "tool_call_id": "call1", "content": "no such file"},
        {"role": "assistant", "content": [], "tool_calls": []},
    ])
    assert made.engine.asks[0].messages == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "a\nb", "name": "anna"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
            {"id": "call1", "type": "function",
             "function": {"name": "read", "arguments": '{"path": "/tmp/a", "co'}}]},
        {"role": "tool", "tool_call_id": "call1", "content": "no such file"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize("escaped", [
    r"\ud83c", r"\udc9d", r"\ud83d\ude00", r"a\u0000b", r"\u001b[31mred", r"\uffff",
])
def test_strange_characters_survive_there_and_back(endpoint, escaped):
    made = endpoint()  # says back what it heard
    answer = made.raw(b'{"messages": [{"role": "user", "content": "%s"}]}' % escaped.encode())
    text = json.loads(f'"{escaped}"')
    assert made.engine.asks[0].messages[0]["content"] == text
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: {text}"
    stream = made.raw(
        b'{"stream": true, "logprobs": true, "messages": [{"role": "user", "content": "%s"}]}'
        % escaped.encode()
    )
    said = [json.loads(line[6:]) for line in stream.text.splitlines() if line[:7] == "data: {"]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in said) == (
        f"You said: {text}"
    )


def test_five_megabytes_of_text_are_fine_and_beyond_the_cap_is_a_413(endpoint):
    made = endpoint("x")
    began = time.monotonic()
    assert made.chat([{"role": "user", "content": "word " * 2**20}]).status_code == 200
    assert time.monotonic() - began < 10
    error = refusal(made.chat([{"role": "user", "content": "word " * 2**21}]), 413)
    assert error["code"] == "request_too_large"
    assert "8 MB" in error["message"]


def test_a_body_of_sixty_megabytes_fits_the_cap_of_the_default(endpoint):
    made = endpoint("x", max_body_mb=64)
    body = json.dumps({"messages": [{"role": "user", "content": "w" * (60 * 2**20)}]}).encode()
    assert made.raw(body).status_code == 200
    assert refusal(made.raw(body + b" " * (5 * 2**20)), 413)


@pytest.mark.parametrize(("headers", "body", "session"), [
    ({}, {}, ""),
    ({"x-session-id": "s1"}, {"session_id": "s2"}, "s1"),
    ({}, {"session_id": "s2"}, "s2"),
    ({"x-session-affinity": "abc:0"}, {}, "abc"),
    ({"session_id": "abc:12"}, {}, "abc"),
    ({}, {"prompt_cache_key": "abc:0"}, "abc"),
    ({}, {"prompt_cache_key": "an-application"}, ""),
    ({"x-session-affinity": "abc:0"}, {"prompt_cache_key": "def:0", "user": "anna"}, "abc"),
    ({"x-session-id": "s1", "session_id": "abc:0"}, {}, "s1"),
    ({"x-client-request-id": "one-per-request"}, {}, ""),
])
def test_a_named_session_reaches_the_engine(endpoint, headers, body, session):
    made = endpoint("x")
    assert made.chat(headers=headers, **body).status_code == 200
    assert made.engine.asks[0].session == session


def test_a_user_is_a_session_only_with_the_words_that_a_conversation_began_with(endpoint):
    made = endpoint("x")
    hello, other = {"role": "user", "content": "hello"}, {"role": "user", "content": "bye"}
    reply = {"role": "assistant", "content": "x"}
    for user, messages in (("anna", [hello]), ("anna", [hello, reply, other]), ("anna", [other]),
                           ("bo", [hello])):
        made.chat(messages, user=user)
    first, later, second, foreign = [a.session for a in made.engine.asks]
    assert first == later and len({first, second, foreign}) == 3
    assert {a.named_by for a in made.engine.asks} == {"user"}


def test_an_agents_runtime_line_names_the_session(endpoint):
    made = endpoint("x")
    line = "[Mon 00:37] hi\n\nRuntime: agent=main | session=agent:m | sessionId=ab-12 | x=y"
    made.chat([{"role": "system", "content": "s"}, {"role": "user", "content": line}])
    made.chat([{"role": "user", "content": "what does sessionId=ab-12 mean?"}])
    assert [a.session for a in made.engine.asks] == ["ab-12", ""]
    assert [a.named_by for a in made.engine.asks] == ["runtime line", ""]


@pytest.mark.parametrize(("headers", "body", "kind"), [
    ({}, {}, ""), ({"x-turn-type": "Side"}, {}, "side"), ({}, {"turn_type": "main"}, "main"),
    ({"x-turn-type": "heartbeat"}, {}, "heartbeat"), ({}, {"turn_type": "subagent"}, "subagent"),
])
def test_the_kind_of_a_turn_reaches_the_engine(endpoint, headers, body, kind):
    made = endpoint("x")
    made.chat(headers=headers, **body)
    assert made.engine.asks[0].kind == kind


def test_a_conversation_is_called_by_its_key_and_names_who_asked_for_it(endpoint):
    made = endpoint("x")
    line = "hi\n\nRuntime: agent=main | session=agent:main:subagent:1 | sessionId=ab | host=h"
    made.chat([{"role": "user", "content": line}], headers={"x-parent-session-id": "p"})
    made.chat([{"role": "user", "content": "hi"}], parent_session_id="q")
    made.chat([{"role": "user", "content": "what is session=agent:main:subagent:1 | x?"}])
    assert [(a.key, a.parent) for a in made.engine.asks] == [
        ("agent:main:subagent:1", "p"), ("", "q"), ("", "")]
    refused = made.chat(headers={"x-parent-session-id": "x" * 300})
    assert refused.status_code == 400 and "parent_session_id" in refused.text


@pytest.mark.parametrize(("fields", "one_call"), [
    ({"tools": [TOOL], "parallel_tool_calls": False}, True), ({"tools": [TOOL]}, False),
    ({"tools": [TOOL], "parallel_tool_calls": True}, False),
    ({"parallel_tool_calls": False}, False),
    ({"tools": [TOOL], "parallel_tool_calls": False, "tool_choice": "none"}, False),
])
def test_no_parallel_calls_means_one_call_where_there_are_tools(endpoint, fields, one_call):
    made = endpoint("x")
    assert made.chat(**fields).status_code == 200
    assert made.engine.asks[0].one_call is one_call


def test_the_last_request_of_a_session_ends_it_after_the_answer(endpoint):
    made = endpoint("x")
    assert made.chat(session_id="s", session_done=True).status_code == 200
    made.chat(session_done=True)
    assert made.engine.ended == ["s"]


@pytest.mark.parametrize(("body", "said"), [
    (b'{"messages": ' + b"[" * 150 + b"]" * 150 + b"}", "nested too deeply"),
    (b'{"messages": [{"role": "user", "content": "x"}], "tools": [1e999]}', "too large"),
])
def test_a_body_that_could_not_be_sent_on_is_refused(endpoint, body, said):
    answer = endpoint("hi").raw(body)
    assert answer.status_code == 400 and said in answer.json()["error"]["message"]


def test_an_origin_that_is_no_address_is_another_page(endpoint):
    answer = endpoint("hi").ask("POST", "/login", headers={"origin": "http://["}, data={"key": "x"})
    assert answer.status_code == 403
