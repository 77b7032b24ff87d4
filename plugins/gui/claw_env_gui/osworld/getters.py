"""Getters: what is there after the policy has acted, and what should be.

Owns: one function for each kind of getter, and the place on this machine where files are put to be
compared. A file that is not there is None.
Does not own: comparing (`metrics`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import Machine
from . import files, setup
from .task import DesktopTask

MAX_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Scene:
    """Where getters look."""

    machine: Machine
    task: DesktopTask
    folder: Path
    """of this machine; one episode's own"""
    step_s: float
    cache: Path | None = None


Getter = Callable[[Scene, Mapping[str, Any]], Any]


def get(scene: Scene, spec: Mapping[str, Any] | None) -> Any:
    """Return what a getter's object asks for."""
    return None if spec is None else GETTERS[str(spec["type"])](scene, spec)


def _many(scene: Scene, spec: Mapping[str, Any],
          one: Callable[[Scene, str, str], Path | None]) -> Any:
    """Return a path; with `multi`, those paths of `path` that `gives` counts."""
    paths, names = spec.get("path"), spec.get("dest")
    if not spec.get("multi"):
        return one(scene, str(paths), str(names or Path(str(paths)).name))
    found = [one(scene, str(p), str(n)) for p, n in zip(paths or (), names or (), strict=True)]
    gives = spec.get("gives", [0])
    given = [found[i] for i in gives]
    return given[0] if len(given) == 1 else given


def _place(scene: Scene, role: str, name: str) -> Path:
    """Return where a file is put; its name may not leave the folder."""
    folder = scene.folder / role
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (Path(name).name or "file")


def _vm_file(scene: Scene, spec: Mapping[str, Any]) -> Any:
    def one(scene: Scene, path: str, name: str) -> Path | None:
        data = scene.machine.read(path)
        if data is None:
            return None
        place = _place(scene, "there", name)
        place.write_bytes(data)
        return place
    return _many(scene, spec, one)


def _cloud_file(scene: Scene, spec: Mapping[str, Any]) -> Any:
    def one(scene: Scene, url: str, name: str) -> Path:
        place = _place(scene, "expected", name)
        place.write_bytes(files.content(scene.task, url, scene.cache))
        return place
    return _many(scene, spec, one)


def _cache_file(scene: Scene, spec: Mapping[str, Any]) -> Path | None:
    """A file that another getter of the same task has brought."""
    for role in ("there", "expected"):
        path = scene.folder / role / Path(str(spec.get("path"))).name
        if path.is_file():
            return path
    return None


def _content(scene: Scene, spec: Mapping[str, Any]) -> Any:
    """The last line of a text file, as OSWorld's `last_row`, or all of it."""
    data = scene.machine.read(str(spec.get("path")), max_bytes=MAX_TEXT)
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    if spec.get("file_content") == "last_row":
        rows = text.strip().splitlines()
        return rows[-1].split(",") if rows else []
    return text


def _command(scene: Scene, spec: Mapping[str, Any], stream: str) -> str | None:
    ran = scene.machine.run(setup.command_of(spec, scene.machine), timeout_s=scene.step_s)
    if ran.timed_out:
        return None
    data: bytes = getattr(ran, stream)
    return data.decode("utf-8", "replace")


def _window_size(scene: Scene, spec: Mapping[str, Any]) -> dict[str, int] | None:
    window = setup.window_named(scene.machine, str(spec.get("app_class_name") or ""))
    return None if window is None else {"width": window.box[2], "height": window.box[3]}


def _listing(scene: Scene, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The folder as OSWorld tells it: type, name, children."""
    path = str(spec.get("path"))
    ran = scene.machine.run(["find", path, "-printf", "%y\\t%P\\0"], timeout_s=scene.step_s)
    if ran.exit_code != 0:
        return None
    root: dict[str, Any] = {"type": "directory", "name": Path(path).name, "children": []}
    folders = {"": root}
    for entry in ran.stdout.decode("utf-8", "replace").split("\0"):
        kind, _, name = entry.partition("\t")
        if not name:
            continue
        parent, _, last = name.rpartition("/")
        made: dict[str, Any] = {"type": "directory" if kind == "d" else "file", "name": last}
        if kind == "d":
            made["children"] = []
            folders[name] = made
        folders[parent]["children"].append(made)
    return root


def _address(scene: Scene, spec: Mapping[str, Any]) -> str | None:
    """What the address bar of the browser says, with the scheme that it leaves out."""
    for app in scene.machine.nodes():
        for node in app.walk():
            if node.name == "Address and search bar" and node.text:
                prefix = str(spec.get("goto_prefix", "https://"))
                return node.text if "://" in node.text else prefix + node.text
    return None


GETTERS: dict[str, Getter] = {
    "vm_file": _vm_file, "cloud_file": _cloud_file, "cache_file": _cache_file,
    "content_from_vm_file": _content,
    "vm_command_line": lambda scene, spec: _command(scene, spec, "stdout"),
    "vm_command_error": lambda scene, spec: _command(scene, spec, "stderr"),
    "vm_screen_size": lambda scene, _: dict(
        zip(("width", "height"), scene.machine.size, strict=True)),
    "vm_window_size": _window_size, "list_directory": _listing,
    "rule": lambda _, spec: spec.get("rules"),
    "time_diff_range": lambda _, spec: spec.get("diff_range_in_minutes"),
    "accessibility_tree": lambda scene, _: scene.machine.nodes(),
    "active_url_from_accessTree": _address,
}
