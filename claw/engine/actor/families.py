"""How families of models write tool calls: one reader each, and which one a template means.

Owns: the published forms, text -> calls. Does not own: thinking, streaming (`parse.py`, `told.py`).

No library does this for every worker: transformers' `parse_response` needs a `response_template`,
which few tokenizers bring, and SGLang's parsers, which are the oracle of the tests, lose the calls
of unknown tools. What is malformed stays text, so that a judge sees what the model did.
"""

import ast
import json
import re
import secrets
import string
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from claw.sdk.foreign_json import from_json

CALL, CALL_END = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
MISTRAL, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
DEEPSEEK = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
DEEPSEEK_END = "<\uff5ctool\u2581calls\u2581end\uff5c>"
ONE, ONE_END = "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"
SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"

MAX_PARTS = 256
"""of a reply that is divided into calls"""

_PAIR = re.compile(
    r"\s*<arg_key>([^<]{1,256})</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)
_FENCED = re.compile(r"\s*([^\n]{1,256})\n```json\n(.*)\n```\s*", re.DOTALL)
_NAME = re.compile(r"[\w.:/-]{1,256}")
_ALPHABET = string.ascii_letters + string.digits

Call = dict[str, Any]
Tools = Sequence[dict[str, Any]]
Read = Callable[[str, Tools], tuple[str, list[Call]]]


@dataclass(frozen=True, slots=True)
class Family:
    """One way to write calls."""

    read: Read
    """whole reply, tools of the request -> (what is left as text, calls)"""
    marks: tuple[str, ...] = ()
    """where one of these begins, nothing more is shown before the reply is whole"""
    begins: str = ""
    """a reply that begins with one of these characters is not shown before it is whole"""
    ends: str = ""
    """what a call ends with; empty where only the end of the reply says so"""
    told_by: tuple[str, ...] = ()
    """a template that holds one of these means this family; the first family that fits"""


# --- readers --------------------------------------------------------------------------------------


def _hermes(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""
    return _taken(body, CALL, CALL_END, lambda inner: call(inner, "arguments"))


def _glm(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """`<tool_call>NAME` and pairs of `<arg_key>` and `<arg_value>` (GLM 4.5 and later)."""
    def read(inner: str) -> Call | None:
        at = inner.find("<arg_key>")
        name, rest = (inner, "") if at < 0 else (inner[:at], inner[at:])
        return _from_pairs(name.strip(), _pairs(rest), tools)

    return _taken(body, CALL, CALL_END, read)


def _pairs(text: str) -> list[tuple[str, str]] | None:
    found, at = [], 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            return None
        found.append((match[1].strip(), match[2]))
        at = match.end()
    return found


def _qwen_coder(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """`<function=NAME>` with `<parameter=KEY>` inside `<tool_call>`, which models leave out."""
    kept, calls, at = "", [], 0
    for start, stop, inner in _blocks(body, FUNCTION, FUNCTION_END):
        name, end, rest = inner.partition(">")
        made = _from_pairs(name.strip(), _parameters(rest) if end else None, tools)
        if made is None:
            continue
        before = body[at:start].rstrip()
        kept += before.removesuffix(CALL) if before.endswith(CALL) else body[at:start]
        after = body[stop:].lstrip()
        at = len(body) - len(after.removeprefix(CALL_END).lstrip())
        calls.append(made)
    return kept + body[at:], calls


def _parameters(text: str) -> list[tuple[str, str]] | None:
    found, at = [], 0
    for start, stop, inner in _blocks(text, PARAMETER, PARAMETER_END):
        key, end, value = inner.partition(">")
        if text[at:start].strip() or not end:
            return None
        found.append((key.strip(), value.removeprefix("\n").removesuffix("\n")))
        at = stop
    return None if text[at:].strip() else found


def _mistral(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """`[TOOL_CALLS][{...}, ...]`, or `[TOOL_CALLS]NAME[ARGS]{...}` for each (since 2025)."""
    content, *parts = body.split(MISTRAL)
    calls: list[Call | None] = []
    for part in parts:
        text = part.strip().removesuffix("</s>").strip()
        if text.startswith("["):
            calls += _listed(text)
        else:
            name, _, arguments = text.partition(ARGS)
            calls.append(_made(name.partition(CALL_ID)[0].strip(), arguments))
    found = [one for one in calls if one]
    return (content, found) if found and len(found) == len(calls) else (body, [])


def _listed(text: str) -> list[Call | None]:
    try:
        values = from_json(text, strict=False, finite=True)
    except ValueError:
        return [None]
    if not isinstance(values, list):
        return [None]
    return [_made(str(value.get("name") or ""), value.get("arguments", {}))
            if isinstance(value, dict) else None for value in values]


def _deepseek(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """`function<sep>NAME` and fenced JSON (V3, R1), or `NAME<sep>{...}` (V3.1), in two marks."""
    content, begun, rest = body.partition(DEEPSEEK)
    inside, _, after = rest.partition(DEEPSEEK_END)
    left, calls = _taken(inside, ONE, ONE_END, _deepseek_call)
    is_sound = bool(begun and calls) and not left.strip()
    return (content + after, calls) if is_sound else (body, [])


def _deepseek_call(inner: str) -> Call | None:
    head, _, tail = inner.partition(SEPARATOR)
    fenced = _FENCED.fullmatch(tail)
    if head.strip() == "function" and fenced:
        return _made(fenced[1].strip(), fenced[2])
    return _made(head.strip(), tail)


def _pythonic(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """`[f(a=1), g(b="x")]` and nothing else: keywords with literals; nothing is evaluated."""
    text = body.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    if not (text.startswith("[") and text.endswith("]")):
        return body, []
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that are none
            tree = _WithJson().visit(ast.parse(text, mode="eval")).body
        calls = [_python_call(node) for node in tree.elts] if isinstance(tree, ast.List) else []
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return body, []
    return ("", calls) if calls else (body, [])


class _WithJson(ast.NodeTransformer):
    """Models write true, false and null where Python has other words."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words = {"true": True, "false": False, "null": None}
        return ast.Constant(words[node.id]) if node.id in words else node


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args or any(k.arg is None for k in node.keywords):
        raise ValueError("no call with keywords")
    arguments = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    made = _made(ast.unparse(node.func), json.dumps(arguments))  # sets and bytes are no JSON
    if made is None:
        raise ValueError("no name of a tool")
    return made


def _llama(body: str, tools: Tools) -> tuple[str, list[Call]]:
    """The whole reply is one JSON call, or several divided by `;`."""
    text = body.strip().removeprefix(PYTHON_TAG).removesuffix("<|eom_id|>").strip()
    parts = text.split(";")
    if len(parts) > MAX_PARTS:
        return body, []
    calls, begun = [], ""
    for part in parts:
        begun = f"{begun};{part}" if begun else part  # a string may hold the mark too
        if (found := call(begun, "parameters")) is not None:
            calls.append(found)
            begun = ""
    return ("", calls) if calls and not begun.strip() else (body, [])


FAMILIES: dict[str, Family] = {
    "qwen3-coder": Family(_qwen_coder, (CALL, FUNCTION), ends=FUNCTION_END, told_by=(FUNCTION,)),
    "glm": Family(_glm, (CALL,), ends=CALL_END, told_by=("<arg_key>",)),
    "deepseek": Family(_deepseek, (DEEPSEEK,), ends=ONE_END, told_by=(DEEPSEEK,)),
    "mistral": Family(_mistral, (MISTRAL,), told_by=(MISTRAL,)),
    "hermes": Family(_hermes, (CALL,), ends=CALL_END, told_by=(CALL,)),
    "pythonic": Family(_pythonic, begins="[<", told_by=("func_name1(params_name1=",)),
    "llama": Family(_llama, begins="{<", told_by=(PYTHON_TAG, '"parameters"')),
}


def family_of(knows: Callable[[str], bool]) -> str:
    """The family that a template means, by what it holds; nothing for one that is not known."""
    return next((name for name, one in FAMILIES.items() if any(map(knows, one.told_by))), "")


# --- what readers share ---------------------------------------------------------------------------


def call_id() -> str:
    """Return a fresh tool-call id; letters and digits only, since clients rewrite the rest."""
    return "call" + "".join(secrets.choice(_ALPHABET) for _ in range(12))


def call(text: str, key: str) -> Call | None:
    """Read `{"name": ..., "<key>": {...}}`; None for what is no call."""
    try:
        value = from_json(text, strict=False, finite=True)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get(key, value.get("arguments", value.get("parameters", {})))
    return _named(value["name"], arguments)


def _made(name: str, arguments: Any) -> Call | None:
    return _named(name, arguments) if _NAME.fullmatch(name) else None


def _named(name: str, arguments: Any) -> Call | None:
    """A call as a message has it; `arguments` are an object, or the text of one."""
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments, strict=False, finite=True)
        except ValueError:
            return None
    if not name or not isinstance(arguments, dict):
        return None
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id(), "type": "function", "function": function}


def _from_pairs(name: str, pairs: list[tuple[str, str]] | None, tools: Tools) -> Call | None:
    """A call whose values are text: what is no string by the tool's schema is read as JSON."""
    if pairs is None:
        return None
    functions = [_object(tool.get("function")) for tool in tools]
    schema = next((f.get("parameters") for f in functions if f.get("name") == name), None)
    properties = _object(_object(schema).get("properties"))
    return _made(name, {key: _value(text, properties.get(key)) for key, text in pairs})


def _value(text: str, schema: Any) -> Any:
    kinds = _kinds(_object(schema))
    if not kinds or "string" in kinds:
        return text
    try:
        return from_json(text.strip(), finite=True)
    except ValueError:
        said = text.strip().lower()  # True and False, as a Python habit writes them
        return said == "true" if said in ("true", "false") else text


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The JSON types that a schema allows; `Optional[int]` comes as anyOf of two."""
    said = schema.get("type")
    found = {str(one) for one in (said if isinstance(said, list) else [said]) if one}
    for value in _listed_of(schema, "enum"):
        found.add("string" if isinstance(value, str) else "other")
    if "$ref" in schema:
        found.add("other")
    for name in ("anyOf", "oneOf"):
        for one in _listed_of(schema, name):
            found |= {str(kind) for kind in [_object(one).get("type")] if kind}
            found |= {"other"} if "$ref" in _object(one) else set()
    return found


def _listed_of(schema: dict[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    """A client's schema may be anything."""
    return value if isinstance(value, dict) else {}


def _blocks(body: str, begin: str, end: str) -> Iterator[tuple[int, int, str]]:
    """(start, stop, what is between) of each pair of marks, in one pass."""
    at = 0
    while (start := body.find(begin, at)) >= 0:
        stop = body.find(end, start + len(begin))
        if stop < 0:
            return
        at = stop + len(end)
        yield start, at, body[start + len(begin) : stop]


def _taken(
    body: str, begin: str, end: str, read: Callable[[str], Call | None]
) -> tuple[str, list[Call]]:
    """Take calls out of a text, with the white space behind each; what is no call stays."""
    kept, calls, at = "", [], 0
    for start, stop, inner in _blocks(body, begin, end):
        found = read(inner)
        if found is not None:
            kept += body[at:start]
            calls.append(found)
            at = len(body) - len(body[stop:].lstrip())
    return kept + body[at:], calls
