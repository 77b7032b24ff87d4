"""Long text cut in the middle: the head and the tail say more than the first half does."""

from claw.records import Message


def clip(text: str, limit: int) -> str:
    """Return `text` with at most `limit` characters of it, head and tail; 0 keeps all."""
    if limit <= 0 or len(text) <= limit:
        return text
    tail = limit // 2
    marker = f"\n[... {len(text) - limit} characters left out ...]\n"
    return text[: limit - tail] + marker + text[len(text) - tail :]


def clip_message(message: Message, limit: int) -> Message:
    """Return the message with its text clipped, each text part for itself."""
    content = message.get("content")
    if isinstance(content, str):
        short = clip(content, limit)
        return message if short is content else message | {"content": short}
    if isinstance(content, list):
        return message | {"content": [_part(part, limit) for part in content]}
    return message


def _part(part: object, limit: int) -> object:
    if isinstance(part, str):
        return clip(part, limit)
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return part | {"text": clip(part["text"], limit)}
    return part
