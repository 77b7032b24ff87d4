"""A virtual machine that runs OSWorld's server: people's existing ones, over its HTTP routes.

Owns: the client of those routes as a `Machine`, and who of several runs uses which machine.
Does not own: starting and reverting machines; whoever gives one out does that.

A lease is a lock on a file, which the kernel gives back when its owner dies: nobody has to notice.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from claw.sdk.sandbox import Ran, SandboxError

from . import tree
from .actions import WAIT, Action
from .machine import Ended, Failed, Window
from .spaces.gui_source import source_of

LEASE_S = 3600.0
"""how long an episode waits for a machine to come free"""
MAX_BODY = 64 << 20
PRELUDE = "import pyautogui, time; pyautogui.FAILSAFE = False; "
PASTE = (PRELUDE + "import pyperclip; pyperclip.copy({text!r}); time.sleep(0.2); "
         "pyautogui.hotkey('ctrl', 'v')")


class Vm:
    """The `Machine` behind an address."""

    is_remote = True

    def __init__(self, address: str, *, timeout_s: float = 60.0, lease: IO[str] | None = None,
                 transport: Any = None) -> None:
        import httpx

        self.ended: list[Ended] = []
        self._address, self._lease, self._timeout_s = address.rstrip("/"), lease, timeout_s
        self._http = httpx.Client(base_url=self._address, timeout=timeout_s, transport=transport)
        try:
            said = self._json("POST", "/screen_size")
            self.size = (int(said["width"]), int(said["height"]))
        except BaseException:
            self.close()
            raise

    def _call(self, method: str, route: str, **body: Any) -> Any:
        import httpx

        try:
            with self._http.stream(method, route, **body) as answer:
                data = bytearray()
                for piece in answer.iter_bytes():
                    data += piece
                    if len(data) > MAX_BODY:
                        raise SandboxError("a virtual machine sends too much", found=route)
                return answer.status_code, bytes(data)
        except httpx.HTTPError as error:
            raise SandboxError(f"the virtual machine at {self._address} does not answer",
                               found=f"{route}: {type(error).__name__}") from error

    def _data(self, method: str, route: str, **body: Any) -> bytes:
        status, data = self._call(method, route, **body)
        if status != 200:
            raise Failed(f"{route} answered {status}: {data[:300].decode('utf-8', 'replace')}")
        return bytes(data)

    def _json(self, method: str, route: str, **body: Any) -> Any:
        data = self._data(method, route, **body)
        try:
            return json.loads(data)
        except ValueError as error:
            raise Failed(f"{route} answered no JSON: {data[:120]!r}") from error

    # --- seeing -------------------------------------------------------------------------------

    def screenshot(self) -> bytes:
        return self._data("GET", "/screenshot")

    def nodes(self) -> list[tree.Node]:
        return tree.of_xml(str(self._json("GET", "/accessibility").get("AT") or ""))

    def windows(self) -> list[Window]:
        """Return what the tree calls frames: the server has no list of windows."""
        made = []
        for app in self.nodes():
            for node in app.children:
                if node.role in ("frame", "dialog", "window"):
                    made.append(Window(0, node.name, (app.name,), node.box or (0, 0, 0, 0),
                                       "active" in node.states))
        return made

    def settle(self, still_s: float = 0.25, limit_s: float = 2.0) -> bool:
        """Wait until two screenshots are the same."""
        end, last = time.monotonic() + limit_s, b""
        while (now := self.screenshot()) != last:
            if time.monotonic() > end:
                return False
            last = now
            time.sleep(still_s)
        return True

    # --- acting -------------------------------------------------------------------------------

    def do(self, action: Action) -> None:
        """Have the server do one action; a text that its keyboard has not is pasted."""
        if action.is_end:
            return
        if action.kind == WAIT:
            time.sleep(action.args.get("seconds", 1.0))
            return
        text = action.args.get("text", "")
        source = PASTE.format(text=text) if not text.isascii() else PRELUDE + source_of(action)
        self._execute(["python", "-c", source], shell=False)

    def _execute(self, command: str | Sequence[str], *, shell: bool) -> dict[str, Any]:
        said = self._json("POST", "/execute", json={
            "command": command if isinstance(command, str) else list(command), "shell": shell})
        if said.get("status") == "error":
            raise Failed(str(said.get("message"))[:300])
        return dict(said)

    def launch(self, argv: Sequence[str]) -> None:
        self._data("POST", "/setup/launch", json={"command": list(argv), "shell": False})

    def open(self, path: str) -> None:
        self._data("POST", "/setup/open_file", json={"path": path})

    def activate(self, window: Window) -> None:
        self._data("POST", "/setup/activate_window",
                   json={"window_name": window.title, "strict": True, "by_class": False})

    def close_window(self, window: Window) -> None:
        self._data("POST", "/setup/close_window",
                   json={"window_name": window.title, "strict": True, "by_class": False})

    # --- files and commands ---------------------------------------------------------------------

    def run(self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
            env: Mapping[str, str] = {}) -> Ran:
        """Run a command; the server knows neither input nor variables of it."""
        if stdin or env:
            raise SandboxError("a virtual machine's server takes no input and no variables")
        began = time.monotonic()
        said = self._execute(command, shell=isinstance(command, str))
        return Ran(int(said.get("returncode") or 0), str(said.get("output") or "").encode(),
                   str(said.get("error") or "").encode(), time.monotonic() - began)

    def read(self, path: str, *, max_bytes: int = 16 << 20) -> bytes | None:
        status, data = self._call("POST", "/file", data={"file_path": path})
        if status == 404:
            return None
        if status != 200:
            raise Failed(f"/file answered {status} for {path}")
        if len(data) > max_bytes:
            raise SandboxError("a file of a virtual machine is too large", found=path)
        return bytes(data)

    def write(self, path: str, data: bytes) -> None:
        self._data("POST", "/setup/upload", data={"file_path": path},
                   files={"file_data": (Path(path).name, data)})

    def close(self) -> None:
        """Let go of the machine; twice is fine."""
        self._http.close()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()


def leased(addresses: Sequence[str], *, timeout_s: float, wait_s: float = LEASE_S) -> Vm:
    """Return a machine that nobody on this computer uses; wait for one."""
    end = time.monotonic() + wait_s
    while True:
        for address in addresses:
            if (lease := take(address)) is not None:
                try:
                    return Vm(address, timeout_s=timeout_s, lease=lease)
                except BaseException:
                    lease.close()
                    raise
        if time.monotonic() > end:
            raise SandboxError("no virtual machine came free in time",
                               found=f"all of {', '.join(addresses)} are in use")
        time.sleep(0.2)


def take(address: str) -> IO[str] | None:
    """Return a lock on an address, None when somebody alive has it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "claw" / "machines"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:24]
    file = (folder / name).open("a+")
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    file.close()
    return None
