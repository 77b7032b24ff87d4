"""Metrics of spreadsheets, documents, slides and PDF files."""

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_ROWS, MAX_COLUMNS = 2000, 200
NEAR = 1e-6


def _whole(path: Path | None) -> str:
    if path is None:
        raise FileNotFoundError("no file")
    return str(path)


# --- spreadsheets ---------------------------------------------------------------------------------

def compare_table(result: Path | None, expected: Path | None = None, *,
                  rules: list[dict[str, Any]], **_: Any) -> float:
    """Each rule about one or two workbooks holds."""
    import openpyxl

    books = {}
    for side, path in (("R", result), ("E", expected)):
        if path is not None:
            books[side] = (openpyxl.load_workbook(_whole(path), data_only=True),
                           openpyxl.load_workbook(_whole(path)))
    return float(all(TABLE_RULES[rule["type"]](books, rule) for rule in rules))


Books = dict[str, tuple[Any, Any]]


def _sheet(books: Books, name: Any, *, formulas: bool = False) -> Any:
    """Return the sheet that `RI0` (index 0 of the result) or `ENSheet1` (by name) means."""
    text = str(name)
    if isinstance(name, int):
        text = f"RI{name}"
    book = books[text[0]][1 if formulas else 0]
    return book.worksheets[int(text[2:])] if text[1] == "I" else book[text[2:]]


def _pair(books: Books, rule: dict[str, Any], *, formulas: bool = False) -> tuple[Any, Any]:
    second = rule.get("sheet_idx1", "EI0")
    second = f"EI{second}" if isinstance(second, int) else second
    return (_sheet(books, rule.get("sheet_idx0", "RI0"), formulas=formulas),
            _sheet(books, second, formulas=formulas))


def _cells(sheet: Any) -> list[list[Any]]:
    rows = [[cell for cell in row[:MAX_COLUMNS]]
            for row in sheet.iter_rows(max_row=min(sheet.max_row, MAX_ROWS), values_only=True)]
    for row in rows:
        while row and row[-1] is None:
            row.pop()
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= NEAR * max(1.0, abs(a), abs(b))
    return bool(a == b)


def _sheet_data(books: Books, rule: dict[str, Any]) -> bool:
    a, b = (_cells(sheet) for sheet in _pair(books, rule))
    return len(a) == len(b) and all(
        len(x) == len(y) and all(map(_same, x, y)) for x, y in zip(a, b, strict=True))


def _sheet_print(books: Books, rule: dict[str, Any]) -> bool:
    """The same as it would be printed: every value as text."""
    def printed(sheet: Any) -> list[list[str]]:
        return [["" if v is None else str(v).strip() for v in row] for row in _cells(sheet)]
    a, b = (printed(sheet) for sheet in _pair(books, rule))
    if rule.get("ignore_case"):
        a, b = ([[v.lower() for v in row] for row in rows] for rows in (a, b))
    return a == b


def _sheet_name(books: Books, rule: dict[str, Any]) -> bool:
    return bool(books["R"][0].sheetnames == books["E"][0].sheetnames)


def _freeze(books: Books, rule: dict[str, Any]) -> bool:
    a, b = _pair(books, rule)
    return bool(a.freeze_panes == b.freeze_panes)


def _zoom(books: Books, rule: dict[str, Any]) -> bool:
    from .data import METHODS

    sheet = _sheet(books, rule.get("sheet_idx", 0))
    return METHODS[rule["method"]](sheet.sheet_view.zoomScale or 100, rule["ref"])


def _check_cell(books: Books, rule: dict[str, Any]) -> bool:
    """Properties of one cell: its value, or its formula."""
    from .data import METHODS

    for name, each in rule["props"].items():
        sheet = _sheet(books, rule.get("sheet_idx", 0), formulas=name == "formula")
        value = sheet[rule["coordinate"]].value
        if name not in ("value", "formula") or not METHODS[each["method"]](value, each["ref"]):
            return False
    return True


TABLE_RULES: dict[Any, Callable[[Books, dict[str, Any]], bool]] = {
    "sheet_data": _sheet_data, "sheet_print": _sheet_print, "sheet_name": _sheet_name,
    "freeze": _freeze, "zoom": _zoom, "check_cell": _check_cell,
}


