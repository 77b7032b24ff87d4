"""Images that tasks bring as a Dockerfile: built once per content, with an end to everything."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claw.sdk.sandbox import SandboxError, Spec, engine, images, open_sandbox

BASE = "FROM claw/base:bookworm\n"


@pytest.fixture
def folder(needs_docker: None, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """`folder(lines)`: a folder whose Dockerfile adds these lines to the base image."""
    made: list[Path] = []

    def make(lines: str, name: str = "task") -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "Dockerfile").write_text(BASE + lines)
        made.append(tmp_path / name)
        return tmp_path / name

    yield make
    for image in engine.api().images(filters={"label": f"claw.task.test={tmp_path.name}"}):
        engine.api().remove_image(image["Id"], force=True)


def labelled(tmp_path: Path, lines: str) -> str:
    return f"LABEL claw.task.test={tmp_path.name}\n{lines}"


def running(command: str) -> bool:
    return any(command in c["Command"] for c in engine.api().containers())


def made(image: str) -> str:
    return str(engine.api().inspect_image(image)["Id"])


def test_a_sandbox_runs_in_what_a_dockerfile_made(folder, tmp_path):
    built = images.build(folder(labelled(tmp_path, "RUN echo plum > /fruit\nWORKDIR /opt\n")))
    assert images.about(built).workdir == "/opt"
    with open_sandbox(Spec(image=built)) as box:
        assert box.run("cat /fruit").stdout == b"plum\n"


def test_the_same_content_is_built_once_and_other_content_anew(folder, tmp_path):
    # what it holds differs from build to build, so a second build would make another image
    lines = labelled(tmp_path, "RUN cat /proc/sys/kernel/random/uuid > /when\n")
    first = images.build(folder(lines))
    before = made(first)
    assert images.build(folder(lines, "copy")) == first and made(first) == before
    other = folder(lines, "other")
    (other / "file").write_text("more\n")
    assert images.build(other) != first


def test_two_that_ask_at_once_get_one_build(folder, tmp_path, monkeypatch):
    place = folder(labelled(tmp_path, "RUN sleep 1\n"))
    builds, build = [], images._build

    def counted(*args: object) -> None:
        builds.append(args)
        build(*args)

    monkeypatch.setattr(images, "_build", counted)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(images.build(place)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 4 and len(set(found)) == 1 and len(builds) == 1


def test_a_build_that_fails_shows_its_last_words(folder, tmp_path):
    place = folder(labelled(tmp_path, "RUN echo no plums today; exit 3\n"))
    with pytest.raises(SandboxError, match="cannot be built") as caught:
        images.build(place)
    assert "no plums today" in str(caught.value) and "3" in str(caught.value)


def test_a_build_that_says_nothing_ends_at_its_deadline(folder, tmp_path):
    place = folder(labelled(tmp_path, "RUN sleep 40\n"))
    with pytest.raises(SandboxError, match="took too long"):
        images.build(place, timeout_s=2)
    until = time.monotonic() + 30  # and the engine stops working at it
    while running("sleep 40"):
        assert time.monotonic() < until, "the build goes on"
        time.sleep(0.2)


def test_a_folder_without_a_dockerfile_is_refused_by_name(tmp_path):
    with pytest.raises(SandboxError, match="nothing to build") as caught:
        images.build(tmp_path)
    assert str(tmp_path) in str(caught.value)
