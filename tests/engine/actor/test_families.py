"""Each family's published way to write calls, malformed ones, and which template means which."""

import json
import time

import pytest

from claw.engine.actor import parse
from claw.engine.actor.chat import Chat
from claw.engine.actor.families import (
    DEEPSEEK,
    DEEPSEEK_END,
    FAMILIES,
    ONE,
    ONE_END,
    SEPARATOR,
    family_of,
)
from claw.records import FinishReason

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "full": {"type": "boolean"},
        "at": {"type": "object"}, "note": {"type": ["string", "null"]}}}}}
TIME = {"type": "function", "function": {"name": "time", "parameters": {}}}
TOOLS = (WEATHER, TIME)

CODER = """<tool_call>
<function=weather>
<parameter=city>
42
</parameter>
<parameter=days>
3
</parameter>
<parameter=full>
True
</parameter>
<parameter=at>
{"x": [1, {"y": "ü"}]}
</parameter>
</function>
</tool_call>"""
GLM = ("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>42</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
       "<arg_key>full</arg_key>\n<arg_value>true</arg_value>\n"
       '<arg_key>at</arg_key>\n<arg_value>{"x": [1, {"y": "ü"}]}</arg_value>\n</tool_call>')
SAID = {"city": "42", "days": 3, "full": True, "at": {"x": [1, {"y": "ü"}]}}
JSON = json.dumps(SAID, ensure_ascii=False)
HERMES = f'<tool_call>\n{{"name": "weather", "arguments": {JSON}}}\n</tool_call>'
V3 = f"{ONE}function{SEPARATOR}weather\n```json\n{JSON}\n```{ONE_END}"
V31 = f"{ONE}weather{SEPARATOR}{JSON}{ONE_END}"
PYTHONIC = 'weather(city="42", days=3, full=True, at={"x": [1, {"y": "ü"}]})'

ONE_CALL = {
    "hermes": [HERMES],
    "qwen3-coder": [CODER, CODER.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")],
    "glm": [GLM],
    "mistral": [f'[TOOL_CALLS][{{"name": "weather", "arguments": {JSON}}}]',
                f"[TOOL_CALLS]weather[ARGS]{JSON}",
                f"[TOOL_CALLS]weather[CALL_ID]aB3dE5gH7[ARGS]{JSON}</s>"],
    "deepseek": [f"{DEEPSEEK}{V3}{DEEPSEEK_END}", f"{DEEPSEEK}{V31}{DEEPSEEK_END}",
                 f"{DEEPSEEK}{V31}"],
    "pythonic": [f"[{PYTHONIC}]", f"<|python_start|>[{PYTHONIC}]<|python_end|>"],
    "llama": [f'<|python_tag|>{{"name": "weather", "parameters": {JSON}}}'],
}
TWO_CALLS = {
    "hermes": f'{HERMES}\n<tool_call>{{"name": "time", "arguments": {{}}}}</tool_call>',
    "qwen3-coder": f"{CODER}\n<tool_call>\n<function=time>\n</function>\n</tool_call>",
    "glm": f"{GLM}\n<tool_call>time\n</tool_call>",
    "mistral": f"[TOOL_CALLS]weather[ARGS]{JSON}[TOOL_CALLS]time[ARGS]{{}}",
    "deepseek": f"{DEEPSEEK}{V3}\n{ONE}function{SEPARATOR}time\n```json\n{{}}\n```{ONE_END}"
                f"{DEEPSEEK_END}",
    "pythonic": f"[{PYTHONIC}, time()]",
    "llama": f'{{"name": "weather", "parameters": {JSON}}}; {{"name": "time", "parameters": {{}}}}',
}
WITH_TEXT = ("hermes", "qwen3-coder", "glm", "mistral", "deepseek")
BROKEN = {
    "hermes": '<tool_call>{"name": "weather", "arguments": {"city": </tool_call>',
    "qwen3-coder": "<tool_call>\n<function=weather>\n<parameter=city>x\n</function>\n</tool_call>",
    "glm": "<tool_call>weather\n<arg_key>city</arg_key>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": 1]',
    "deepseek": f"{DEEPSEEK}{ONE}weather{SEPARATOR}{{1{ONE_END}{DEEPSEEK_END}",
    "pythonic": "[weather(__import__('os').getcwd()), time(]",
    "llama": '<|python_tag|>{"name": "weather", "parameters": {',
}


def read(family: str, text: str) -> tuple[str | None, list[tuple[str, object]], FinishReason]:
    message, finish = parse.reply(text, parse.Markup(family, tools=TOOLS), FinishReason.STOP)
    calls = [(c["function"]["name"], json.loads(c["function"]["arguments"]))
             for c in message.get("tool_calls", ())]
    return message["content"], calls, finish


@pytest.mark.parametrize(("family", "text"), [(f, t) for f, ts in ONE_CALL.items() for t in ts])
def test_a_call_in_its_familys_form_has_the_values_that_the_tool_asks_for(family, text):
    assert read(family, text) == (None, [("weather", SAID)], FinishReason.TOOL_CALLS)


@pytest.mark.parametrize("family", TWO_CALLS)
def test_two_calls_come_in_their_order(family):
    content, calls, _ = read(family, TWO_CALLS[family])
    assert content is None and calls == [("weather", SAID), ("time", {})]


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.ends])
def test_a_reply_that_is_cut_behind_its_first_call_has_that_call(family):
    text = f"I look.\n{TWO_CALLS[family]}"
    end = parse.first_call(text, parse.Markup(family))
    assert read(family, text[:end])[1] == [("weather", SAID)]
    assert parse.first_call(text[: end - 1], parse.Markup(family)) == -1


