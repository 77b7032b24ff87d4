"""Roman numerals on the command line: prints the number of each argument."""
import sys

VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def number(word):
    total = 0
    for a, b in zip(word, word[1:]):
        if VALUES[a] < VALUES[b]:
            total -= VALUES[a]
        else:
            total += VALUES[a]
    return total


for word in sys.argv[1:]:
    print(number(word))
