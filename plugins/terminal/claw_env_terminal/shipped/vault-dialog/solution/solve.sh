#!/bin/bash
set -e
cd /work
python3 - <<'PY'
import os, pty, re
pid, fd = pty.fork()
if pid == 0:
    os.execvp("python3", ["python3", "vault.py"])
said = ""
while True:
    try:
        data = os.read(fd, 1024)
    except OSError:
        break
    if not data:
        break
    said += data.decode()
    if match := re.search(r"what is (\d+) \+ (\d+)\? $", said):
        os.write(fd, f"{int(match[1]) + int(match[2])}\n".encode())
        said = ""
    elif said.endswith("who are you? "):
        os.write(fd, b"agent smith\n")
        said = ""
os.waitpid(pid, 0)
PY
sed 's/.*: //' key.txt > number.txt
