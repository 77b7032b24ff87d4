"""The machine that a task wants: image, users, limits, network; and a sandbox that is one.

Owns: which Spec a task folder means, and what is in the sandbox before the agent starts.
Does not own: the sandbox, building images (claw.sdk.sandbox).
"""

import os
import time
from dataclasses import dataclass, replace

from claw.sdk.formats.folder import FormatError, Healthcheck, TaskFolder
from claw.sdk.formats.harbor import substituted
from claw.sdk.sandbox import (
    ROOT_CAPABILITIES,
    Sandbox,
    SandboxError,
    Spec,
    images,
    open_sandbox,
)

from .settings import TerminalConfig

ROOT = "0:0"
LOGS = "/logs"
SETUP_S = 60.0
MAX_COPY = 32 << 20
"""bytes of a working directory that is graded elsewhere"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a task runs on."""

    spec: Spec
    agent: str
    """user of the agent"""
    grader: str
    """user of the tests"""
    env: dict[str, str]
    """of the agent's commands"""


def is_root(user: str) -> bool:
    return user.partition(":")[0] in ("root", "0")


def is_guarded(box: Sandbox, machine: Machine) -> bool:
    """Whether the agent is somebody else than who grades it, as the sandbox knows its users."""
    ids = [box.run(["id", "-u"], user=user, cwd="/") for user in (machine.agent, machine.grader)]
    for user, ran in zip((machine.agent, machine.grader), ids, strict=True):
        if ran.exit_code != 0:
            raise SandboxError(f"there is no user {user!r}", found=ran.text[:300])
    return ids[0].stdout != ids[1].stdout and ids[0].stdout.strip() != b"0"


def of(folder: TaskFolder, config: TerminalConfig) -> Machine:
    """Return the machine of a task; builds its image where it brings a Dockerfile."""
    image = _image(folder, config)
    about = images.about(image)
    agent = config.user or folder.agent_user or about.user or ROOT
    grader = folder.verifier_user or ROOT
    memory = folder.memory_mb or config.memory_mb
    spec = Spec(
        image=image, memory_mb=memory, cpus=min(folder.cpus or config.cpus, os.cpu_count() or 1),
        network="fenced" if folder.network == "public" and config.network == "task" else "none",
        user=agent, workdir=folder.workdir or about.workdir or "/work",
        tmpfs_mb=max(1, min(256, memory // 4)),
        # where the agent is not root, root reads what it hid and can act as it
        capabilities=config.capabilities if is_root(agent) else ROOT_CAPABILITIES,
        engine=config.engine, runtime=config.runtime, lifetime_s=_lifetime_s(folder, config),
    )
    return Machine(spec, agent, grader, substituted(dict(folder.env), variables(config)))


def variables(config: TerminalConfig) -> dict[str, str]:
    """Return the variables of this process that tasks may read."""
    return {name: os.environ[name] for name in config.variables if name in os.environ}


def prepared(folder: TaskFolder, machine: Machine) -> Sandbox:
    """Open a sandbox with the task's files and log folders in it, healthy."""
    box = open_sandbox(machine.spec)
    try:
        furnish(box, machine)
        if folder.files:
            box.put({name.lstrip("/"): data for name, data in folder.files.items()}, "/",
                    user=machine.agent)
        if folder.healthcheck is not None:
            wait_healthy(box, folder.healthcheck, machine)
    except BaseException:
        box.close()
        raise
    return box


def furnish(box: Sandbox, machine: Machine) -> None:
    """Make the folders for logs: the verifier's belong to who grades, before an agent is there."""
    script = f"mkdir -p {LOGS}/agent {LOGS}/verifier {LOGS}/artifacts"
    if is_guarded(box, machine):
        script += (
            f" && chmod 755 {LOGS} && chmod 700 {LOGS}/verifier"
            f' && chown -- "$1" {LOGS}/verifier && chown -- "$2" {LOGS}/agent {LOGS}/artifacts'
        )
    ran = box.run(["bash", "-c", script, "bash", machine.grader, machine.agent], user=ROOT,
                  timeout_s=SETUP_S, cwd="/")
    if ran.exit_code != 0:
        raise SandboxError("the folders for logs cannot be made", found=ran.text[:500])


def wait_healthy(box: Sandbox, check: Healthcheck, machine: Machine) -> None:
    """Run the healthcheck until it succeeds; failures in the start period do not count."""
    began, failed = time.monotonic(), 0
    while True:
        ran = box.run(check.command, timeout_s=check.timeout_s, env=machine.env)
        if ran.exit_code == 0:
            return
        is_starting = time.monotonic() - began < check.start_period_s
        failed += not is_starting
        if failed > check.retries:
            raise SandboxError("the task's healthcheck fails", found=ran.text[:500])
        time.sleep(check.start_interval_s if is_starting else check.interval_s)


def clean_copy(box: Sandbox, folder: TaskFolder, machine: Machine) -> Sandbox | None:
    """Open a second sandbox that holds the agent's working directory and nothing else of it.

    None when the agent has put more there than can be copied.
    """
    workdir = machine.spec.workdir
    packed = box.run(["tar", "-C", workdir, "-cf", "-", "."], user=ROOT, timeout_s=SETUP_S,
                     max_output=MAX_COPY)
    if packed.truncated or packed.exit_code != 0:
        return None
    spec = replace(machine.spec, capabilities=ROOT_CAPABILITIES)  # the files keep their owners
    fresh = prepared(replace(folder, files={}), replace(machine, spec=spec))
    try:
        script = "find . -mindepth 1 -delete && tar -xpf -"
        ran = fresh.run(script, cwd=workdir, user=ROOT, stdin=packed.stdout, timeout_s=SETUP_S)
        if ran.exit_code != 0:
            raise SandboxError("the working directory cannot be unpacked", found=ran.text[:300])
    except BaseException:
        fresh.close()
        raise
    return fresh


def _image(folder: TaskFolder, config: TerminalConfig) -> str:
    if folder.image:
        return folder.image
    if folder.build_folder is None or not config.build:
        raise FormatError(f"task {folder.name!r} has no image", found=str(folder.path))
    return images.build(folder.build_folder, timeout_s=folder.build_timeout_s)


def _lifetime_s(folder: TaskFolder, config: TerminalConfig) -> float:
    """Long enough for the agent, its thinking, and the tests; then the leash ends it."""
    agent = folder.agent_timeout_s or 3600.0
    return 600.0 + config.timeout_factor * (agent + folder.verifier_timeout_s)