# --- documents and slides -------------------------------------------------------------------------

def compare_docx_files(
    first: Path | None, second: Path | None, ignore_blanks: bool = True, ignore_case: bool = False,
    ignore_order: bool = False, content_only: bool = False, delete_empty_lines: bool = False,
) -> float:
    """Two documents hold the same paragraphs."""
    import docx

    def paragraphs(path: Path | None) -> list[str]:
        made = [p.text for p in docx.Document(_whole(path)).paragraphs]
        if ignore_case:
            made = [p.lower() for p in made]
        if delete_empty_lines:
            made = [p for p in made if p.strip()]
        return sorted(made) if ignore_order else made

    a, b = paragraphs(first), paragraphs(second)
    if content_only or ignore_blanks:
        one, other = (re.sub(r"\s+", " ", "\n".join(each)).strip() for each in (a, b))
        if content_only:
            return difflib.SequenceMatcher(a=one, b=other).ratio()
        return float(one == other)
    return float(a == b)


def compare_docx_tables(first: Path | None, second: Path | None) -> float:
    """Two documents hold the same tables."""
    import docx

    def tables(path: Path | None) -> list[Any]:
        return [[[cell.text.strip() for cell in row.cells] for row in table.rows]
                for table in docx.Document(_whole(path)).tables]
    return float(tables(first) == tables(second))


PPTX_PARTS = ("examine_number_of_slides", "examine_shape", "examine_text", "examine_note",
              "examine_font_name", "examine_font_size", "examine_font_bold", "examine_font_italic",
              "examine_font_underline", "examine_alignment")


def compare_pptx_files(first: Path | None, second: Path | None, **options: bool) -> float:
    """Two decks are the same in every part that is looked at; all are, unless switched off."""
    import pptx

    decks = [pptx.Presentation(_whole(path)) for path in (first, second)]
    looked = {part for part in PPTX_PARTS if options.get(part, True)}
    slides = [list(deck.slides) for deck in decks]
    if len(slides[0]) != len(slides[1]):
        return 0.0
    return float(all(_slide(a, looked) == _slide(b, looked)
                     for a, b in zip(*slides, strict=True)))


def _slide(slide: Any, looked: set[str]) -> Any:
    note = slide.notes_slide.notes_text_frame.text if slide.has_notes_slide else ""
    return [note.strip() if "examine_note" in looked else None,
            [_shape(shape, looked) for shape in slide.shapes]]


def _shape(shape: Any, looked: set[str]) -> Any:
    place = (shape.left, shape.top, shape.width, shape.height)
    made: list[Any] = [place if "examine_shape" in looked else None]
    if shape.has_text_frame:
        for paragraph in shape.text_frame.paragraphs:
            made.append(paragraph.alignment if "examine_alignment" in looked else None)
            made += [_run(run, looked) for run in paragraph.runs]
    return made


def _run(run: Any, looked: set[str]) -> Any:
    parts = {"examine_text": run.text, "examine_font_name": run.font.name,
             "examine_font_size": run.font.size, "examine_font_bold": bool(run.font.bold),
             "examine_font_italic": bool(run.font.italic),
             "examine_font_underline": bool(run.font.underline)}
    return [value for name, value in parts.items() if name in looked]


def compare_pdfs(first: Any, second: Any) -> float:
    """How alike the words of two PDF files are."""
    from pypdf import PdfReader

    def words(path: Path | None) -> list[str]:
        pages = PdfReader(_whole(path)).pages
        return " ".join(page.extract_text() for page in list(pages)[:200]).split()

    pairs = list(zip(first, second, strict=True)) if isinstance(first, list) else [(first, second)]
    ratios = [difflib.SequenceMatcher(a=words(a), b=words(b)).ratio() for a, b in pairs]
    return sum(ratios) / len(ratios)


METRICS: dict[str, Callable[..., float]] = {f.__name__: f for f in (
    compare_table, compare_docx_files, compare_docx_tables, compare_pptx_files, compare_pdfs)}
OPTIONS: dict[str, tuple[str, ...]] = {
    "compare_table": ("rules",), "compare_pptx_files": PPTX_PARTS,
    "compare_docx_files": ("ignore_blanks", "ignore_case", "ignore_order", "content_only",
                           "delete_empty_lines"),
}
