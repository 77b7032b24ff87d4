"""Inside the sandbox: a Python interpreter that keeps its variables from one call to the next.

    python3 -I interpreter.py serve SOCKET              stays
    python3 -I interpreter.py run SOCKET SECONDS        code on stdin, what it prints on stdout

Owns: running code, printing the value of a last expression, interrupting what takes too long.
Does not own: limits of memory, processes, output (the sandbox). Standard library only, from 3.9.

The caller's stdout travels to the interpreter as a descriptor: what the code and its children print
goes straight to the caller, and the sandbox bounds it.
"""

import ast
import contextlib
import fcntl
import io
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from typing import Any

MAX_CODE = 1 << 20
GRACE_S = 2.0
"""after an interrupt; then the interpreter is killed"""
LOST = 75
"""exit code of `run`: the interpreter is gone, and the variables with it"""
LATE, KILLED, FAILED = 74, 73, 1


# --- the interpreter ------------------------------------------------------------------------------

def serve(path: str) -> None:
    """Take code, one piece at a time, until somebody kills this process."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1)
    if os.fork():
        os._exit(0)  # whoever asked for this may connect now; the child stays
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    names: dict[str, Any] = {"__name__": "__main__"}
    me = os.getpid()
    while True:
        connection, _ = server.accept()
        with connection:
            answer(connection, names)
            if os.getpid() != me:
                os._exit(0)  # a child that the code forked and left running


def answer(connection: socket.socket, names: dict[str, Any]) -> None:
    """Run one piece of code and say how it ended."""
    head, descriptors, _, _ = socket.recv_fds(connection, 8, 1)
    code = receive(connection, int.from_bytes(head, "big")).decode("utf-8", "replace")
    say_to(descriptors[0])
    try:
        connection.sendall(str(os.getpid()).encode().ljust(16))
        ended = b"o" if run_code(code, names) else b"e"
        with contextlib.suppress(Exception):  # the code may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        connection.sendall(ended)
    except OSError:
        pass  # the caller is gone
    say_to(os.open(os.devnull, os.O_WRONLY))


def say_to(descriptor: int) -> None:
    """Make it the standard output and error, whatever the code before did to those."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)  # it may be 1 or 2 itself
    os.close(descriptor)
    for number in (1, 2):
        os.dup2(high, number)
    os.close(high)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), encoding="utf-8",
                         errors="backslashreplace", write_through=True)
        for number in (1, 2)
    )


def run_code(code: str, names: dict[str, Any]) -> bool:
    """Run the code; print the value of a last expression, or what went wrong."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tree = ast.parse(code, "<code>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), names)
            if value is not None:
                print(repr(value))
        return True
    except KeyboardInterrupt:
        return False
    except SystemExit as error:
        return not error.code
    except BaseException as error:
        print(trace(error), end="")
        return False
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def trace(error: BaseException) -> str:
    """The traceback without this program's own frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := connection.recv(min(size - len(data), 1 << 16))):
        data += part
    return bytes(data)


# --- the caller -----------------------------------------------------------------------------------

def run(path: str, seconds: float) -> int:
    """Send the code on stdin to the interpreter; return an exit code that says how it ended."""
    code = sys.stdin.buffer.read(MAX_CODE)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.settimeout(seconds)
            connection.connect(path)
            socket.send_fds(connection, [len(code).to_bytes(8, "big")], [1])
            connection.sendall(code)
            pid = int(receive(connection, 16))
        except (OSError, ValueError):
            return LOST
        return wait(connection, pid)


def wait(connection: socket.socket, pid: int) -> int:
    ends = {b"o": 0, b"e": FAILED, b"": LOST}
    try:
        return ends[connection.recv(1)]
    except TimeoutError:
        pass
    except OSError:
        return LOST
    with gone():
        os.kill(pid, signal.SIGINT)
    try:
        connection.settimeout(GRACE_S)
        return LATE if connection.recv(1) else LOST
    except OSError:
        with gone():
            os.kill(pid, signal.SIGKILL)
        return KILLED


@contextlib.contextmanager
def gone() -> Iterator[None]:
    with contextlib.suppress(ProcessLookupError):
        yield


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(run(sys.argv[2], float(sys.argv[3])))
