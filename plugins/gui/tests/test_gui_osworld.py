"""OSWorld's JSON: read fully, refused by name where it cannot run, scored by its rules."""

import json
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from claw_env_gui import tree
from claw_env_gui.osworld import evaluate, support, task
from claw_env_gui.osworld.metrics import METRICS
from claw_env_gui.settings import GuiConfig
from claw_env_gui.tasks import of_path, of_split

from claw.sdk.formats.folder import FormatError
from claw.sdk.sandbox import Ran

TaskFile = Callable[..., Path]
RULE = {"type": "rule", "rules": {"expected": "1\n"}}
COMMAND = {"type": "vm_command_line", "command": "cat answer"}
CHROME = {
    # a row in the schema of OSWorld's chrome examples
    "id": "bb5e4c0d-f964-439c-97b6-bdb9747de3f4", "snapshot": "chrome",
    "instruction": "Can you make Bing the main search engine?",
    "source": "https://support.google.com/chrome/answer/95426",
    "config": [
        {"type": "launch", "parameters": {"command": [
            "google-chrome", "--remote-debugging-port=1337"]}},
        {"type": "launch", "parameters": {"command": [
            "socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]}}],
    "trajectory": "trajectories/", "related_apps": ["chrome"],
    "evaluator": {
        "postconfig": [{"type": "launch", "parameters": {"command": ["pkill", "chrome"]}},
                       {"type": "sleep", "parameters": {"seconds": 3}}],
        "func": "match_in_list", "result": {"type": "default_search_engine"},
        "expected": {"type": "rule", "rules": {"expected": ["Microsoft Bing", "Bing"]}}},
    "proxy": False,
}
CALC = {
    "id": "01b269ae-2111-4a07-81fd-3fcd711993b0", "snapshot": "libreoffice_calc",
    "instruction": "Fill all the blank cells with the value in the cell above it",
    "source": ["https://www.youtube.com/shorts/VrUzPTIwQ04"],
    "config": [
        {"type": "download", "parameters": {"files": [
            {"url": "https://host.example/Student_Level_Fill_Blank.xlsx",
             "path": "/home/user/Student_Level_Fill_Blank.xlsx"}]}},
        {"type": "open", "parameters": {"path": "/home/user/Student_Level_Fill_Blank.xlsx"}}],
    "trajectory": "trajectories/", "related_apps": ["os"],
    "evaluator": {
        "postconfig": [
            {"type": "activate_window", "parameters": {
                "window_name": "Student_Level_Fill_Blank.xlsx", "strict": True}},
            {"type": "execute", "parameters": {"command": [
                "python", "-c", "import pyautogui; import time; pyautogui.hotkey('ctrl', 's'); "
                "time.sleep(0.5);"]}}],
        "func": "compare_table",
        "result": {"type": "vm_file", "path": "/home/user/Student_Level_Fill_Blank.xlsx",
                   "dest": "Student_Level_Fill_Blank.xlsx"},
        "expected": {"type": "cloud_file", "path": "https://host.example/gold.xlsx",
                     "dest": "gold.xlsx"},
        "options": {"rules": [{"type": "sheet_print", "sheet_idx0": 0, "sheet_idx1": "EI0"}]}},
    "proxy": False, "possibility_of_env_change": "low", "fixed_ip": False,
}


def written(folder: Path, raw: dict[str, Any]) -> Path:
    path = folder / f"{raw['id']}.json"
    path.write_text(json.dumps(raw))
    return path


def test_every_field_of_a_task_is_read(tmp_path: Path) -> None:
    read = task.read(written(tmp_path, CALC))
    assert (read.id, read.snapshot, read.related_apps) == (CALC["id"], "libreoffice_calc", ("os",))
    assert [s.kind for s in read.config] == ["download", "open"]
    assert [s.kind for s in read.postconfig] == ["activate_window", "execute"]
    [check] = read.checks
    assert (check.func, read.conj, read.change) == ("compare_table", "and", "low")
    assert not read.needs_proxy and not read.needs_fixed_ip
    assert check.result and check.result["dest"] == "Student_Level_Fill_Blank.xlsx"
    [rule] = check.options["rules"]
    assert rule == {"type": "sheet_print", "sheet_idx0": 0, "sheet_idx1": "EI0"}


def test_what_needs_a_missing_application_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as error:
        of_path(written(tmp_path, CHROME), GuiConfig())
    said = str(error.value)
    for part in ("related_apps 'chrome': Google Chrome", "launch 'google-chrome'",
                 "launch 'socat'", "result getter 'default_search_engine'", "plugin.gui.remote"):
        assert part in said


def test_files_of_the_network_come_from_a_cache_or_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, CALC)
    with pytest.raises(FormatError, match=r"download https://host.example/Student.*: a network"):
        of_path(path, GuiConfig())
    cache = tmp_path / "cache" / CALC["id"]
    cache.mkdir(parents=True)
    # as OSWorld names what it keeps: uuid5 of the address in the namespace of addresses
    kept = uuid.uuid5(uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8"), "https://host.example/gold.xlsx")
    (cache / f"{kept}_gold.xlsx").write_bytes(b"g")
    (cache / "Student_Level_Fill_Blank.xlsx").write_bytes(b"s")
    [made] = of_path(path, GuiConfig(cache=str(tmp_path / "cache"))) or []
    assert made.id == CALC["id"]


@pytest.mark.parametrize("change, why", [
    ({"evaluator": {"func": "check_thunderbird_prefs"}}, "metric 'check_thunderbird_prefs'"),
    ({"evaluator": {"func": "exact_match", "options": {"fuzzy": 1}}}, "option 'fuzzy'"),
    ({"config": [{"type": "googledrive", "parameters": {}}]}, "an account at Google"),
    ({"config": [{"type": "teleport", "parameters": {}}]}, "no such step"),
    ({"config": [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://a.b"]}}]},
     "a network"),
    ({"evaluator": {"func": "exact_match", "result": {"type": "info_from_website"}}}, "websites"),
    ({"proxy": True}, "proxy"), ({"fixed_ip": True}, "fixed_ip"),
    ({"config": [{"type": "download", "parameters": {"files": [
        {"url": "/etc/passwd", "path": "/tmp/x"}]}}]}, "beside the task"),
])
def test_each_unsupported_part_is_named(
    task_file: TaskFile, change: dict[str, Any], why: str
) -> None:
    path = task_file(**({"result": COMMAND, "expected": RULE} | change))
    with pytest.raises(FormatError, match=why):
        of_path(path, GuiConfig())


@pytest.mark.parametrize("evaluator, why", [
    ({"func": []}, "must name a metric"), ({"func": None}, "must name a metric"),
    ({"func": ["a", "b"], "result": [COMMAND]}, "one entry for each"),
    ({"func": "a", "conj": "xor"}, "neither and nor or"),
    ({"func": "a", "result": "x"}, "objects with a type"),
    ({"func": "a", "postconfig": [{}]}, "has no type"),
])
def test_a_malformed_task_says_what_is_wrong(
    task_file: TaskFile, evaluator: dict[str, Any], why: str
) -> None:
    with pytest.raises(FormatError, match=why):
        task.read(task_file(evaluator={"result": None, "expected": None} | evaluator))


def test_an_index_names_its_tasks(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "libreoffice_calc"
    folder.mkdir(parents=True)
    written(folder, CALC)
    index = tmp_path / "test_all.json"
    index.write_text(json.dumps({"libreoffice_calc": [CALC["id"]]}))
    assert [p.stem for p in task.find(tmp_path)] == [CALC["id"]]
    index.write_text(json.dumps({"libreoffice_calc": [CALC["id"], "gone"]}))
    with pytest.raises(FormatError, match=r"gone\.json"):
        task.find(index)


def test_train_and_eval_share_no_task_or_a_warning_says_so(
    caplog: pytest.LogCaptureFixture
) -> None:
    both = [{t.id for t in of_split(GuiConfig(eval_share=0.4), s)} for s in ("train", "eval")]
    assert both[0] and both[1] and not both[0] & both[1]
    assert not caplog.records
    same = [{t.id for t in of_split(GuiConfig(eval_share=0), s)} for s in ("train", "eval")]
    assert same[0] == same[1] == both[0] | both[1]
    assert "what is measured was trained on" in caplog.text


# --- scoring ----------------------------------------------------------------------------------

class Answers:
    """A machine on which each command prints what was said beforehand."""

    size, is_remote = (100, 100), False

    def __init__(self, said: dict[str, str]) -> None:
        self.said, self.ended, self.ran = said, [], []  # type: ignore[var-annotated]

    def run(self, command: Any, **_: Any) -> Ran:
        key = command if isinstance(command, str) else " ".join(command)
        self.ran.append(key)
        return Ran(0, self.said[key].encode(), b"", 0.0)

    def read(self, path: str, **_: Any) -> bytes | None:
        return self.said[path].encode() if path in self.said else None


def check(word: str) -> dict[str, Any]:
    return {"type": "vm_command_line", "command": word}


def score(path: Path, said: dict[str, str], last: str = "done") -> float:
    return evaluate.score(Answers(said), task.read(path), last).value  # type: ignore[arg-type]


@pytest.mark.parametrize("conj, answers, value, ran", [
    ("and", "111", 1.0, 3), ("and", "101", 0.0, 2), ("and", "011", 0.0, 1),
    ("or", "000", 0.0, 3), ("or", "010", 1.0, 2),
])
def test_and_stops_at_the_first_0_and_or_at_the_first_1(
    task_file: TaskFile, conj: str, answers: str, value: float, ran: int
) -> None:
    path = task_file(evaluator={
        "func": ["exact_match"] * 3, "conj": conj, "result": [check(w) for w in "abc"],
        "expected": [{"type": "rule", "rules": {"expected": "1"}}] * 3})
    machine = Answers(dict(zip("abc", answers, strict=True)))
    assert evaluate.score(machine, task.read(path), "done").value == value  # type: ignore[arg-type]
    assert len(machine.ran) == ran


def test_a_part_may_count_for_part_of_the_score(task_file: TaskFile) -> None:
    path = task_file(evaluator={
        "func": ["exact_match", "diff_text_file"],
        "result": [check("a"), {"type": "vm_file", "path": "/x", "dest": "x"}],
        "expected": [RULE, {"type": "vm_file", "path": "/y", "dest": "y"}]})
    assert score(path, {"a": "1\n", "/x": "1\n2\n", "/y": "1\n3\n"}) == pytest.approx(0.75)


def test_only_fail_solves_what_is_infeasible_and_fails_all_else(task_file: TaskFile) -> None:
    path = task_file(name="no", func="infeasible")
    assert [score(path, {}, last) for last in ("fail", "done", "click", "")] == [1, 0, 0, 0]
    path = task_file(name="yes", result=COMMAND, expected=RULE)
    assert [score(path, {"cat answer": "1\n"}, last) for last in ("done", "", "fail")] == [1, 1, 0]


def test_a_missing_file_is_0_and_so_is_one_that_is_no_such_file(task_file: TaskFile) -> None:
    path = task_file(evaluator={
        "func": "compare_table", "options": {"rules": [{"type": "sheet_name"}]},
        "result": {"type": "vm_file", "path": "/x.xlsx", "dest": "x.xlsx"},
        "expected": {"type": "vm_file", "path": "/x.xlsx", "dest": "x.xlsx"}})
    assert score(path, {}) == 0.0
    assert score(path, {"/x.xlsx": "no workbook"}) == 0.0


# --- metrics: each with what is right and what is nearly right ----------------------------------

def text(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("name, right, wrong, rules", [
    ("exact_match", "a", "a ", {"expected": "a"}),
    ("check_include_exclude", "x 17 y", "x 17 y bad", {"include": ["17"], "exclude": ["bad"]}),
    ("is_in_list", ["a", "b"], ["b"], {"expected": "a"}),
    ("match_in_list", "b", "c", {"expected": ["a", "b"]}),
    ("compare_config", "k=1", "k=2", {"expected": "k=1"}),
    ("is_expected_url_pattern_match", "file:///a/b.html", "file:///a/c.html",
     {"expected": [r"b\.html$"]}),
    ("check_direct_json_object", '{"a": 1, "b": 2}', '{"a": 2}', {"expected": {"a": 1}}),
    ("check_direct_json_object", {"a": "x, y"}, {"a": "x"},
     {"expected": {"a": ["y", "z"]}, "expect_in_result": True}),
    ("check_moved_jpgs", {"children": [{"name": "b"}, {"name": "a"}]},
     {"children": [{"name": "a"}]}, {"expected": ["a", "b"]}),
])
def test_metrics_of_values(name: str, right: Any, wrong: Any, rules: dict[str, Any]) -> None:
    assert (METRICS[name](right, rules), METRICS[name](wrong, rules)) == (1.0, 0.0)


def test_a_time_zone_and_a_literal() -> None:
    assert METRICS["is_utc_0"]("Time zone: Etc/UTC (UTC, +0000)") == 1.0
    assert METRICS["is_utc_0"]("Time zone: Europe/Oslo (CET, +0100)") == 0.0
    literal = METRICS["literal_match"]
    assert literal("A", "a", ignore_case=True) == 1.0 and literal("A", "a") == 0.0
    assert literal(["b", "a"], ["a", "b"], type="list") == 1.0
    assert literal("ab", ["a"], type="list") == 0.0


@pytest.mark.parametrize("name, right, wrong, rules", [
    ("check_list", "one\ntwo 2\n", "one\n", {"expect": [r"two \d"], "unexpect": ["three"]}),
    ("file_contains", "a b", "a", {"expected": ["a", "b"]}),
    ("check_line_number", "00:00:01 a\n00:00:02 b\nc", "00:00:01 a", {"expected": "2"}),
    ("check_json", '{"a": {"b": [1, 5]}}', '{"a": {"b": [1, 2]}}',
     {"expect": [{"key": ["a", "b", 1], "method": "gt", "ref": 4}]}),
    ("check_csv", "n,v\na,1\n", "n,v\na,2\n", {"expect": [{"n": "a", "v": "1"}]}),
])
def test_metrics_of_one_file(
    tmp_path: Path, name: str, right: str, wrong: str, rules: dict[str, Any]
) -> None:
    metric = METRICS[name]
    assert metric(text(tmp_path, "right", right), rules) == 1.0
    assert metric(text(tmp_path, "wrong", wrong), rules) == 0.0
    with pytest.raises(FileNotFoundError):
        metric(None, rules)


@pytest.mark.parametrize("name, gold, right, wrong, options", [
    ("compare_text_file", "a\nb", "a\nb", "a\nB", {}),
    ("compare_text_file", "a b", " A\n b ", "a c", {"ignore_blanks": True, "ignore_case": True}),
    ("compare_csv", "a,b\n1,2\n", "a,b\r\n1,2\n", "a,b\n2,1\n", {}),
    ("compare_python_pure_text", "x = 1\n", "# said\nx=1", "x = 2", {}),
])
def test_metrics_of_two_files(
    tmp_path: Path, name: str, gold: str, right: str, wrong: str, options: dict[str, Any]
) -> None:
    metric, expected = METRICS[name], text(tmp_path, "gold", gold)
    assert metric(text(tmp_path, "right", right), expected, **options) == 1.0
    assert metric(text(tmp_path, "wrong", wrong), expected, **options) == 0.0


def zipped(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_archives_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    gold = zipped(tmp_path / "gold.zip", a="1", b="2")
    assert METRICS["compare_zip_files"](zipped(tmp_path / "r.zip", b="2", a="1"), gold) == 1.0
    assert METRICS["compare_archive"](zipped(tmp_path / "w.zip", a="1", b="3"), gold) == 0.0


def book(path: Path, rows: list[list[Any]], title: str = "S") -> Path:
    made = openpyxl.Workbook()
    made.active.title = title
    for row in rows:
        made.active.append(row)
    made.save(path)
    return path


def test_tables_are_compared_by_their_rules(tmp_path: Path) -> None:
    gold = book(tmp_path / "gold.xlsx", [["a", 1.0], ["b", None]])
    right = book(tmp_path / "right.xlsx", [["a", 1], ["b"]])
    wrong = book(tmp_path / "wrong.xlsx", [["a", 2], ["b"]], "T")
    table = METRICS["compare_table"]
    pair = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
    for kind in ("sheet_data", "sheet_name"):
        assert table(right, gold, rules=[{"type": kind, **pair}]) == 1.0
        assert table(wrong, gold, rules=[{"type": kind, **pair}]) == 0.0
    cell = {"type": "check_cell", "sheet_idx": 0, "coordinate": "B1",
            "props": {"value": {"method": "eq", "ref": 1}}}
    assert table(right, rules=[cell]) == 1.0 and table(wrong, rules=[cell]) == 0.0


def document(path: Path, *paragraphs: str) -> Path:
    made = docx.Document()
    for each in paragraphs:
        made.add_paragraph(each)
    table = made.add_table(1, 1)
    table.cell(0, 0).text = paragraphs[0]
    made.save(str(path))
    return path


def deck(path: Path, title: str, *, bold: bool = False) -> Path:
    made = pptx.Presentation()
    shape = made.slides.add_slide(made.slide_layouts[5]).shapes.title
    shape.text_frame.text = title
    shape.text_frame.paragraphs[0].runs[0].font.bold = bold
    made.save(str(path))
    return path


def test_documents_and_decks_are_compared(tmp_path: Path) -> None:
    gold, right = (document(tmp_path / f"{n}.docx", "a", "b") for n in ("g", "r"))
    wrong = document(tmp_path / "w.docx", "a", "c")
    other = document(tmp_path / "o.docx", "x", "b")
    words, tables = METRICS["compare_docx_files"], METRICS["compare_docx_tables"]
    assert (words(right, gold), words(wrong, gold)) == (1.0, 0.0)
    assert (tables(right, gold), tables(other, gold)) == (1.0, 0.0)
    slides = METRICS["compare_pptx_files"]
    first, bold = deck(tmp_path / "g.pptx", "a"), deck(tmp_path / "b.pptx", "a", bold=True)
    assert slides(deck(tmp_path / "r.pptx", "a"), first) == 1.0
    assert slides(deck(tmp_path / "w.pptx", "b"), first) == 0.0
    assert (slides(bold, first), slides(bold, first, examine_font_bold=False)) == (0.0, 1.0)


def pdf(path: Path, words: str) -> Path:
    """One page with a line of text, written by hand."""
    stream = f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET".encode()
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    data, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%strailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    path.write_bytes(data + end % (table, len(data)))
    return path


def test_pdf_files_are_compared_by_their_words(tmp_path: Path) -> None:
    gold, same = (pdf(tmp_path / f"{n}.pdf", "one two three four") for n in "gs")
    half = pdf(tmp_path / "h.pdf", "one two")
    assert METRICS["compare_pdfs"](same, gold) == 1.0
    assert METRICS["compare_pdfs"](half, gold) == pytest.approx(2 / 3)
    assert METRICS["compare_pdfs"]([same, half], [gold, gold]) == pytest.approx(5 / 6)


def test_pictures_are_compared_pixel_by_pixel(tmp_path: Path) -> None:
    from PIL import Image

    paths = []
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        Image.new("RGB", (4, 3), colour).save(tmp_path / f"{name}.png")
        paths.append(tmp_path / f"{name}.png")
    assert METRICS["compare_image_list"]([paths[0]], [paths[1]]) == 1.0
    assert METRICS["compare_image_list"]([paths[0]], [paths[2]]) == 0.0
    assert METRICS["check_image_size"](paths[0], {"width": 4}) == 1.0
    assert METRICS["check_image_size"](paths[0], {"height": 4}) == 0.0


def test_at_least_twenty_metrics_are_there() -> None:
    assert len(METRICS) >= 30


# --- the tree -----------------------------------------------------------------------------------

XML = """<desktop-frame xmlns:st="uri:state" xmlns:cp="uri:component">
<application name="mousepad "><frame name="Note" st:active="true" st:showing="true"
 cp:screencoord="(10, 20)" cp:size="(100, 50)">
<push-button name="Save  " st:showing="true" st:enabled="true" cp:screencoord="(20, 30)"
 cp:size="(40, 10)"/>
<menu-item name="Hidden" cp:screencoord="(-2147483648, -2147483648)" cp:size="(1, 1)"
 st:showing="true"/>
<text st:showing="true" st:editable="true" cp:screencoord="(10, 40)" cp:size="(100, 30)">two
words</text></frame></application></desktop-frame>"""


def test_the_xml_of_a_virtual_machine_becomes_lines() -> None:
    assert tree.lines(tree.of_xml(XML), (200, 100)).splitlines() == [
        'frame "Note" at (60, 45)', 'push button "Save" at (40, 35)',
        "text text='two words' [editable] at (60, 55)"]
    assert tree.of_xml("<not") == []


def test_a_tree_is_bounded_and_says_what_it_leaves_out() -> None:
    child = {"role": "push button", "name": "x" * 200, "states": ["showing"], "box": [0, 0, 9, 9]}
    app = tree.of_desk({"role": "application", "children": [child] * 500})
    made = tree.lines([app], (100, 100), max_lines=20, max_chars=100_000).splitlines()
    assert len(made) == 21 and made[-1] == "[480 more left out]" and len(made[0]) < 130
    assert len(tree.lines([app], (100, 100), max_lines=400, max_chars=1000)) < 1100


def test_every_part_of_the_tables_of_support_is_done() -> None:
    from claw_env_gui.osworld.getters import GETTERS
    from claw_env_gui.osworld.setup import DO

    assert set(support.STEPS) == set(DO) and set(support.GETTERS) == set(GETTERS)
    assert not set(support.GETTERS) & set(support.REFUSED_GETTERS)


@pytest.mark.parametrize("change", [
    {"evaluator": {"func": "check_json", "expected": {"type": "rule", "rules": {
        "expect": [False]}}}},
    {"evaluator": {"func": "compare_table", "options": {"rules": [5]}}},
    {"config": [{"type": "download", "parameters": {"files": [5]}}]},
    {"config": [{"type": "download", "parameters": {"files": [{"url": "a" * 5000}]}}]},
    {"config": [{"type": "download", "parameters": {"files": [{"url": "a\0"}]}}]},
    {"config": [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["http://["]}}]},
    {"related_apps": 5},
])
def test_a_part_of_another_kind_is_refused_in_words(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        of_path(written(tmp_path, CALC | {"config": []} | change), GuiConfig())
