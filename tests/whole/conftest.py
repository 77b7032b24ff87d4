"""One whole run per module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from system import System
from tiny import tiny_llama


@pytest.fixture(scope="session")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Room for a conversation of bytes."""
    folder = tmp_path_factory.mktemp("whole_model")
    return tiny_llama(folder, seed=3, max_position_embeddings=1024)


@pytest.fixture(scope="module")
def system(whole_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    # longer than a line of a terminal: what is printed to be copied must stay whole
    folder = tmp_path_factory.mktemp("runs") / ("folder-with-a-long-name-" * 3)
    folder.mkdir()
    made = System(folder, whole_model)
    try:
        yield made.start()
    finally:
        made.stop()
