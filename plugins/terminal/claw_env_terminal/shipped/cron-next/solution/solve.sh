#!/bin/bash
set -e
cat > /work/next.py <<'PY'
import sys
from datetime import datetime, timedelta

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def values(field, low, high):
    found = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        start, _, end = body.partition("-")
        first, last = (low, high) if body == "*" else (int(start), int(end or start))
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def following(time, rule):
    minutes, hours, days, months, weekdays = (
        values(f, *b) for f, b in zip(rule, BOUNDS))
    time += timedelta(minutes=1)
    while True:
        if time.month not in months or time.day not in days or (time.weekday() + 1) % 7 not in weekdays:
            time = time.replace(hour=0, minute=0) + timedelta(days=1)
        elif time.hour not in hours:
            time = time.replace(minute=0) + timedelta(hours=1)
        elif time.minute not in minutes:
            time += timedelta(minutes=1)
        else:
            return time


for line in sys.stdin:
    day, clock, *rule = line.split()
    print(following(datetime.fromisoformat(f"{day} {clock}"), rule).strftime("%Y-%m-%d %H:%M"))
PY
