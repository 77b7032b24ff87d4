"""A small repository with a defect, its tests, and patches of it."""

import os
import subprocess
from pathlib import Path

BUGGY = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"
FIXED = BUGGY.replace("a - b", "a + b")
TESTS = (
    "import unittest\nimport calc\n\n\nclass Calc(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(calc.add(2, 3), 5)\n\n"
    "    def test_double(self):\n        self.assertEqual(calc.double(4), 8)\n\n"
    "    def test_zero(self):\n        self.assertEqual(calc.add(7, 0), 7)\n"
)
GOLD = ("diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,5 +1,5 @@\n"
        " def add(a, b):\n-    return a - b\n+    return a + b\n \n \n def double(a):\n")
HALF = ("diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -5,2 +5,2 @@\n"
        " def double(a):\n-    return add(a, a)\n+    return 2 * a\n")
"""mends one of the two tests"""
NEW_TEST = (
    "diff --git a/test_calc.py b/test_calc.py\nnew file mode 100644\n--- /dev/null\n"
    f"+++ b/test_calc.py\n@@ -0,0 +1,{TESTS.count(chr(10))} @@\n"
    + "".join(f"+{line}\n" for line in TESTS.splitlines())
)
MUST = ("test_add (test_calc.Calc.test_add)", "test_double (test_calc.Calc.test_double)")
KEEP = ("test_zero (test_calc.Calc.test_zero)",)


def git(repo: Path, *words: str) -> str:
    when = {"GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z"}
    done = subprocess.run(["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b",
                           *words], check=True, capture_output=True, text=True,
                          env={**os.environ, **when})  # the same commits each time
    return done.stdout.strip()
