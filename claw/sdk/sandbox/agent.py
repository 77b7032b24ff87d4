"""The program that is process 1 of a sandbox. It runs inside, alone: the standard library only.

Owns: running one command after another, their deadlines, their whole process trees, and the bounds
of their output. Ends, and with it the container, when its input closes: that is the leash.
Does not own: anything of claw. Its text is sent through the input, to any image that has Python 3.7
or newer; so it is no part of the command line that `ps` shows.

Untrusted commands run beside it, so it gives itself a user id that nobody else has and keeps just
enough capabilities to start, and to kill, processes of other users. Process 1 cannot be killed from
inside its container, another user cannot trace it, and so nobody else writes to its output.

Each command has a keeper: a process that adopts whatever the command orphans (it is a "subreaper"),
so that its descendants are the command's whole tree, also those that called setsid.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import time
from typing import Any, NoReturn

HELLO = b"CLAW-WARM\n"
REQUEST = struct.Struct(">II")
"""bytes of the JSON header, bytes of stdin"""
ANSWER = struct.Struct(">III")
"""bytes of the JSON header, of stdout, of stderr"""
AGENT_UID = 64999
CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "FSETID": 4, "KILL": 5,
    "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "LINUX_IMMUTABLE": 9, "NET_BIND_SERVICE": 10,
    "NET_BROADCAST": 11, "NET_ADMIN": 12, "NET_RAW": 13, "IPC_LOCK": 14, "IPC_OWNER": 15,
    "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_CHROOT": 18, "SYS_PTRACE": 19, "SYS_PACCT": 20,
    "SYS_ADMIN": 21, "SYS_BOOT": 22, "SYS_NICE": 23, "SYS_RESOURCE": 24, "SYS_TIME": 25,
    "SYS_TTY_CONFIG": 26, "MKNOD": 27, "LEASE": 28, "AUDIT_WRITE": 29, "AUDIT_CONTROL": 30,
    "SETFCAP": 31,
}
OWN = ("KILL", "SETGID", "SETUID", "SETPCAP")
"""what the agent itself needs"""
LAST_CAPABILITY = 63
PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 4, 8, 24, 36
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
CHUNK = 1 << 16
KILL_S = 5.0
"""how long a tree may take to die"""

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> int:
    return int(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


# --- users and rights ---------------------------------------------------------------------------

def hold_only(names: tuple[str, ...]) -> None:
    """Make `names` the permitted and effective capabilities of this process."""
    bits = 0
    for name in names:
        bits |= 1 << CAPABILITIES[name]
    header = struct.pack("Ii", 0x20080522, 0)
    data = struct.pack("IIIIII", bits, bits, 0, 0, 0, 0)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def hide(settings: Any) -> None:
    """Become a user that no command runs as, with the few rights that are needed."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getuid() == 0 and settings["can_switch"]:
        prctl(PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(AGENT_UID, AGENT_UID, AGENT_UID)
        os.setresuid(AGENT_UID, AGENT_UID, AGENT_UID)
        hold_only(OWN + tuple(settings["capabilities"]))
    prctl(PR_SET_DUMPABLE, 0)


class Person:
    """Who a command runs as, from `1000`, `1000:1000` or a name."""

    def __init__(self, words: str) -> None:
        import grp
        import pwd

        name, _, group = words.partition(":")
        entry = None
        with contextlib.suppress(KeyError):
            entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        if entry is None and not name.isdigit():
            raise OSError(0, f"the image has no user {name!r}")
        self.uid = entry.pw_uid if entry else int(name)
        self.gid = entry.pw_gid if entry else self.uid
        if group:
            try:
                self.gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
            except KeyError:
                raise OSError(0, f"the image has no group {group!r}") from None
        self.groups = os.getgrouplist(entry.pw_name, self.gid) if entry else [self.gid]
        self.name = entry.pw_name if entry else str(self.uid)
        home = entry.pw_dir if entry else ""
        self.home = home if os.path.isdir(home) else "/tmp"


people: dict[str, Person] = {}


def person(words: str) -> Person:
    if words not in people:
        people[words] = Person(words)
    return people[words]


def become(who: Person, capabilities: list[str]) -> None:
    """Leave the agent's rights behind, for good."""
    kept = {CAPABILITIES[name] for name in capabilities}
    for number in range(LAST_CAPABILITY + 1):
        if number not in kept and prctl(PR_CAPBSET_DROP, number) != 0:
            break  # past the kernel's last one
    os.setgroups(who.groups)
    os.setresgid(who.gid, who.gid, who.gid)
    os.setresuid(who.uid, who.uid, who.uid)


# --- process trees ------------------------------------------------------------------------------

def living_descendants() -> list[int]:
    """The processes below this one, zombies left out."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(name))
        if state in (b"Z", b"X"):
            zombies.add(int(name))
    found = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return [pid for pid in found if pid not in zombies]


def reap() -> dict[int, int]:
    """The statuses of the children that have ended."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def kill_tree() -> bool:
    """Kill everything below this process; False when something does not die."""
    end = time.monotonic() + KILL_S
    while time.monotonic() < end:
        found = living_descendants()
        if not found:
            reap()
            return True
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.001)
    return False


