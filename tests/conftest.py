"""Fixtures that any test may ask for."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests share the machine
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))  # so that any test can `import tiny`


@pytest.fixture(scope="session")
def tiny_llama_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny import tiny_llama

    return tiny_llama(tmp_path_factory.mktemp("tiny_llama"), seed=0)


@pytest.fixture(scope="session")
def tiny_qwen3_vl_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny import tiny_qwen3_vl

    return tiny_qwen3_vl(tmp_path_factory.mktemp("tiny_qwen3_vl"), seed=2)


@pytest.fixture(scope="session")
def tiny_qwen3_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny import tiny_qwen3

    return tiny_qwen3(tmp_path_factory.mktemp("tiny_qwen3"), seed=1)
