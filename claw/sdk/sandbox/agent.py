"""The program that is process 1 of a sandbox. It runs inside, alone: the standard library only.

Owns: running one command after another, their deadlines, their whole process trees, and the bounds
of their output. Ends, and with it the container, when its input closes: that is the leash.
Does not own: anything of claw. Its text is sent through the input, to any image that has Python 3.8
or newer; so it is no part of the command line that `ps` shows.

Untrusted commands run beside it, so it gives itself a user id that nobody else has and keeps just
enough capabilities to start, and to kill, processes of other users. Process 1 cannot be killed from
inside its container, another user cannot trace it, and so nobody else writes to its output.

Commands are started by a keeper: a process that adopts whatever its command orphans (it is a
"subreaper"), so that its descendants are the command's whole tree, also those that called setsid.
A keeper whose command left nothing takes the next one; else it stays with what is left, and another
takes its place. Forking this program is most of what a command could cost, so commands are started
by posix_spawn, which copies no memory, in a thread that takes on the command's user.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
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
ANSWER = struct.Struct(">?III")
"""whether the keeper is free again; bytes of the JSON header, of stdout, of stderr"""
AGENT_UID = 64999
LAST_UID = (1 << 32) - 1
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
SYSTEM_CALLS = {
    "x86_64": {"setgroups": 116, "setresuid": 117, "setresgid": 119},
    "aarch64": {"setgroups": 159, "setresuid": 147, "setresgid": 149},
}
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
SIGNALS = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
"""what Python ignores or handles, and commands must not inherit so"""
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
    """Become a user that no command runs as, with the few rights that are needed.

    The bounding set, which limits only what started programs may have, is emptied first.
    """
    if not settings["can_switch"]:
        prctl(PR_SET_DUMPABLE, 0)  # commands have this user too: they must not trace it
        return
    kept = {CAPABILITIES[name] for name in settings["capabilities"]}
    for number in range(LAST_CAPABILITY + 1):
        if number not in kept and prctl(PR_CAPBSET_DROP, number) != 0:
            break  # past the kernel's last one
    prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(AGENT_UID, AGENT_UID, AGENT_UID)
    os.setresuid(AGENT_UID, AGENT_UID, AGENT_UID)
    hold_only(OWN + tuple(settings["capabilities"]))
    prctl(PR_SET_DUMPABLE, 1)


def take_on(who: Person) -> None:
    """Make this thread, not its process, act as `who`: the C library would change every thread."""
    groups = (ctypes.c_uint32 * len(who.groups))(*who.groups)
    gid, uid = ctypes.c_long(who.gid), ctypes.c_long(who.uid)
    calls: dict[str, tuple[Any, ...]] = {
        "setgroups": (ctypes.c_long(len(groups)), groups),
        "setresgid": (gid, gid, gid), "setresuid": (uid, uid, uid),
    }
    for name, words in calls.items():
        number = SYSTEM_CALLS[os.uname().machine][name]
        if libc.syscall(ctypes.c_long(number), *words) != 0:
            raise NotStarted(126, f"{name}: {os.strerror(ctypes.get_errno())}")


class NotStarted(Exception):
    """Why a command could not be, as a shell would say it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Person:
    """Who a command runs as, from `1000`, `1000:1000` or a name."""

    def __init__(self, words: str) -> None:
        import grp
        import pwd

        name, _, group = words.partition(":")
        entry = None
        with contextlib.suppress(KeyError, OverflowError):
            entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        if entry is None and not name.isdecimal():
            raise NotStarted(126, f"the image has no user {name!r}")
        self.uid = entry.pw_uid if entry else int(name)
        self.gid = entry.pw_gid if entry else self.uid
        if group:
            try:
                self.gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
            except KeyError:
                raise NotStarted(126, f"the image has no group {group!r}") from None
        if self.uid == AGENT_UID or max(self.uid, self.gid) >= LAST_UID:
            raise NotStarted(126, f"no command can run as {words}")
        self.groups = os.getgrouplist(entry.pw_name, self.gid) if entry else [self.gid]
        self.name = entry.pw_name if entry else str(self.uid)
        home = entry.pw_dir if entry else ""
        self.home = home if os.path.isdir(home) else "/tmp"


people: dict[str, Person] = {}


def person(words: str) -> Person:
    if words not in people:
        people[words] = Person(words)
    return people[words]


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


