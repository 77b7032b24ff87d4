"""Sandboxes on the real engine. After every test, what this process owns there must be gone."""

from collections.abc import Iterator

import pytest

from claw.sdk.sandbox import Sandbox, Spec, engine, open_sandbox, owner


def owned() -> set[str]:
    """Everything on the engine that this process owns."""
    api, mine = engine.api(), {"label": f"{owner.OWNER}={owner.me()}"}
    return {
        *(c["Id"] for c in api.containers(all=True, filters=mine)),
        *(n["Id"] for n in api.networks(filters=mine)),
        *(v["Name"] for v in api.volumes(filters=mine)["Volumes"] or []),
    }


@pytest.fixture(scope="module")
def box(needs_docker: None) -> Iterator[Sandbox]:
    """One sandbox for tests that do not harm it."""
    with open_sandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def image_without_python(needs_docker: None) -> str:
    """The base image, its Python removed."""
    spec = Spec(user="0:0", capabilities=("DAC_OVERRIDE",))
    with open_sandbox(spec) as box:
        assert box.run("rm -f /usr/bin/python3*").exit_code == 0
        return box.snapshot()


@pytest.fixture
def leaves_nothing(needs_docker: None) -> Iterator[None]:
    before = owned()
    yield
    assert owned() == before
