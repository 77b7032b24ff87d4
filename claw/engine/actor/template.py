"""The model folder's chat template: messages -> text, as transformers renders it.

Owns: finding the template and the special tokens, the sandboxed jinja environment.
Does not own: tokenising, or which messages to render (`chat.py`).
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from claw.errors import ClawError

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class TemplateRefusal(Exception):
    """The template would not render these messages; the text is the template's own reason."""


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for others; here it only passes it on."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own shape

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty one where there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ClawError(f"{path.name} of the model is not JSON", found=f"{path}: {error}") from None
    return value if isinstance(value, dict) else {}


def find(folder: Path) -> tuple[str, dict[str, str]]:
    """Return (template source, special tokens by name) of a model folder."""
    config = read_json(folder / "tokenizer_config.json")
    path = folder / "chat_template.jinja"
    source: Any = path.read_text(encoding="utf-8") if path.exists() else config.get("chat_template")
    if isinstance(source, list):  # several named ones; transformers takes `default`
        named = {t["name"]: t["template"] for t in source}
        source = named.get("default") or next(iter(named.values()), None)
    if not source:
        raise ClawError(
            "the model has no chat template",
            found=f"neither chat_template.jinja nor a chat_template in {folder}",
            allowed="a model tuned for chat (its name often ends in -Instruct)",
            do="choose another model, or put a chat_template.jinja into the folder",
        )
    special = read_json(folder / "special_tokens_map.json") | {
        k: v for k, v in config.items() if k in _SPECIAL
    }
    return source, {k: _text(v) for k, v in special.items() if k in _SPECIAL and _text(v)}


def _text(value: Any) -> str:
    """A special token is a string, or a map with its `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:
    """jinja2's own filter escapes HTML; templates are written for this one."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise TemplateError(message)


class Template:
    """A compiled chat template."""

    def __init__(self, source: str, special: dict[str, str]) -> None:
        self.source, self.special = source, special
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda f: datetime.now().strftime(f)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ClawError("the model's chat template is not valid", found=str(error)) from error

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, generate: bool = True
    ) -> str:
        """Return the text; `generate` ends it where the assistant begins to speak."""
        try:
            return self._template.render(
                messages=messages, tools=tools or None, documents=None,
                add_generation_prompt=generate, **self.special,
            )
        except Exception as error:  # templates are foreign code: any error is their refusal
            raise TemplateRefusal(f"{type(error).__name__}: {error}") from error

    def knows(self, word: str) -> bool:
        """Whether the template's source mentions `word` (a marker of a model family)."""
        return word in self.source
