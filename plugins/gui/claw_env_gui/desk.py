"""The program that runs a desktop from inside its container: the libraries of the image only.

Owns: the X server, its window manager and panel, the applications started through it; screenshots,
the pointer, the keyboard, the clipboard, windows, the accessibility tree.
Does not own: anything of claw, or what an action means in some action space. Its text is sent
through the input of the program that loads it, so the image need not hold it.

It answers one request at a time: a JSON header and bytes each way, their lengths before them.
Whatever talks to an application's accessibility does so in a fork, which is killed at a deadline:
an application that hangs hangs nothing else, and no answer is a stale copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
import zlib
from typing import Any, NoReturn

FRAME = struct.Struct(">II")
"""bytes of the JSON header, bytes of the body"""
HELLO = b"DESK\n"
PR_SET_DUMPABLE = 4
MAX_PASTE = 1 << 20
MAX_TEXT = 20_000
"""characters typed by one action"""
STEP_S = 0.008
"""between the events of one gesture: applications look at their times"""
PASTE_S = 2.0
BUTTONS = {"left": 1, "middle": 2, "right": 3}
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
ROLES_WITHOUT_TEXT = ("password text",)
RUN = "/tmp/desk"


class Refused(Exception):
    """An action that cannot be done, in words for who asked."""


def read_exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = os.read(fd, min(count - len(data), 1 << 16))
        if not piece:
            os._exit(0)  # nobody is there any more
        data += piece
    return data


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


# --- the session ----------------------------------------------------------------------------------

class Session:
    """The X server and what belongs to it, as children of this process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.width, self.height = settings["size"]
        self.ended: list[dict[str, Any]] = []
        self.apps: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.own: dict[str, subprocess.Popen[bytes]] = {}
        self.commands = {
            "openbox": ["openbox"], "tint2": ["tint2", "-c", "/etc/claw/tint2rc"],
        }
        os.makedirs(RUN, mode=0o700, exist_ok=True)
        os.makedirs("/tmp/.X11-unix", mode=0o1777, exist_ok=True)
        os.environ.update({
            "DISPLAY": ":0", "XDG_RUNTIME_DIR": RUN, "GTK_MODULES": "gail:atk-bridge",
            "GSETTINGS_BACKEND": "memory", "ACCESSIBILITY_ENABLED": "1", "NO_AT_BRIDGE": "0",
            "LANG": "C.UTF-8", "XENVIRONMENT": "/etc/claw/Xresources", "HOME": settings["home"],
        })

    def start(self) -> None:
        read, write = os.pipe()
        self.own["Xvfb"] = subprocess.Popen(
            ["Xvfb", ":0", "-screen", "0", f"{self.width}x{self.height}x24", "-nolisten", "tcp",
             "-noreset", "-ac", "+extension", "RANDR", "-displayfd", str(write)],
            pass_fds=[write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        bus_read, bus_write = os.pipe()
        self.own["dbus"] = subprocess.Popen(
            ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--nosyslog",
             f"--print-address={bus_write}"], pass_fds=[bus_write], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        os.close(bus_write)
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = _line(bus_read, 15.0, "the message bus")
        _line(read, 15.0, "the X server")
        self.own["at-spi"] = self._spawn(
            ["/usr/libexec/at-spi-bus-launcher", "--launch-immediately"])
        for name in self.commands:
            self.own[name] = self._spawn(self.commands[name])
        self.starting = [self._spawn(argv) for argv in (
            ENABLE, ["xsetroot", "-solid", "#2e3440", "-cursor_name", "left_ptr"])]
        with open(f"{RUN}/env", "w") as file:
            file.write(json.dumps({k: os.environ[k] for k in (
                "DISPLAY", "XDG_RUNTIME_DIR", "GTK_MODULES", "GSETTINGS_BACKEND", "HOME", "LANG",
                "ACCESSIBILITY_ENABLED", "NO_AT_BRIDGE", "XENVIRONMENT", "DBUS_SESSION_BUS_ADDRESS",
            )}))

    def _spawn(self, argv: list[str], cwd: str = "") -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, cwd=cwd or None, start_new_session=True)

    def launch(self, argv: list[str], cwd: str) -> int:
        try:
            child = self._spawn(argv, cwd)
        except OSError as error:
            raise Refused(f"{argv[0]} cannot be started: {error.strerror}") from None
        self.apps.append((" ".join(argv)[:200], child))
        return child.pid

    def look_after(self) -> None:
        """Note applications that have ended, and bring back a window manager or panel that did."""
        still = []
        for name, child in self.apps:
            code = child.poll()
            if code is None:
                still.append((name, child))
            else:
                self.ended.append({"name": name, "code": code})
        self.apps = still
        for name, argv in self.commands.items():
            if self.own[name].poll() is not None:
                self.ended.append({"name": name, "code": self.own[name].returncode})
                self.own[name] = self._spawn(argv)
        if self.own["Xvfb"].poll() is not None:
            os._exit(3)  # there is no desktop any more

    def take_ended(self) -> list[dict[str, Any]]:
        ended, self.ended = self.ended, []
        return ended


def _line(fd: int, seconds: float, what: str) -> str:
    """Return the line that a starting program writes."""
    end, data = time.monotonic() + seconds, b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
        piece = os.read(fd, 4096) if ready else b""
        if not piece:
            raise SystemExit(f"{what} did not start")
        data += piece
    os.close(fd)
    return data.decode().strip()


# --- the screen, the pointer and the keyboard --------------------------------------------------

class Screen:
    """A connection to the X server."""

    def __init__(self) -> None:
        from Xlib import XK, X, display, error
        from Xlib.ext import xtest

        self.X, self.XK, self.xtest, self.XError = X, XK, xtest, error.XError
        XK.load_keysym_group("xf86")
        self.display = display.Display(":0")
        self.root = self.display.screen().root
        geometry = self.root.get_geometry()
        self.width, self.height = geometry.width, geometry.height
        self.keys = self._keys()
        self.held: set[int] = set()

    def _keys(self) -> dict[int, tuple[int, bool]]:
        """keysym -> (keycode, whether shift is needed), the first keycode of each."""
        info = self.display.display.info
        first, count = info.min_keycode, info.max_keycode - info.min_keycode + 1
        found: dict[int, tuple[int, bool]] = {}
        for level in (0, 1):
            for at, syms in enumerate(self.display.get_keyboard_mapping(first, count)):
                if len(syms) > level and syms[level]:
                    found.setdefault(syms[level], (first + at, bool(level)))
        return found

    def raw(self) -> bytes:
        image = self.root.get_image(0, 0, self.width, self.height, self.X.ZPixmap, 0xFFFFFFFF)
        data: bytes = image.data
        return data

    def picture(self) -> bytes:
        """The screen as PNG; its pointer is drawn, as the server's is no part of it."""
        from PIL import Image, ImageDraw

        size = (self.width, self.height)
        made = Image.frombuffer("RGB", size, self.raw(), "raw", "BGRX", 0, 1).copy()
        x, y = self.where()
        arrow = [(x, y), (x, y + 16), (x + 4, y + 12), (x + 7, y + 18), (x + 10, y + 17),
                 (x + 7, y + 11), (x + 12, y + 11)]
        ImageDraw.Draw(made).polygon(arrow, fill="white", outline="black")
        out = io.BytesIO()
        made.save(out, "PNG", compress_level=1)
        return out.getvalue()

    def where(self) -> tuple[int, int]:
        at = self.root.query_pointer()
        return int(at.root_x), int(at.root_y)

    def _fake(self, kind: int, detail: int = 0, x: int = 0, y: int = 0) -> None:
        self.xtest.fake_input(self.display, kind, detail, x=x, y=y)
        self.display.sync()

    def move(self, x: float, y: float) -> None:
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise Refused(f"({x:g}, {y:g}) is outside the screen of {self.width} x {self.height}")
        self._fake(self.X.MotionNotify, 0, int(x), int(y))

    def glide(self, x: float, y: float, steps: int) -> None:
        """Move in steps: a drag that jumps is none to many applications."""
        ox, oy = self.where()
        for i in range(1, steps + 1):
            self.move(ox + (x - ox) * i / steps, oy + (y - oy) * i / steps)
            time.sleep(STEP_S)

    def button(self, number: int, down: bool) -> None:
        self._fake(self.X.ButtonPress if down else self.X.ButtonRelease, number)

    def click(self, number: int, count: int) -> None:
        for _ in range(count):
            self.button(number, True)
            self.button(number, False)
            time.sleep(STEP_S)

    def code(self, name: str) -> tuple[int, bool]:
        sym = self.XK.string_to_keysym(name)
        if sym not in self.keys:
            raise Refused(f"this keyboard has no key {name!r}")
        return self.keys[sym]

    def key(self, code: int, down: bool) -> None:
        self._fake(self.X.KeyPress if down else self.X.KeyRelease, code)
        (self.held.add if down else self.held.discard)(code)

    def chord(self, names: list[str]) -> None:
        """Press keys in order and release them in reverse."""
        codes: list[int] = []
        for name in names:
            code, shifted = self.code(name)
            if shifted and not codes:
                codes.append(self.code("Shift_L")[0])
            codes.append(code)
        for code in codes:
            self.key(code, True)
        for code in reversed(codes):
            self.key(code, False)
        time.sleep(STEP_S)

    def write(self, text: str) -> None:
        """Type what the keyboard has; everything else goes through the clipboard."""
        for can_type, run in _runs(text, self._can_type):
            if can_type:
                for letter in run:
                    self._letter(letter)
            else:
                self.paste(run)

    def _can_type(self, letter: str) -> bool:
        return letter in "\n\t" or (" " <= letter <= "~" and ord(letter) in self.keys)

    def _letter(self, letter: str) -> None:
        names = {"\n": "Return", "\t": "Tab"}
        code, shifted = self.code(names[letter]) if letter in names else self.keys[ord(letter)]
        shift = self.code("Shift_L")[0]
        if shifted:
            self.key(shift, True)
        self.key(code, True)
        self.key(code, False)
        if shifted:
            self.key(shift, False)
        time.sleep(0.001)

    def paste(self, text: str) -> None:
        """Put text on both clipboards and press the key that pastes in editors and terminals."""
        data = text.encode("utf-8", "replace")
        if len(data) > MAX_PASTE:
            raise Refused(f"{len(data)} bytes are too much to paste; at most {MAX_PASTE}")
        for name in ("clipboard", "primary"):
            try:
                subprocess.run(["xclip", "-selection", name, "-in"], input=data, check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               timeout=PASTE_S)
            except (OSError, subprocess.SubprocessError) as error:
                raise Refused(f"the clipboard is not there: {type(error).__name__}") from None
        self.chord(["Shift_L", "Insert"])
        self.settle(0.15, PASTE_S)  # the application fetches the text when it gets to it

    def settle(self, still_s: float, limit_s: float) -> bool:
        """Wait until the screen has been still for so long; False when it never was."""
        end = time.monotonic() + limit_s
        last, since = zlib.crc32(self.raw()), time.monotonic()
        while time.monotonic() < end:
            time.sleep(0.03)
            now = zlib.crc32(self.raw())
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since >= still_s:
                return True
        return False

    # --- windows ----------------------------------------------------------------------------

    def _property(self, window: Any, name: str) -> Any:
        try:
            found = window.get_full_property(self.display.get_atom(name), self.X.AnyPropertyType)
        except self.XError:  # the window is gone
            return None
        return found.value if found else None

    def windows(self) -> list[dict[str, Any]]:
        """The windows of applications, the lowest first."""
        return [window for window in self.clients() if "Tint2" not in window["class"]]

    def clients(self) -> list[dict[str, Any]]:
        """All that the window manager knows of, the panel too."""
        active = self._property(self.root, "_NET_ACTIVE_WINDOW")
        made = []
        for id in self._property(self.root, "_NET_CLIENT_LIST_STACKING") or ():
            window = self.display.create_resource_object("window", int(id))
            try:
                area = window.get_geometry()
                at = window.translate_coords(self.root, 0, 0)
            except self.XError:  # the window is gone
                continue
            title = (self._property(window, "_NET_WM_NAME")
                     or self._property(window, "WM_NAME") or b"")
            kind = self._property(window, "WM_CLASS") or b""
            pid = self._property(window, "_NET_WM_PID")
            states = list(self._property(window, "_NET_WM_STATE") or ())
            hidden = self.display.get_atom("_NET_WM_STATE_HIDDEN") in states
            made.append({
                "id": int(id), "title": _text(title), "class": _text(kind).strip("\0").split("\0"),
                "pid": int(pid[0]) if pid is not None and len(pid) else 0,
                "box": [-at.x, -at.y, area.width, area.height], "hidden": hidden,
                "active": active is not None and len(active) > 0 and int(active[0]) == int(id),
            })
        return made

    def tell(self, id: int, what: str) -> None:
        """Ask the window manager to activate or close a window."""
        from Xlib.protocol import event

        window = self.display.create_resource_object("window", id)
        name = "_NET_ACTIVE_WINDOW" if what == "activate" else "_NET_CLOSE_WINDOW"
        data = [2 if what == "activate" else 0, 0, 0, 0, 0]
        said = event.ClientMessage(window=window, client_type=self.display.get_atom(name),
                                   data=(32, data))
        mask = self.X.SubstructureRedirectMask | self.X.SubstructureNotifyMask
        self.root.send_event(said, event_mask=mask)
        self.display.sync()

    def is_up(self) -> bool:
        """Whether the window manager and the panel are there."""
        if self._property(self.root, "_NET_SUPPORTING_WM_CHECK") is None:
            return False
        return any("Tint2" in window["class"] for window in self.clients())


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _runs(text: str, fits: Any) -> list[tuple[bool, str]]:
    """Cut a text into runs of letters that fit and that do not."""
    made: list[tuple[bool, str]] = []
    for letter in text:
        kind = fits(letter)
        if made and made[-1][0] == kind:
            made[-1] = (kind, made[-1][1] + letter)
        else:
            made.append((kind, letter))
    return made


# --- the accessibility tree ---------------------------------------------------------------------

def preload() -> None:
    """Load the library, so that a fork need not; nothing is connected by that."""
    import gi

    gi.require_version("Atspi", "2.0")
    from gi.repository import Atspi, Gio  # noqa: F401


ENABLE = [
    "dbus-send", "--session", "--print-reply", "--dest=org.a11y.Bus", "/org/a11y/bus",
    "org.freedesktop.DBus.Properties.Set", "string:org.a11y.Status", "string:IsEnabled",
    "variant:boolean:true",
]
"""says that somebody reads; Chromium asks when it starts"""


def in_fork(function: Any, limit_s: float) -> Any:
    """Return what `function` gives in a fork; None when it is not done in time, or dies."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            write_all(write, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(write)
    end, data = time.monotonic() + limit_s, b""
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, end - time.monotonic()))
        piece = os.read(read, 1 << 16) if ready else None
        if not piece:
            break
        data += piece
    os.close(read)
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with contextlib.suppress(ValueError):
        return json.loads(data)
    return None


class Tree:
    """Walks what applications say of themselves."""

    def __init__(self, max_nodes: int, limit_s: float) -> None:
        from gi.repository import Atspi

        self.Atspi = Atspi
        Atspi.set_timeout(800, 1500)
        self.left, self.end = max_nodes, time.monotonic() + limit_s
        self.is_cut = False

    def read(self) -> dict[str, Any]:
        desktop = self.Atspi.get_desktop(0)
        apps = []
        for i in range(desktop.get_child_count()):
            with contextlib.suppress(Exception):
                app = desktop.get_child_at_index(i)
                if app is not None and app.get_name() != "tint2":
                    apps.append({"role": "application", "name": app.get_name() or "",
                                 "children": self.below(app, 0)})
        return {"apps": apps, "cut": self.is_cut}

    def below(self, parent: Any, depth: int) -> list[dict[str, Any]]:
        made = []
        for i in range(min(parent.get_child_count(), 400)):
            if self.left <= 0 or time.monotonic() > self.end or depth > 40:
                self.is_cut = True
                break
            with contextlib.suppress(Exception):
                child = parent.get_child_at_index(i)
                node = self.node(child) if child is not None else None
                if node is not None:
                    self.left -= 1
                    node["children"] = self.below(child, depth + 1)
                    made.append(node)
        return made

    def node(self, it: Any) -> dict[str, Any] | None:
        states = it.get_state_set()
        kinds = self.Atspi.StateType
        # what is below something that does not show does not show either: closed menus, hidden tabs
        if not states.contains(kinds.SHOWING):
            return None
        names = [name for name in (
            "showing", "enabled", "focused", "checked", "selected", "editable", "expanded",
            "pressed", "modal", "active", "checkable", "multi_line",
        ) if states.contains(getattr(kinds, name.upper()))]
        node: dict[str, Any] = {"role": it.get_role_name(), "name": (it.get_name() or "")[:500],
                                "states": names}
        component = it.get_component_iface()
        if component is not None:
            area = component.get_extents(self.Atspi.CoordType.SCREEN)
            node["box"] = [area.x, area.y, area.width, area.height]
        if it.get_text_iface() is not None and node["role"] not in ROLES_WITHOUT_TEXT:
            count = self.Atspi.Text.get_character_count(it)
            node["text"] = self.Atspi.Text.get_text(it, 0, min(count, 4000))
        if it.get_value_iface() is not None:
            node["value"] = self.Atspi.Value.get_current_value(it)
        return node


# --- requests -------------------------------------------------------------------------------------

class Desk:
    """Does what the header of a request says."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.session = Session(settings)
        self.session.start()
        preload()  # while the others start
        self.screen = Screen()
        end = time.monotonic() + settings["start_s"]
        while not self.screen.is_up():
            self.session.look_after()
            if time.monotonic() > end:
                raise SystemExit("the window manager or the panel did not start")
            time.sleep(0.02)
        for child in self.session.starting:
            child.wait(settings["start_s"])

    def serve(self, source: int, sink: int) -> NoReturn:
        while True:
            sizes = FRAME.unpack(read_exactly(source, FRAME.size))
            header, _ = (read_exactly(source, size) for size in sizes)
            asked = json.loads(header)
            body = b""
            try:
                self.session.look_after()
                done = getattr(self, f"do_{asked.pop('op')}")(**asked)
                if isinstance(done, bytes):
                    body, said = done, {"ok": True}
                else:
                    said = {"ok": True, "value": done}
            except Refused as error:
                said = {"ok": False, "why": str(error)}
            except Exception as error:
                said = {"ok": False, "why": f"{type(error).__name__}: {error}"[:500]}
            said["ended"] = self.session.take_ended()
            raw = json.dumps(said).encode()
            write_all(sink, FRAME.pack(len(raw), len(body)) + raw + body)

    def do_picture(self) -> bytes:
        return self.screen.picture()

    def do_state(self) -> dict[str, Any]:
        return {"pointer": list(self.screen.where()), "windows": self.screen.windows()}

    def do_settle(self, still_s: float, limit_s: float) -> bool:
        return self.screen.settle(still_s, limit_s)

    def do_tree(self, max_nodes: int = 3000, limit_s: float = 5.0) -> Any:
        return in_fork(lambda: Tree(max_nodes, limit_s).read(), limit_s + 2.0)

    def do_launch(self, argv: list[str], cwd: str = "") -> int:
        return self.session.launch(argv, cwd)

    def do_window(self, id: int, what: str) -> None:
        self.screen.tell(id, what)

    def do_clipboard(self) -> str:
        try:
            ran = subprocess.run(["xclip", "-selection", "clipboard", "-out"], check=False,
                                 capture_output=True, timeout=PASTE_S)
        except subprocess.TimeoutExpired:
            return ""
        return ran.stdout[:MAX_PASTE].decode("utf-8", "replace")

    def do_move(self, x: float, y: float) -> None:
        self.screen.move(x, y)

    def do_click(self, x: float | None = None, y: float | None = None, button: str = "left",
                 count: int = 1, held: list[str] | None = None) -> None:
        codes = [self.screen.code(name)[0] for name in held or ()]
        if x is not None and y is not None:
            self.screen.move(x, y)
            time.sleep(STEP_S)
        for code in codes:
            self.screen.key(code, True)
        self.screen.click(BUTTONS[button], min(count, 5))
        for code in codes:
            self.screen.key(code, False)

    def do_button(self, down: bool, button: str = "left") -> None:
        self.screen.button(BUTTONS[button], down)

    def do_drag(self, x: float, y: float, button: str = "left") -> None:
        self.screen.button(BUTTONS[button], True)
        time.sleep(5 * STEP_S)
        self.screen.glide(x, y, 12)
        time.sleep(5 * STEP_S)
        self.screen.button(BUTTONS[button], False)

    def do_scroll(self, direction: str, count: int, x: float | None = None,
                  y: float | None = None) -> None:
        if x is not None and y is not None:
            self.screen.move(x, y)
        self.screen.click(WHEEL[direction], min(count, 100))

    def do_write(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise Refused(f"{len(text)} characters are too many for one action; {MAX_TEXT} at most")
        self.screen.write(text)

    def do_keys(self, names: list[str]) -> None:
        self.screen.chord(names)

    def do_key(self, name: str, down: bool) -> None:
        self.screen.key(self.screen.code(name)[0], down)


def main(settings: dict[str, Any]) -> None:
    """Bring up the desktop, say hello, serve."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # applications must not trace it
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    try:
        desk = Desk(settings)
    except SystemExit as error:
        print(error, file=sys.stderr)
        raise
    write_all(sink, HELLO)
    desk.serve(source, sink)