@pytest.mark.parametrize("family", WITH_TEXT)
def test_text_before_a_call_stays_the_content(family):
    content, calls, _ = read(family, f"I look it up.\n{ONE_CALL[family][0]}")
    assert content.strip() == "I look it up." and calls == [("weather", SAID)]


@pytest.mark.parametrize(("family", "text"), [
    *BROKEN.items(), ("qwen3-coder", CODER.replace("</parameter>", "</parameter> or", 1)),
    ("glm", GLM.replace("<arg_key>days", "and <arg_key>days")),
])
def test_a_malformed_call_stays_text(family, text):
    assert read(family, text) == (text, [], FinishReason.STOP)


@pytest.mark.parametrize("text", [
    "[weather('positional')]", "[print(a=open)]", "[1, 2]", "[weather(**{'a': 1})]",
    "[weather(a={1, 2})]", "[weather(a=b'x')]", "[(lambda: 1)()]", "[" * 9000 + "]" * 9000, "[]",
])
def test_python_that_is_no_call_with_literals_is_neither_run_nor_read(text):
    assert read("pythonic", text)[1:] == ([], FinishReason.STOP)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_of_a_call_is_shown_while_it_streams(family):
    before = "I look it up.\n" if family in WITH_TEXT else ""
    text = before + ONE_CALL[family][0]
    for end in range(len(text) + 1):
        shown = parse.visible(text[:end], parse.Markup(family, tools=TOOLS))
        assert before.startswith(shown) or shown == before.rstrip()


def test_a_value_is_typed_by_the_schema_and_a_string_is_left_as_it_is():
    [(_, said)] = read("qwen3-coder", CODER.replace("city>\n42", "note>\n12"))[1]
    assert said["note"] == "12" and said["days"] == 3
    [(_, said)] = read("qwen3-coder", CODER.replace("weather", "nobody"))[1]
    assert said["days"] == "3", "a tool that nobody named has no types"


@pytest.mark.parametrize(("schema", "value"), [
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "3"), ({"enum": [1, 3]}, 3),
    ({"enum": ["3"]}, "3"), ({"$ref": "#/x"}, 3), ({"anyOf": [{"$ref": "#/x"}, 5]}, 3), ({}, "3"),
    ({"anyOf": 5, "enum": {"a": 1}}, "3"), ("integer", "3"),
])
@pytest.mark.parametrize("family", ["qwen3-coder", "glm"])
def test_every_way_a_schema_names_a_type_counts(family, schema, value):
    tool = {"function": {"name": "weather", "parameters": {"properties": {"days": schema}}}}
    message, _ = parse.reply(ONE_CALL[family][0], parse.Markup(family, tools=(tool,)),
                             FinishReason.STOP)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["days"] == value


@pytest.mark.parametrize("function", [
    {"name": "weather", "parameters": ["x"]}, {"name": "weather", "parameters": "x"},
    {"name": "weather", "parameters": {"properties": ["days"]}}, "weather", None,
])
def test_a_schema_that_is_none_gives_strings(function):
    markup = parse.Markup("qwen3-coder", tools=({"function": function},))
    message, _ = parse.reply(CODER, markup, FinishReason.STOP)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["days"] == "3"


def test_a_semicolon_in_a_string_divides_no_calls():
    one = '{"name": "weather", "parameters": {"city": "a; b"}}'
    assert [said["city"] for _, said in read("llama", f"{one}; {one}")[1]] == ["a; b", "a; b"]


def test_pythonic_calls_may_have_the_words_of_json():
    said = read("pythonic", r"[weather(full=true, at=null, city='\d', days=[false])]")[1][0][1]
    assert said == {"full": True, "at": None, "city": "\\d", "days": [False]}


@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_text_is_read_in_a_time_that_grows_with_its_length(family):
    family_marks = [*FAMILIES[family].marks, ONE, "<parameter=", "<arg_key>", "[ARGS]", "[", "{"]
    endless = '{"name": "' + ";" * 100_000
    for mark in [*family_marks, endless]:
        text = mark * max(200_000 // len(mark), 1)
        began = time.process_time()
        read(family, text)
        assert time.process_time() - began < 2.0, mark


@pytest.mark.parametrize(("snippet", "family"), [
    ("{{ '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}", "qwen3-coder"),
    ("{{ '<tool_call>' + tc.name }}{% for k, v in a %}<arg_key>{{ k }}</arg_key>", "glm"),
    ("{{ '<tool_call>\\n{\"name\": \"' }}", "hermes"),
    ("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", "mistral"),
    ("{{ '<\uff5ctool\u2581calls\u2581begin\uff5c>' }}", "deepseek"),
    ("[func_name1(params_name1=params_value1, params_name2=params_value2...)]", "pythonic"),
    ("{{- '<|python_tag|>' }}", "llama"),
    ("{{ message.content }}", ""),
])
def test_a_template_says_which_family_it_is_of(snippet, family):
    assert family_of(lambda mark: mark in snippet) == family


def test_the_setting_is_stronger_than_the_template(tiny_llama_dir):
    chat = Chat(tiny_llama_dir)
    auto = chat.markup([TIME], False).calls
    chat.calls = "mistral"
    assert chat.markup([TIME], False).calls == "mistral" != auto
    chat.calls = "none"
    assert chat.markup([TIME], False).calls == "" and chat.markup([], False).calls == ""