# --- one command ----------------------------------------------------------------------------------

class Kept:
    """Head and tail of a stream, at most `limit` bytes of it."""

    def __init__(self, limit: int) -> None:
        self.for_head = (limit + 1) // 2
        self.for_tail = limit - self.for_head
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.for_head - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > 2 * self.for_tail + CHUNK:
            self._cut()

    def _cut(self) -> None:
        del self.tail[: len(self.tail) - self.for_tail]

    def left_out(self) -> int:
        if len(self.tail) > self.for_tail:
            self._cut()
        return self.total - len(self.head) - len(self.tail)


def oom_kills() -> int:
    """How often the memory limit has killed in this container."""
    for path in OOM_COUNTERS:
        try:
            with open(path) as file:
                words = file.read().split()
        except OSError:
            continue
        if "oom_kill" in words:
            return int(words[words.index("oom_kill") + 1])
    return 0


def shell() -> str:
    """The image's bash, or what it has instead."""
    return next((p for p in ("/bin/bash", "/usr/bin/bash") if os.access(p, os.X_OK)), "/bin/sh")


def start(request: Any, stdin: int, stdout: int, stderr: int, settings: Any) -> NoReturn:
    """In the new process: become the command."""
    code, what = 126, "user"
    try:
        for signum in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.setsid()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.closerange(3, 256)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # rather this than the agent
        who = person(request["user"])
        if settings["can_switch"]:
            become(who, settings["capabilities"])
        what = "cwd"
        os.chdir(request["cwd"])
        env = {**os.environ, "HOME": who.home, "USER": who.name, "LOGNAME": who.name,
               "PWD": request["cwd"], **request["env"]}
        argv = request["argv"] or [shell(), "-c", request["shell"]]
        what = argv[0]
        code = 127
        os.umask(0o022)
        os.execvpe(what, argv, env)
    except OSError as error:
        if code == 127 and not isinstance(error, FileNotFoundError):
            code = 126
        text = f"{what}: {error.strerror}\n".encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            os.write(2, text)
    os._exit(code)


class Keeper:
    """Runs one command, says what became of it, and stays while something of it lives."""

    def __init__(self, request: Any, body: bytes, settings: Any) -> None:
        self.request, self.body, self.settings = request, memoryview(body), settings
        self.kept: dict[int, Kept] = {}
        self.stdin = -1
        self.main = -1
        self.status: int | None = None
        self.poll = select.poll()

    def run(self, report: int) -> NoReturn:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.wake, wake_up = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_up)
        began, killed_before = time.monotonic(), oom_kills()
        out, err = self.begin()
        in_time = self.watch(began + self.request["timeout_s"])
        is_dead = True if in_time else kill_tree()
        self.drain()
        header = {
            "exit": exit_code(self.status) if in_time else None, "timed_out": not in_time,
            "oom": oom_kills() > killed_before, "seconds": time.monotonic() - began,
            "left_out": [self.kept[out].left_out(), self.kept[err].left_out()],
            "stuck": not is_dead,
        }
        send_answer(report, header, self.kept[out], self.kept[err])
        os.close(report)
        self.linger()
        os._exit(0)

    def begin(self) -> tuple[int, int]:
        """Start the command; return where its output is read."""
        out, out_w = os.pipe2(os.O_CLOEXEC)
        err, err_w = os.pipe2(os.O_CLOEXEC)
        if self.body:
            in_r, self.stdin = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.stdin, False)
            self.poll.register(self.stdin, select.POLLOUT)
        else:
            in_r = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self.main = os.fork()
        if self.main == 0:
            start(self.request, in_r, out_w, err_w, self.settings)
        for fd in (in_r, out_w, err_w):
            os.close(fd)
        for fd in (out, err):
            os.set_blocking(fd, False)
            self.kept[fd] = Kept(self.request["max_output"])
            self.poll.register(fd, select.POLLIN)
        self.poll.register(self.wake, select.POLLIN)
        return out, err

    def watch(self, end: float) -> bool:
        """Move bytes until the command ends; False when its deadline came first."""
        while self.status is None:
            left = end - time.monotonic()
            if left <= 0:
                return False
            for fd, _ in self.poll.poll(left * 1000):
                self.move(fd)
        return True

    def move(self, fd: int) -> bool:
        """Do what one descriptor is ready for; False when there was nothing."""
        if fd == self.wake:
            with contextlib.suppress(BlockingIOError):
                os.read(fd, CHUNK)
            self.status = reap().get(self.main, self.status)
            return True
        if fd == self.stdin:
            return self.feed()
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.forget(fd)
            return False
        self.kept[fd].add(data)
        return True

    def feed(self) -> bool:
        try:
            self.body = self.body[os.write(self.stdin, self.body[:CHUNK]):]
        except BlockingIOError:
            return False
        except OSError:  # nobody reads it any more
            self.body = self.body[:0]
        if not self.body:
            self.forget(self.stdin)
            self.stdin = -1
        return True

    def forget(self, fd: int) -> None:
        self.poll.unregister(fd)
        os.close(fd)

    def drain(self) -> None:
        """Take what is in the pipes already; what a daemon says later is not the command's."""
        for fd in self.kept:
            for _ in range(1 << 5):
                try:
                    if not self.move(fd):
                        break
                except OSError:  # closed before
                    break

    def linger(self) -> None:
        """Reap, and read to nowhere, until nothing of the command is left."""
        for kept in self.kept.values():
            kept.for_head = kept.for_tail = 0
            kept.head = kept.tail = bytearray()
        self.status = None
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                return
            for fd, _ in self.poll.poll(60_000):
                self.move(fd)


