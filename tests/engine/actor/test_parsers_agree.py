"""One parser reads the replies of every worker: claw's own. SGLang's are its oracle.

SGLang's lose the call of an unknown tool, and read no call where a later one was cut off, so no
judge could see what was done; and a worker sends ids, not text. The texts on which both must agree
are `SAME`, those on which SGLang's find no call are `UNREAD`.
"""

import json
import subprocess

import pytest

from claw.engine.actor import parse
from claw.engine.actor.families import DEEPSEEK, DEEPSEEK_END, ONE, ONE_END, SEPARATOR
from claw.records import FinishReason

pytestmark = [pytest.mark.sglang, pytest.mark.real, pytest.mark.slow]

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "two"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "find", "arguments": {"what": "ü \\"x\\""}}\n</tool_call>'
SAME = {
    "hermes": ["Hello.", CALL, f"I add.\n{CALL}", f"{CALL}\n{OTHER}", f"{CALL}\n{CALL}",
               f"<think>\nhm\n</think>\n\n{CALL}", "<think>\nhm\n</think>\n\nyes",
               "<think>\nnever ends", "a < b and {1: 2}",
               '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'],
    "llama": ["Hello.", '<|python_tag|>{"name": "add", "parameters": {"a": 1}}',
              '{"name": "find", "parameters": {"what": "x"}}',
              '<|python_tag|>{"name": "add", "parameters": {"a": 1}};'
              '{"name": "find", "parameters": {"what": "x"}}'],
}
ADD = '{"a": "1", "b": "two"}'
SAME |= {
    "qwen3-coder": ["<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n"
                    "two\n</parameter>\n</function>\n</tool_call>"],
    "glm": ["<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
            "<arg_value>two</arg_value>\n</tool_call>"],
    "mistral": [f'[TOOL_CALLS] [{{"name": "add", "arguments": {ADD}}}]',
                f"[TOOL_CALLS]add[ARGS]{ADD}"],
    "deepseek": [f"{DEEPSEEK}{ONE}function{SEPARATOR}add\n```json\n{ADD}\n```{ONE_END}"
                 f"{DEEPSEEK_END}"],
    "pythonic": ['[add(a="1", b="two")]', '[add(a="1"), find(what="x")]'],
}
SAME["hermes"].append('<tool_call>\n{"name": "add", "arguments": {"a": \n</tool_call>')
UNREAD = {
    "hermes": {
        '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>': ["nobody", {}],
        f'{CALL}\n<tool_call>\n{{"name": "find", "arg': ["add", {"a": 1, "b": "two"}],
    },
}
NAMES = {"hermes": "hermes", "llama": "llama3", "qwen3-coder": "qwen3_coder", "glm": "glm45",
         "mistral": "mistral", "deepseek": "deepseekv3", "pythonic": "pythonic"}
ORACLE = '''
import json, sys
from sglang.srt.entrypoints.openai.protocol import Function, Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser
P = {"type": "object", "properties": {k: {"type": "string"} for k in ("a", "b", "what")}}
tools = [Tool(type="function", function=Function(name=n, parameters=P)) for n in ("add", "find")]
found = []
for kind, name, text in json.load(sys.stdin):
    thought, rest = None, text
    if kind == "hermes":
        thought, rest = ReasoningParser(model_type="qwen3").parse_non_stream(text)
    parser = FunctionCallParser(tools=tools, tool_call_parser=name)
    calls = []
    if parser.has_tool_call(rest or ""):
        rest, calls = parser.parse_non_stream(rest)
    found.append([thought or None, rest or "", [[c.name, json.loads(c.parameters)] for c in calls]])
print("FOUND" + json.dumps(found))
'''


@pytest.fixture(scope="module")
def oracle(sglang_python):
    asked = [(kind, NAMES[kind], text) for texts in (SAME, UNREAD)
             for kind in texts for text in texts[kind]]
    done = subprocess.run([sglang_python, "-c", ORACLE], input=json.dumps(asked), text=True,
                          capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.split("FOUND")[1])
    return {(kind, text): read for (kind, _, text), read in zip(asked, found, strict=True)}


def own(kind, text):
    message, _ = parse.reply(text, parse.Markup(kind, kind == "hermes"), FinishReason.STOP)
    calls = [[c["function"]["name"], json.loads(c["function"]["arguments"])]
             for c in message.get("tool_calls", ())]
    return [message.get("reasoning_content"), message["content"] or "", calls]


def stripped(read):
    thought, content, calls = read
    return [thought and thought.strip(), content.strip(), calls]


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k in SAME for t in SAME[k]])
def test_well_formed_replies_are_read_as_sglang_reads_them(oracle, kind, text):
    assert stripped(own(kind, text)) == stripped(oracle[kind, text])


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k in UNREAD for t in UNREAD[k]])
def test_a_call_that_sglang_s_parsers_do_not_find_is_a_call(oracle, kind, text):
    assert oracle[kind, text][2] == []
    _, content, calls = own(kind, text)
    assert calls == [UNREAD[kind][text]]
    assert ('"find", "arg' in content) == ('"find", "arg' in text), "what was cut off stays text"
