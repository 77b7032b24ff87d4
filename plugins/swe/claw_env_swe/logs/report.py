"""JUnit's XML, which most frameworks can write."""

from collections.abc import Iterator

MAX_BYTES = 32 << 20


def junit(text: str) -> Iterator[tuple[str, str]]:
    """`class::name` and, where a file is named, `file::name`; nothing from what is no XML."""
    from defusedxml import ElementTree
    from defusedxml.common import DefusedXmlException

    try:
        root = ElementTree.fromstring(text[:MAX_BYTES])
    except (ElementTree.ParseError, DefusedXmlException, ValueError):
        return
    for case in root.iter("testcase"):
        status = "passed"
        for child in case:
            tag = child.tag.rpartition("}")[2]
            status = {"failure": "failed", "error": "error", "skipped": "skipped"}.get(tag, status)
        name = case.get("name") or ""
        for place in (case.get("classname"), case.get("file")):
            if place:
                yield f"{place}::{name}", status
        yield name, status
