#!/usr/bin/env python3
"""The vault asks on a terminal only. It writes key.txt for whoever answers all questions."""
import os
import random
import sys

if not (os.isatty(0) and os.isatty(1)):
    sys.exit("vault: I talk to terminals only")
for round in range(1, 4):
    a, b = random.randint(10, 99), random.randint(10, 99)
    if input(f"[{round}/3] what is {a} + {b}? ").strip() != str(a + b):
        sys.exit("vault: wrong")
name = input("who are you? ").strip()
with open("key.txt", "w") as file:
    file.write(f"opened by {name}: {sum(map(ord, name)) * 7919 % 100003}\n")
print("vault: open")
