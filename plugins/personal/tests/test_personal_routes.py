"""The other routes, the key, request ids, and errors that nobody planned."""

import math

import pytest
from claw_env_personal.answers import Chunks, finish_of, logprobs_of
from claw_env_personal.requests import chat_request
from test_personal_requests import refusal

from claw.sdk import EngineError, Event, Person, registry
from claw.sdk.doubles import Line, ScriptedEngine, ScriptedPeople, reply
from conftest import KEY


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/nothing", 404), ("GET", "/v1/nothing", 404), ("POST", "/v1/images", 404),
    ("POST", "/v1/embeddings", 404), ("GET", "/v1/models/", 404), ("GET", "/v1/models/gpt-5", 404),
    ("GET", "/health/", 404),
    ("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405),
    ("PUT", "/health", 405), ("GET", "/v1/sessions/x", 405),
])
def test_unknown_paths_and_wrong_methods_have_the_error_shape(endpoint, method, path, status):
    answer = endpoint("x").ask(method, path)
    error = refusal(answer, status)
    assert error["type"] == "invalid_request_error"
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize("value", [
    "", "Bearer", "Bearer wrong", "Bearer key-of-the-tests2", "Basic key-of-the-tests",
    "key-of-the-tests", b"Bearer \xff\xfe",
])
def test_a_missing_or_wrong_key_is_refused_everywhere_under_v1(endpoint, value):
    made = endpoint("x")
    headers = {"authorization": value} if value else {}
    for path in ("/v1/models", "/v1/status", "/v1/nothing", "/v1"):
        answer = made.ask("GET", path, auth=False, headers=headers)
        assert refusal(answer, 401)["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_health_and_readiness_need_no_key(endpoint):
    made = endpoint("x")
    assert made.ask("GET", "/health", auth=False).json() == {"status": "ok"}
    assert made.ask("GET", "/ready", auth=False).status_code == 200


def test_the_key_may_come_as_anthropics_clients_send_it(endpoint):
    made = endpoint("x")
    for key, status in (("key-of-the-tests", 200), ("wrong", 401), ("", 401)):
        headers = {"x-api-key": key}
        assert made.ask("GET", "/v1/models", auth=False, headers=headers).status_code == status


def test_without_a_configured_key_none_is_asked_for(endpoint):
    made = endpoint("x", people=ScriptedPeople())
    assert made.ask("GET", "/v1/models", auth=False).status_code == 200


def test_not_ready_without_a_worker_but_alive(endpoint):
    made = endpoint("x")
    made.engine.state["workers"] = []
    answer = made.ask("GET", "/ready")
    assert refusal(answer, 503)["code"] == "engine_unavailable"
    assert answer.headers["retry-after"] == "2"
    assert made.ask("GET", "/health").status_code == 200


@pytest.mark.parametrize("name", ["x-request-id", "x-client-request-id"])
def test_a_clients_request_id_comes_back(endpoint, name):
    made = endpoint("x")
    assert made.chat(headers={name: "abc-1"}).headers["x-request-id"] == "abc-1"
    assert made.ask("GET", "/nothing", headers={name: "abc-1"}).headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("value", ["two words", "x" * 200, b"\xff"])
def test_a_request_id_that_could_harm_a_log_is_replaced(endpoint, value):
    answer = endpoint("x").chat(headers={"x-request-id": value})
    assert answer.headers["x-request-id"].startswith("req_")


def test_models_say_how_long_a_context_may_be_also_while_the_engine_is_away(endpoint):
    made = endpoint("x")
    model = made.ask("GET", "/v1/models").json()["data"][0]
    assert (model["id"], model["object"], model["max_model_len"]) == ("claw-policy", "model", 4096)

    class Away(ScriptedEngine):
        async def status(self, *, owner="default"):
            raise EngineError(503, "away", type="server_error")

    away = endpoint(engine=Away("x"))
    assert away.ask("GET", "/v1/models/claw-policy").json()["id"] == "claw-policy"
    assert refusal(away.ask("GET", "/v1/status"), 503)


def test_a_bug_of_ours_is_a_500_in_the_error_shape_and_is_logged_with_its_id(endpoint, caplog):
    class Broken(ScriptedEngine):
        def _line(self, ask, number):
            raise ZeroDivisionError("the secret inside")

    answer = endpoint(engine=Broken()).chat(headers={"x-request-id": "abc-7"})
    assert refusal(answer, 500)["type"] == "server_error"
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == "abc-7"
    assert any("abc-7" in r.message and r.exc_info for r in caplog.records)
    stream = endpoint(engine=Broken()).chat(stream=True)
    assert refusal(stream, 500)


def test_no_key_is_ever_logged(endpoint, caplog):
    caplog.set_level("DEBUG")
    made = endpoint("x")
    made.chat()
    made.ask("GET", "/v1/models", auth=False, headers={"authorization": "Bearer wrong-key"})
    assert "key-of-the-tests" not in caplog.text
    assert "wrong-key" not in caplog.text


def test_feedback_takes_response_ids_and_turn_ids(endpoint):
    made = endpoint("x")
    answer_id = made.chat().json()["id"]
    for target in (answer_id, "turn_0000"):
        body = {"id": target, "value": -1, "text": "too long"}
        said = made.ask("POST", "/v1/feedback", json=body).json()
        assert said == {
            "object": "feedback", "id": target, "value": -1, "turn_id": "turn_0000",
        }
    assert made.engine.votes == [("turn_0000", -1, "too long")] * 2


@pytest.mark.parametrize(("body", "status", "param"), [
    ({}, 400, "id"), ({"id": 5, "value": 1}, 400, "id"),
    ({"id": "chatcmpl-", "value": 1}, 400, "id"),
    ({"id": "turn_0000"}, 400, "value"), ({"id": "turn_0000", "value": 2}, 400, "value"),
    ({"id": "turn_0000", "value": True}, 400, "value"),
    ({"id": "turn_0000", "value": "1"}, 400, "value"),
    ({"id": "turn_0000", "value": 1, "text": 5}, 400, "text"),
    ({"id": "turn_9999", "value": 1}, 404, "id"),
])
def test_feedback_that_means_nothing_is_refused(endpoint, body, status, param):
    made = endpoint("x")
    made.chat()
    assert refusal(made.ask("POST", "/v1/feedback", json=body), status)["param"] == param
    assert made.engine.votes == []


def test_a_session_can_be_ended(endpoint):
    made = endpoint("x")
    assert made.ask("DELETE", "/v1/sessions/a%2Fb").json() == {
        "object": "session", "id": "a/b", "ended": True,
    }
    assert made.engine.ended == ["a/b"]


def test_a_web_page_may_call_only_when_it_is_named(endpoint):
    asks = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    path = "/v1/chat/completions"
    assert refusal(endpoint("x").ask("OPTIONS", path, headers=asks), 405)
    named = endpoint("x", settings={"cors_origin": "http://localhost:3000"})
    allowed = named.ask("OPTIONS", path, auth=False, headers=asks)
    assert allowed.headers["access-control-allow-origin"] == "http://localhost:3000"
    refused = named.ask("GET", "/v1/models", auth=False, headers=asks)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "http://localhost:3000"
    other = named.ask("GET", "/v1/models", headers={"origin": "http://evil"})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(("logprob", "shown"), [
    (-0.5, -0.5), (-math.inf, -9999.0), (math.nan, None), (None, None), (math.inf, None),
])
def test_a_logprob_that_is_no_number_never_breaks_the_json(logprob, shown):
    entry = logprobs_of([{"token": "a", "logprob": logprob, "top": [["b", logprob]]}], 1)
    assert entry["content"][0]["logprob"] == shown
    assert entry["content"][0]["top_logprobs"][0]["logprob"] == shown


@pytest.mark.parametrize("token", ["\ud83c", "\ufffd"])
def test_a_token_that_is_part_of_a_character_has_no_bytes(token):
    assert logprobs_of([{"token": token, "logprob": -1.0}], 0)["content"][0]["bytes"] is None


@pytest.mark.parametrize(("said", "calls", "shown"), [
    ("stop", (), "stop"), ("stop", (("f", "{}"),), "tool_calls"), ("length", (), "length"),
    ("length", (("f", '{"a": "'),), "length"), ("cancelled", (), "length"), ("", (), "stop"),
])
def test_a_finish_reason_is_always_one_that_clients_know(said, calls, shown):
    assert finish_of(Event("done", message=reply("x", calls), finish_reason=said)) == shown


def test_arguments_that_are_no_json_arrive_as_they_are(endpoint):
    line = Line("", calls=(("read", '{"path": "/tmp/a", "content": "'),))
    message = endpoint(line).chat().json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"path": "/tmp/a", "content": "'


def test_the_plugin_is_found_by_its_name_and_checks_its_settings():
    plugin = registry.load("personal")
    settings = plugin.settings({"cors_origin": "http://localhost:3000"})
    assert settings.keepalive_s == 3.0
    with pytest.raises(Exception, match="did you mean 'cors_origin'"):
        plugin.settings({"cors_orgin": "x"})
    serve = {"model_name": "m", "model": "m", "max_body_mb": 1,
             "people": ScriptedPeople()}
    app = plugin.hook.claw_app(engine=ScriptedEngine(), config=settings, serve=serve)
    assert callable(app)


TALKS = (("POST", "/v1/chat/completions"), ("POST", "/v1/responses"), ("POST", "/v1/messages"),
         ("DELETE", "/v1/sessions/s"))


@pytest.mark.parametrize(("scopes", "open", "shut"), [
    (("chat",), TALKS, (("POST", "/v1/feedback"),)),
    (("feedback",), (("POST", "/v1/feedback"),), TALKS),
])
def test_a_key_opens_the_routes_of_its_scopes_and_no_others(endpoint, scopes, open, shut):
    people = ScriptedPeople({KEY: Person("anna", False, scopes=scopes)})
    made = endpoint("hi", people=people)
    for method, path in shut:
        answer = made.ask(method, path, json={"id": "turn_1", "value": 1})
        error = answer.json()["error"]
        assert answer.status_code == 403 and error["type"] == "permission_error", path
        assert scopes[0] in error["message"]
        assert path == "/v1/messages" or error["code"] == "insufficient_scope"
    for method, path in open:
        assert made.ask(method, path, json={"id": "turn_1", "value": 1}).status_code != 403, path
    for path in ("/v1/models", "/v1/status"):
        assert made.ask("GET", path).status_code == 200
    assert made.engine.asks == [] and made.engine.votes == []


@pytest.mark.parametrize("is_told", [True, False])
def test_the_log_probs_of_an_event_with_calls_come_once_and_with_all_its_parts(is_told):
    part = {"index": 0, "id": "callA", "name": "read", "arguments": '{"a'}
    token = {"id": 1, "token": "x", "logprob": -0.5, "top": []}
    event = Event("text", "turn_1", text="I look. ", tokens=(token, token),
                  calls=(part,) if is_told else ())
    request = chat_request({"messages": [{"role": "user", "content": "x"}], "stream": True,
                            "logprobs": True}, {}, ["m"])
    choices = [c["choices"][0] for c in Chunks(request, "m").of(event)]
    told = [len(c["logprobs"]["content"]) for c in choices if c["logprobs"]]
    assert told == [2]
    assert [bool(c["delta"].get("tool_calls")) for c in choices].count(True) == 2 * is_told
    assert "".join(c["delta"].get("content") or "" for c in choices) == "I look. "
