import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from actor_doubles import make_model

from claw.engine.actor.chat import Chat


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def chat(model_dir):
    return Chat(model_dir)


@pytest.fixture
def sockets():
    """A short folder: socket paths are limited to about 100 characters."""
    folder = tempfile.mkdtemp(prefix="claw-t-")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
