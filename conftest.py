"""Test options and the real parts, for the tests of claw and of the plugins in this repository."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

# A context that a failed test leaves behind is collected together with its sockets; destroying it
# then waits for sockets that nobody closes any more, and the run stands still.
zmq.Context.__del__ = lambda self: None  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run tests marked slow too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="slow; run with --run-slow or make test-all")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def missing(part: str, why: str) -> None:
    """A missing real part skips on a person's machine and fails where CLAW_REAL=require."""
    if os.environ.get("CLAW_REAL") == "require":
        pytest.fail(f"{part} is required here: {why}")
    pytest.skip(f"{part} is missing: {why}")


@pytest.fixture(scope="session")
def needs_triton() -> None:
    if importlib.util.find_spec("triton") is None:
        missing("triton", "it is not installed; pip install 'triton>=3.6,<4'")


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The real small model; fetched and converted once into the user's cache."""
    from claw.engine.models import resolve
    from claw.errors import ClawError

    try:
        return resolve("smollm2-135m")
    except ClawError as error:
        missing("SmolLM2-135M-Instruct", str(error))
        raise


@pytest.fixture(scope="session")
def needs_sqlcipher() -> None:
    if importlib.util.find_spec("sqlcipher3") is None:
        missing("SQLCipher", "it is not installed; pip install 'claw-rl[encrypted]'")


@pytest.fixture(scope="session")
def needs_ray() -> None:
    """Ray, and a mount namespace for nodes that do not see each other's folders."""
    if importlib.util.find_spec("ray") is None:
        missing("Ray", "it is not installed; pip install 'claw-rl[ray]'")
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
    if done.returncode:
        missing("a mount namespace", f"nodes of their own need one: {done.stderr.strip()}")


@pytest.fixture(scope="session")
def bits_path() -> str:
    """A PYTHONPATH with bitsandbytes: the folder of tools/install_bits.sh, or $CLAW_BITS."""
    folder = Path(os.environ.get("CLAW_BITS") or Path(__file__).parent / ".bits")
    if not (folder / "bitsandbytes").is_dir():
        missing("bitsandbytes", f"{folder} does not exist; run: make bits")
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@pytest.fixture(scope="session")
def sglang_python() -> str:
    """The python of SGLang's environment: that of tools/install_sglang.sh, or $CLAW_SGLANG."""
    default = Path(__file__).parent / ".venv-sglang/bin/python"
    python = Path(os.environ.get("CLAW_SGLANG") or default)
    if not python.exists():
        missing("SGLang's environment", f"no {python}; make it: make sglang")
    return str(python)


def _adapters_python(name: str) -> str:
    """One of the environments of tools/install_adapters.sh, or of the folder $CLAW_ADAPTERS."""
    folder = Path(os.environ.get("CLAW_ADAPTERS") or Path(__file__).parent / ".venv-adapters")
    python = folder / name / "bin" / "python"
    if not python.exists():
        missing("an environment of the adapters", f"no {python}; make it: make adapters")
    return str(python)


@pytest.fixture(scope="session")
def new_verifiers() -> str:
    """The python beside verifiers 0.4, which has v1 only."""
    return _adapters_python("verifiers-0.4")


@pytest.fixture(scope="session")
def old_verifiers() -> str:
    """The python beside verifiers 0.3, which has v1 and v0, and openenv."""
    return _adapters_python("verifiers-0.3-openenv")


@pytest.fixture(scope="session")
def openai_two() -> str:
    """The python beside the older openai, of tools/install_clients.sh or $CLAW_CLIENTS."""
    folder = Path(os.environ.get("CLAW_CLIENTS") or Path(__file__).parent / ".venv-clients")
    python = folder / "openai-2" / "bin" / "python"
    if not python.exists():
        missing("openai 2", f"no {python}; make it: make clients")
    return str(python)


@pytest.fixture(scope="session")
def openclaw_dir() -> Path:
    """The folder of tools/install_openclaw.sh, or $CLAW_OPENCLAW."""
    folder = Path(os.environ.get("CLAW_OPENCLAW") or Path(__file__).parent / ".openclaw")
    if not (folder / "bin" / "node").exists():
        missing("OpenClaw", f"no {folder}/bin/node; make it: make openclaw")
    return folder


@pytest.fixture(scope="session")
def needs_docker() -> None:
    """A container engine with claw's base image; tools/docker.sh brings up both."""
    from claw.errors import ClawError
    from claw.sdk.sandbox import engine, spec

    try:
        with engine.speaking("looking for the base image", spec.BASE_IMAGE):
            engine.api().inspect_image(spec.BASE_IMAGE)
    except ClawError as error:
        missing("a container engine with claw's base image", str(error))


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program of a Chromium; tools/chromium.sh installs one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            break
    else:
        missing("Chromium", "none on the PATH; install it: make chromium")
    if importlib.util.find_spec("playwright") is None:
        missing("playwright", "it is not installed; pip install 'playwright>=1.50'")
    return found


@pytest.fixture(scope="session")
def needs_desktop(needs_docker: None) -> None:
    """The image of the gui plugin's desktop; tools/desktop.sh makes it."""
    from claw.errors import ClawError
    from claw.sdk.sandbox import images

    try:
        images.about("claw/desktop:bookworm")
    except ClawError as error:
        missing("the desktop image", f"{error}; make it: make desktop")


@pytest.fixture(scope="session")
def fresh_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of a new virtual environment that holds claw-rl, its dependencies and pytest."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", str(Path(__file__).parent), "pytest",
         "hatchling", "editables"],
        capture_output=True, text=True,
    )
    if done.returncode:
        missing("pip's index", done.stderr[-500:])
    return python