def find(name: str, path: str) -> str:
    """Return the program that `name` means on `path`."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        found = f"{folder or '.'}/{name}"
        if os.access(found, os.X_OK) and not os.path.isdir(found):
            return found
    raise NotStarted(127, f"{name}: command not found")


class Launcher:
    """Starts commands as whom they ask for."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.oom_score = -1
        if settings["can_switch"]:
            with contextlib.suppress(OSError):
                self.oom_score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)

    def start(self, request: Any, stdin: int, stdout: int, stderr: int) -> int:
        """Return the process id; NotStarted says what was wrong with the request."""
        streams = (stdin, stdout, stderr)
        try:
            who = person(request["user"])
            if not self.settings["can_switch"]:
                return self._start(request, who, streams)
            return self._start_as(request, who, streams)
        except (ValueError, OverflowError) as error:  # a NUL, a number past every user
            raise NotStarted(126, str(error)) from None

    def _start_as(self, request: Any, who: Person, streams: tuple[int, int, int]) -> int:
        """Start it in a thread that takes on the user, alone of this process, and ends.

        Whether a process may be signalled is asked of its first thread, which stays the agent's.
        """
        made: list[Any] = []
        is_over = _thread.allocate_lock()
        is_over.acquire()

        def start() -> None:
            try:
                take_on(who)
                made.append(self._start(request, who, streams))
            except Exception as error:  # raised below, by who asked
                made.append(error)
            finally:
                is_over.release()

        self._score(b"500")  # rather the command than its keeper or the agent
        try:
            _thread.start_new_thread(start, ())
            is_over.acquire()
        except RuntimeError as error:  # a thread counts as a process
            raise OSError(errno.EAGAIN, str(error)) from None
        finally:
            self._score(b"0")
        if isinstance(made[0], Exception):
            raise made[0]
        return int(made[0])

    def _score(self, value: bytes) -> None:
        if self.oom_score >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self.oom_score, value, 0)

    def _start(self, request: Any, who: Person, streams: tuple[int, int, int]) -> int:
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            raise NotStarted(126, f"{request['cwd']}: {error.strerror}") from None
        env = {**os.environ, "HOME": who.home, "USER": who.name, "LOGNAME": who.name,
               "PWD": request["cwd"], **request["env"]}
        argv = request["argv"] or [shell(), "-c", request["shell"]]
        program = find(argv[0], env.get("PATH", os.defpath))
        actions = [(os.POSIX_SPAWN_DUP2, fd, i) for i, fd in enumerate(streams)]
        try:
            return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True,
                                  setsigmask=(), setsigdef=SIGNALS)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise
            code = 127 if error.errno == errno.ENOENT else 126
            raise NotStarted(code, f"{argv[0]}: {error.strerror}") from None


class Keeper:
    """Runs a command, says what became of it, and stays while something of it lives."""

    def __init__(self, settings: Any) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.wake, wake_up = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        self.launcher = Launcher(settings)

    def serve(self, orders: int, report: int) -> NoReturn:
        """Carry out one request after another, until something stays behind."""
        while True:
            sizes = REQUEST.unpack(read_exactly(orders, REQUEST.size))
            raw, body = (read_exactly(orders, size) for size in sizes)
            self.status: int | None = None
            self.main = -1
            self.poll = select.poll()
            self.poll.register(self.wake, select.POLLIN)
            self.kept: dict[int, Kept] = {}
            if not self.run(json.loads(raw), body, report):
                os.close(orders)
                os.close(report)
                self.linger()
                os._exit(0)
            for fd in tuple(self.kept):
                self.forget(fd)

    def run(self, request: Any, body: bytes, report: int) -> bool:
        """Run one command and answer; True when nothing of it is left."""
        began, killed_before = time.monotonic(), oom_kills()
        limit = request["max_output"]
        self.out, stdout = os.pipe2(os.O_CLOEXEC)
        self.err, stderr = os.pipe2(os.O_CLOEXEC)
        stdin, self.stdin = os.pipe2(os.O_CLOEXEC)
        out, err = Kept(limit), Kept(limit)
        is_dead = in_time = True
        try:
            self.main = self.launcher.start(request, stdin, stdout, stderr)
        except NotStarted as problem:
            self.status = problem.code << 8
            err.add(f"{problem}\n".encode("utf-8", "replace"))
        except OSError as error:  # no process is left
            self.status = 126 << 8
            err.add(f"no process could be started: {error.strerror}\n".encode())
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        for fd, kept in ((self.out, out), (self.err, err)):
            os.set_blocking(fd, False)
            self.kept[fd] = kept
            self.poll.register(fd, select.POLLIN)
        self.give(body)
        if self.status is None:
            in_time = self.watch(began + request["timeout_s"])
            is_dead = in_time or kill_tree()
            self.drain()
        is_free = not self.has_children()
        header = {
            "exit": exit_code(self.status) if in_time else None, "timed_out": not in_time,
            "oom": oom_kills() > killed_before, "seconds": time.monotonic() - began,
            "left_out": [out.left_out(), err.left_out()], "stuck": not is_dead,
        }
        send_answer(report, header, out, err, is_free=is_free)
        return is_free

    def give(self, body: bytes) -> None:
        """Have the command's input written while it runs."""
        self.body = memoryview(body)
        if body:
            os.set_blocking(self.stdin, False)
            self.poll.register(self.stdin, select.POLLOUT)
        else:
            os.close(self.stdin)
            self.stdin = -1

    def has_children(self) -> bool:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

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
        self.kept.pop(fd, None)

    def drain(self) -> None:
        """Take what is in the pipes already; what a daemon says later is not the command's."""
        for fd in tuple(self.kept):
            for _ in range(1 << 5):
                if not self.move(fd):
                    break
        if self.stdin >= 0:
            self.forget(self.stdin)
            self.stdin = -1

    def linger(self) -> None:
        """Reap, and read to nowhere, until nothing of the command is left."""
        for kept in self.kept.values():
            kept.for_head = kept.for_tail = 0
            kept.head = kept.tail = bytearray()
        while self.has_children():
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


