"""OSWorld's in-VM server as a double: its HTTP routes over a real desktop in a container.

Owns: the routes that `claw_env_gui.remote` speaks, with the requests and answers of that server.
Its /execute reads `python -c "import pyautogui; ..."` as the desktop's own actions, where a virtual
machine would run it.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from claw_env_gui.actions import Action
from claw_env_gui.desktop import Desktop
from claw_env_gui.osworld.setup import window_named
from claw_env_gui.spaces import gui_source
from claw_env_gui.tree import Node

ROLE = re.compile(r"[^a-z]+")
MAX_BODY = 16 << 20


class Server:
    """`with Server(desktop) as address`."""

    def __init__(self, desktop: Desktop) -> None:
        handler = type("Handler", (_Handler,), {"desktop": desktop, "lock": threading.Lock()})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    desktop: Desktop
    lock: threading.Lock

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(min(MAX_BODY, int(self.headers.get("content-length") or 0))))

    def _answer(self, body: bytes) -> None:
        with self.lock:
            try:
                status, data = self._route(body)
            except Exception as error:
                status, data = 500, {"status": "error", "message": repr(error)}
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _route(self, body: bytes) -> tuple[int, Any]:
        desk = self.desktop
        if self.path == "/screenshot":
            return 200, desk.screenshot()
        if self.path == "/accessibility":
            return 200, {"AT": _xml(desk.nodes())}
        if self.path == "/screen_size":
            return 200, dict(zip(("width", "height"), desk.size, strict=True))
        if self.path == "/file":
            data = desk.read(parse_qs(body.decode())["file_path"][0])
            return (404, {"error": "File not found"}) if data is None else (200, data)
        if self.path == "/setup/upload":
            path, data = _form(self.headers["content-type"], body)
            desk.write(path, data)
            return 200, b"File Uploaded"
        said = json.loads(body)
        if self.path == "/execute":
            return 200, self._execute(said)
        if self.path == "/setup/launch":
            desk.launch(said["command"])
            return 200, b"launched"
        window = window_named(desk, str(said.get("window_name")),
                              is_strict=said.get("strict", False))
        if window is None:
            return 404, b"no such window"
        (desk.activate if self.path == "/setup/activate_window" else desk.close_window)(window)
        return 200, b"done"

    def _execute(self, said: dict[str, Any]) -> dict[str, Any]:
        command = said["command"]
        if command[0] == "python" and "pyautogui" in command[2]:
            source = command[2].replace("pyautogui.FAILSAFE = False; ", "")
            if pasted := re.search(r"import pyperclip; pyperclip.copy\((.*?)\); time", source):
                import ast

                self.desktop.do(Action("write", {"text": ast.literal_eval(pasted[1])}))
            else:
                for action in gui_source.parse(source):
                    self.desktop.do(action)
            return {"status": "success", "output": "", "error": "", "returncode": 0}
        ran = self.desktop.run(command)
        return {"status": "success", "output": ran.stdout.decode(), "error": ran.stderr.decode(),
                "returncode": ran.exit_code}


def _form(kind: str, body: bytes) -> tuple[str, bytes]:
    """Read the two parts of an upload."""
    from email import message_from_bytes

    parts = message_from_bytes(b"content-type: " + kind.encode() + b"\r\n\r\n" + body).get_payload()
    found = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True)
             for p in parts}
    return found["file_path"].decode(), found["file_data"]


def _xml(apps: list[Node]) -> str:
    """The tree as the virtual machine's server writes it."""
    from xml.etree import ElementTree

    def element(node: Node) -> ElementTree.Element:
        tag = ROLE.sub("-", node.role.lower()) or "unknown"
        made = ElementTree.Element(tag, {"name": node.name})
        for state in node.states:
            made.set("{https://accessibility.ubuntu.example.org/ns/state}" + state, "true")
        if node.box:
            at, space = node.box, "{https://accessibility.ubuntu.example.org/ns/component}"
            made.set(space + "screencoord", str(at[:2]))
            made.set(space + "size", str(at[2:]))
        made.text = node.text
        made.extend(element(child) for child in node.children)
        return made

    root = ElementTree.Element("desktop-frame")
    root.extend(element(app) for app in apps)
    return ElementTree.tostring(root, encoding="unicode")
