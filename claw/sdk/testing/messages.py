"""Whether a message is one that a chat template and an OpenAI client can read."""

from typing import Any

from claw.records import Message

ROLES = ("system", "user", "assistant", "tool")


def problem_of(message: Any) -> str:
    """Return what is wrong with a message, or an empty string."""
    if not isinstance(message, dict):
        return f"a message is a dict; a {type(message).__name__} came"
    if message.get("role") not in ROLES:
        return f"role is one of {', '.join(ROLES)}; found {message.get('role')!r}"
    content = message.get("content")
    may_be_null = message["role"] == "assistant" and message.get("tool_calls")
    if not isinstance(content, str | list) and not (content is None and may_be_null):
        return f"content is text or a list of parts; found {content!r}"
    if isinstance(content, list) and not all(isinstance(p, dict) and "type" in p for p in content):
        return "every part of a content list is a dict with a type"
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        return "a tool message names its tool_call_id"
    return ""


def problem_of_tool(tool: Any) -> str:
    """Return what is wrong with one entry of `Env.tools`, or an empty string."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        return 'a tool is {"type": "function", "function": {...}}'
    if not isinstance(function.get("name"), str) or not function["name"]:
        return "a tool has a name"
    schema = function.get("parameters", {"type": "object"})
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return f"parameters of {function['name']} are a JSON schema of type object"
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"parameters of {function['name']}: {error.message} at {error.json_path}"
    missing = set(schema.get("required", ())) - set(schema.get("properties", {}))
    if missing:
        return f"{function['name']} requires {sorted(missing)}, which its properties lack"
    return ""


def text_of(message: Message) -> str:
    """Return the text of a message, all its parts together."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