def read_exactly(fd: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = os.read(fd, min(count - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def send_answer(fd: int, header: Any, out: Kept | None = None, err: Kept | None = None, *,
                is_free: bool = False) -> None:
    raw = json.dumps(header).encode()
    sizes = [len(k.head) + len(k.tail) if k else 0 for k in (out, err)]
    data = bytearray(ANSWER.pack(is_free, len(raw), *sizes) + raw)
    for kept in (out, err):
        if kept:
            data += kept.head
            data += kept.tail
    write_all(fd, data)


class Agent:
    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.end = time.monotonic() + settings["lifetime_s"]
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.ready: tuple[int, int] | None = None
        """orders and report of the keeper that waits"""

    def left_ms(self) -> float:
        left: float = self.end - time.monotonic()
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
            with contextlib.suppress(OSError):  # then the request says so
                self.prepare()
            sizes = self.read(REQUEST.size)
            size, body = REQUEST.unpack(sizes)
            raw = self.read(size)
            if json.loads(raw)["op"] == "sweep":
                self.sweep()
            else:
                self.answer(sizes + raw, self.read(body))

    def sweep(self) -> None:
        end = time.monotonic() + KILL_S
        while living_descendants() and time.monotonic() < end:
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)  # process 1 is spared
            time.sleep(0.001)
        self.drop()
        send_answer(1, {})

    def prepare(self) -> None:
        """Have a keeper that waits for the next request."""
        if self.ready:
            poll = select.poll()
            poll.register(self.ready[1], select.POLLIN)
            if not poll.poll(0):
                return
            self.drop()  # it was killed
        orders, for_agent = os.pipe2(os.O_CLOEXEC)
        report, for_keeper = os.pipe2(os.O_CLOEXEC)
        try:
            if os.fork() == 0:
                for fd in (for_agent, report):
                    os.close(fd)
                self.become_keeper(orders, for_keeper)
            self.ready = for_agent, report
        except OSError:
            for fd in (for_agent, report):
                os.close(fd)
            raise
        finally:
            for fd in (orders, for_keeper):
                os.close(fd)

    def drop(self) -> None:
        """Let the waiting keeper go, if there is one: without a request it ends."""
        for fd in self.ready or ():
            os.close(fd)
        self.ready = None

    def become_keeper(self, orders: int, report: int) -> NoReturn:
        nowhere = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1):
            os.dup2(nowhere, fd)
        os.close(nowhere)
        with contextlib.suppress(OSError, EOFError):
            Keeper(self.settings).serve(orders, report)
        os._exit(1)

    def answer(self, head: bytes, body: bytes) -> None:
        try:
            self.prepare()
            assert self.ready
        except OSError as error:
            send_answer(1, {"no_process": error.strerror})
            return
        with contextlib.suppress(OSError):  # a dead keeper's report says so
            write_all(self.ready[0], head)
            write_all(self.ready[0], body)
        answer = self.hear(self.ready[1])
        if not answer or not answer[0]:  # it died, or stays with what its command left
            self.drop()
        if answer:
            write_all(1, answer)
        else:
            send_answer(1, {"lost": True})

    def hear(self, report: int) -> bytearray:
        """The keeper's whole answer; nothing if it died first."""
        answer = bytearray()
        left = ANSWER.size
        poll = select.poll()
        poll.register(report, select.POLLIN)
        poll.register(0, 0)  # only whether it was hung up
        while left:
            ready = dict(poll.poll(self.left_ms()))
            if 0 in ready:
                os._exit(0)
            if report not in ready:
                continue
            data = os.read(report, min(left, 1 << 20))
            if not data:
                return bytearray()
            answer += data
            left -= len(data)
            if len(answer) == ANSWER.size:
                left = sum(ANSWER.unpack(answer)[1:])
        return answer


def make_workdir(path: str, user: str) -> None:
    """Make the working directory of an image that has none, and give it to the user."""
    with contextlib.suppress(OSError, NotStarted):
        if not os.path.isdir(path):
            os.makedirs(path)
            who = person(user)
            os.chown(path, who.uid, who.gid)


def main(settings: Any) -> NoReturn:
    if not hasattr(os, "posix_spawn") or os.uname().machine not in SYSTEM_CALLS:
        os.execv("/bin/sh", ["sh", "-c", settings["leash"]])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps what ends here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.update(settings["env"])
    if settings["can_switch"]:
        make_workdir(settings["workdir"], settings["user"])
    hide(settings)
    os.umask(0o022)
    Agent(settings).serve()