def exit_code(status: int | None) -> int | None:
    if status is None:
        return None
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# --- the wire -------------------------------------------------------------------------------------

def write_all(fd: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def send_answer(fd: int, header: Any, out: Kept | None = None, err: Kept | None = None) -> None:
    raw = json.dumps(header).encode()
    sizes = [len(k.head) + len(k.tail) if k else 0 for k in (out, err)]
    write_all(fd, ANSWER.pack(len(raw), *sizes) + raw)
    for kept in (out, err):
        if kept:
            write_all(fd, kept.head)
            write_all(fd, kept.tail)


class Agent:
    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.end = time.monotonic() + settings["lifetime_s"]
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)

    def left_ms(self) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            os._exit(0)
        return left * 1000

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes of the next request; the end of the input ends the container."""
        data = bytearray()
        while len(data) < count:
            if not self.poll.poll(self.left_ms()):
                continue
            more = os.read(0, min(count - len(data), 1 << 20))
            if not more:
                os._exit(0)
            data += more
        return bytes(data)

    def serve(self) -> NoReturn:
        write_all(1, HELLO)
        while True:
            size, body = REQUEST.unpack(self.read(REQUEST.size))
            request = json.loads(self.read(size))
            self.answer(request, self.read(body))

    def answer(self, request: Any, body: bytes) -> None:
        if request["op"] == "sweep":
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)  # process 1 is spared
            send_answer(1, {})
            return
        report, for_keeper = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except OSError as error:
            os.close(report)
            os.close(for_keeper)
            send_answer(1, {"no_process": error.strerror})
            return
        if pid == 0:
            os.close(report)
            self.become_keeper(request, body, for_keeper)
        os.close(for_keeper)
        self.forward(report)

    def become_keeper(self, request: Any, body: bytes, report: int) -> NoReturn:
        try:
            nowhere = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1):
                os.dup2(nowhere, fd)
            Keeper(request, body, self.settings).run(report)
        except OSError as error:
            with contextlib.suppress(OSError):
                send_answer(report, {"no_process": error.strerror})
        os._exit(1)

    def forward(self, report: int) -> None:
        """Send on what the keeper says, whole; say so if it died first."""
        answer = bytearray()
        poll = select.poll()
        poll.register(report, select.POLLIN)
        poll.register(0, 0)  # only whether it was hung up
        while True:
            ready = dict(poll.poll(self.left_ms()))
            if 0 in ready:
                os._exit(0)
            if report not in ready:
                continue
            data = os.read(report, 1 << 20)
            if not data:
                break
            answer += data
        os.close(report)
        if answer:
            write_all(1, answer)
        else:
            send_answer(1, {"lost": True})


def make_workdir(path: str, user: str) -> None:
    """Make the working directory of an image that has none, and give it to the user."""
    with contextlib.suppress(OSError):
        if not os.path.isdir(path):
            os.makedirs(path)
            who = person(user)
            os.chown(path, who.uid, who.gid)


def main(settings: Any) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps what ends here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.update(settings["env"])
    if settings["can_switch"]:
        make_workdir(settings["workdir"], settings["user"])
    hide(settings)
    Agent(settings).serve()

