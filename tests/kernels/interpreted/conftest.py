"""These files are run by test_triton.py in a process of its own, with the interpreter on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "engine" / "trainer"))  # bench, some_samples
