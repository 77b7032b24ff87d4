import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from worker_doubles import make_model


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def other_dir(tmp_path_factory):
    """The same architecture with other weights."""
    return make_model(tmp_path_factory.mktemp("other"), seed=1)
