"""Messages <-> token ids for one model folder.

Owns: prompts, the append-only rule, hinted prompts, decoding, the model's stop ids.
Does not own: which conversation a request belongs to (`session.py`), sampling (`policy.py`).

Ids known from earlier turns are kept: a prompt that continues a known turn is its prompt ids, its
sampled ids, and the ids of what the template adds. Where the template changes the history (strips
thinking, re-writes a tool call) the whole is rendered anew, which makes a branch.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from claw.engine.actor import families, parse, template
from claw.engine.actor.album import Album, digests, is_picture
from claw.engine.actor.detok import Detokeniser
from claw.errors import ClawError
from claw.records import Message
from claw.sdk.foreign_json import from_json

HINT_MARK = "\n\n[user's hint / instruction]\n"
WHOLE, APPEND = "whole", "append"


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of an earlier turn: enough to continue it without re-tokenising."""

    ids: np.ndarray
    """int32 [P + R] prompt and sampled ids"""
    chars: int
    """characters of the prompt's text"""
    digest: str
    """sha256 of the prompt's text"""
    sampled: str
    """text of the sampled ids, special tokens included"""
    stop: str
    """text of the end-of-turn token if it was sampled, else empty"""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A request as token ids, and by which rule they were made."""

    ids: np.ndarray
    """int32 [P]"""
    rule: str
    """append, whole, or whole with the reason why known ids could not be kept"""
    chars: int
    digest: str
    starts_thinking: bool
    images: tuple[str, ...] = ()
    """sha256 of each picture, in order"""


class Chat:
    """The template and tokenizer of one model folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        source, special = template.find(self.folder)
        self.template = template.Template(source, special)
        path = self.folder / "tokenizer.json"
        if not path.exists():
            raise ClawError("the model has no tokenizer.json", found=str(self.folder))
        self.tokenizer = Tokenizer.from_file(str(path))
        self.stop_ids = self._find_stop_ids(special)
        config = template.read_json(self.folder / "config.json")
        text = config.get("text_config", config)
        self.context = int(text.get("max_position_embeddings") or 0)
        self.vocab_size = int(text.get("vocab_size") or self.tokenizer.get_vocab_size())
        self.token = lru_cache(maxsize=65536)(self._token)
        self.calls = "auto"
        """the family by which tool calls are read (serve.tool_calls)"""
        self.album: Album | None = None
        """the pictures of requests, where the model sees them"""
        image_id = config.get("image_token_id")
        self._image = "" if image_id is None else self.decode([image_id])

    def _find_stop_ids(self, special: dict[str, str]) -> tuple[int, ...]:
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            value = template.read_json(self.folder / name).get("eos_token_id")
            values = value if isinstance(value, list) else [value]
            found |= {v for v in values if isinstance(v, int)}
        end = self.tokenizer.token_to_id(special.get("eos_token", ""))
        return tuple(sorted(found | ({end} if end is not None else set())))

    # --- prompts -----------------------------------------------------------------------------

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (),
        known: Known | None = None, raw: dict[int, str] | None = None,
    ) -> Prompt:
        """Return the prompt of a request.

        `raw` maps positions of our own earlier replies to the text that was sampled, so that the
        template sees what the policy said rather than what a client made of it. Raises
        TemplateRefusal when the template renders neither.
        """
        why = "no known turn"
        if known is not None:
            for candidate in ({} if raw is None else raw, {}):
                try:
                    text = self.render(messages, tools, candidate)
                except template.TemplateRefusal as refusal:
                    why = f"the template refused the sampled text ({refusal})"
                    continue
                suffix = new_suffix(text, known)
                if suffix is not None:
                    ids = np.concatenate([known.ids, self.encode(suffix)])
                    return self._made(ids, APPEND, text)
                why = "the template changes the history"
        text = self.render(messages, tools)
        rule = WHOLE if known is None else f"{WHOLE}: {why}"
        return self._made(self.encode(text), rule, text)

    def _made(self, ids: np.ndarray, rule: str, text: str) -> Prompt:
        thinking = text.rstrip().endswith(parse.THINK)
        return Prompt(ids.astype(np.int32), rule, len(text), sha(text), thinking,
                      self._images(text))

    def known(self, prompt_ids: np.ndarray, chars: int, digest: str, ids: np.ndarray) -> Known:
        """Return what later turns need of a finished one."""
        stop = self.decode(ids[-1:]) if len(ids) and int(ids[-1]) in self.stop_ids else ""
        both = np.concatenate([prompt_ids, ids]).astype(np.int32)
        return Known(both, chars, digest, self.decode(ids), stop)

    def hinted(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], hint: str
    ) -> np.ndarray:
        """Return int32 ids of the request with `hint` at the end of its last user message."""
        changed = [dict(m) for m in messages]
        users = [i for i, m in enumerate(changed) if m.get("role") == "user"]
        at = users[-1] if users else len(changed) - 1
        said = changed[at].get("content")
        if digests(changed[at]):
            changed[at]["content"] = [*said, {"type": "text", "text": HINT_MARK + hint}]
        else:
            changed[at]["content"] = text_of(said) + HINT_MARK + hint
        return self.encode(self.render(changed, tools))

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (),
        raw: dict[int, str] | None = None,
    ) -> str:
        """Return the prompt's text, free of lone surrogates."""
        plain = [
            {"role": "assistant", "content": raw[i]} if raw and i in raw else self._plain(m)
            for i, m in enumerate(messages)
        ]
        if self.album is None:
            return clean(self.template.render(plain, list(tools)))
        text = clean(self.template.render(self._inert(plain), self._inert(list(tools))))
        shown = [digest for message in messages for digest in digests(message)]
        pieces = text.split(self._image)
        if len(pieces) != len(shown) + 1:
            raise template.TemplateRefusal(
                f"the template shows {len(pieces) - 1} of {len(shown)} pictures")
        named = (f"{self._image}{digest}>{piece}"
                 for digest, piece in zip(shown, pieces[1:], strict=True))
        return pieces[0] + "".join(named)

    def _inert(self, value: Any) -> Any:
        """The value with nothing in its texts that a tokenizer would take for a picture.

        A reply that holds such a token is thus never continued by its ids, but rendered anew.
        """
        if isinstance(value, str):
            return value.replace(self._image, self._image.replace("|", ""))
        if isinstance(value, list):
            return [self._inert(v) for v in value]
        return {k: self._inert(v) for k, v in value.items()} if isinstance(value, dict) else value

    def _images(self, text: str) -> tuple[str, ...]:
        """The pictures that a rendered text names, in order."""
        return () if self.album is None else tuple(re.findall(
            re.escape(self._image) + "([0-9a-f]{64})>", text))

    def _plain(self, message: Message) -> Message:
        """Return the message as templates expect it: text content, arguments as maps."""
        made = {k: v for k, v in message.items() if v is not None}
        made["content"] = _parts(message) if digests(message) else text_of(message.get("content"))
        made["role"] = "system" if made.get("role") == "developer" else made.get("role")
        calls = made.get("tool_calls")
        if not calls:
            made.pop("tool_calls", None)
            return made
        made["tool_calls"] = [_with_map(call) for call in calls]
        if not self.template.knows("tool_calls"):  # the call must not vanish from the history
            written = [_written(call["function"]) for call in made.pop("tool_calls")]
            made["content"] = "\n".join([*filter(None, [made["content"]]), *written])
        return made

    @property
    def takes_tools(self) -> bool:
        """Whether the template shows tools to the model."""
        return self.template.knows("tools")

    # --- ids and text ------------------------------------------------------------------------

    def encode(self, text: str) -> np.ndarray:
        """Return int32 ids; the template has written every special token itself."""
        if self.album is not None:
            text = re.sub(re.escape(self._image) + "([0-9a-f]{64})>", self._expanded, text)
        # encode() holds Python's lock for seconds on a long text; a batch of one does not
        [encoding] = self.tokenizer.encode_batch_fast([clean(text)], add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int32)

    def _expanded(self, named: re.Match[str]) -> str:
        """As many tokens as the picture has, as the model's own processor writes them."""
        assert self.album is not None, "only pictures of an album are named"
        return self._image * self.album.num_tokens(named[1])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, special tokens included."""
        return self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)

    def _token(self, id: int) -> str:
        return self.decode([id])

    def detokeniser(self) -> Detokeniser:
        return Detokeniser(self.decode)

    def without_stop(self, ids: np.ndarray) -> np.ndarray:
        """Return the ids without the end-of-turn token at their end."""
        return ids[:-1] if len(ids) and int(ids[-1]) in self.stop_ids else ids

    def markup(self, tools: Sequence[dict[str, Any]], starts_thinking: bool) -> parse.Markup:
        """Return what to look for in a reply to a request with these tools."""
        calls = self.calls if tools and self.calls != "none" else ""
        if calls == "auto":
            calls = families.family_of(self.template.knows)
            if not calls and not self.template.knows("tool_calls"):
                calls = "hermes"  # `_plain` shows calls in this form
        return parse.Markup(
            calls, self.template.knows(parse.THINK), starts_thinking, tuple(tools))


def new_suffix(text: str, known: Known) -> str | None:
    """Return what `text` adds to a known turn, or None when it does not continue it.

    White space around the reply may differ (templates trim it); nothing else may.
    """
    if len(text) < known.chars or sha(text[: known.chars]) != known.digest:
        return None
    rest = text[known.chars :]
    if rest.startswith(known.sampled):
        return rest[len(known.sampled) :]
    body = known.sampled.removesuffix(known.stop).strip()
    trimmed = rest.lstrip()
    if not body or not trimmed.startswith(body):
        return None
    after = trimmed[len(body) :].lstrip()
    if known.stop:
        return after.removeprefix(known.stop) if after.startswith(known.stop) else None
    return after


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, a list of text parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [p if isinstance(p, str) else p.get("text", "") for p in content if p]
        return "\n".join(p for p in parts if isinstance(p, str))
    return "" if content is None else str(content)


def _parts(message: Message) -> list[dict[str, Any]]:
    """The content of a message with pictures, as templates of vision-language models expect it."""
    return [
        {"type": "image"} if is_picture(part) else
        {"type": "text", "text": part if isinstance(part, str) else part.get("text", "")}
        for part in message["content"]
    ]


def clean(text: str) -> str:
    """Join split surrogate pairs and replace lone ones, which no tokenizer takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _with_map(call: dict[str, Any]) -> dict[str, Any]:
    """Arguments come as a JSON string; templates want the map, and keep what is no map."""
    function = dict(call.get("function") or {})
    try:
        value = from_json(function.get("arguments") or "{}")
        function["arguments"] = value if isinstance(value, dict) else function["arguments"]
    except (TypeError, ValueError):
        pass
    return {**call, "function": function}


def _written(function: dict[str, Any]) -> str:
    call = {"name": function.get("name"), "arguments": function.get("arguments")}
    return f"{families.CALL}\n{json.dumps(call, ensure_ascii=False)}\n{families.CALL_END}"
