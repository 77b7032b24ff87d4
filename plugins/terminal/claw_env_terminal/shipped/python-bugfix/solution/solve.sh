#!/bin/bash
set -e
cd /work
cat > roman.py <<'PY'
"""Roman numerals on the command line: prints the number of each argument."""
import sys

VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def number(word):
    values = [VALUES[c] for c in word.upper()]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))


for word in sys.argv[1:]:
    try:
        print(number(word) or "error")
    except KeyError:
        print("error")
PY
