"""The families of generated tasks: a table of functions from a random generator to a task.

Owns: what is asked, what is there, what must be there afterwards, and a solution.
Does not own: how it is checked in the sandbox (`check`).

No check passes before something was done: doing nothing gets 0.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOME = "/work"
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "indigo",
         "juniper", "kelp", "lagoon", "maple", "nectar", "orchid", "pebble", "quartz", "river",
         "saffron", "tundra", "umber", "violet", "willow", "yarrow", "zephyr")
PEOPLE = ("ada", "ben", "chloe", "dan", "eva", "femi", "grace", "hugo", "iris", "jon")


@dataclass(frozen=True, slots=True)
class Made:
    """One task."""

    instruction: str
    checks: list[dict[str, Any]]
    solution: str
    files: dict[str, str]
    """relative to the working directory"""


@dataclass(frozen=True, slots=True)
class Family:
    level: int
    make: Callable[[random.Random], Made]


TABLE: dict[str, Family] = {}


def family(level: int) -> Callable[[Callable[[random.Random], Made]], Callable[..., Made]]:
    """Put a function into the table under its name."""
    def add(function: Callable[[random.Random], Made]) -> Callable[..., Made]:
        TABLE[function.__name__] = Family(level, function)
        return function

    return add


def says(path: str, text: str) -> dict[str, Any]:
    return {"name": f"{path} holds the right text", "kind": "text", "path": f"{HOME}/{path}",
            "text": text}


# --- level 1: one command -------------------------------------------------------------------------

@family(1)
def write_word(rng: random.Random) -> Made:
    """Put one word into a file."""
    word, name = rng.sample(WORDS, 2)
    return Made(f"Write the word {word} into the file {name}.txt.", [says(f"{name}.txt", word)],
                f"echo {word} > {name}.txt", {})


@family(1)
def make_folders(rng: random.Random) -> Made:
    """Make nested folders."""
    a, b, c = rng.sample(WORDS, 3)
    checks = [{"name": f"{p} is a folder", "kind": "folder", "path": f"{HOME}/{p}"}
              for p in (a, f"{a}/{b}", f"{a}/{b}/{c}")]
    return Made(f"Make the folder {a}, in it the folder {b}, and in that the folder {c}.", checks,
                f"mkdir -p {a}/{b}/{c}", {})


@family(1)
def copy_file(rng: random.Random) -> Made:
    """Copy a file."""
    name, other = rng.sample(WORDS, 2)
    text = " ".join(rng.choices(WORDS, k=8)) + "\n"
    return Made(f"Copy the file {name}.txt to {other}.txt.", [says(f"{other}.txt", text)],
                f"cp {name}.txt {other}.txt", {f"{name}.txt": text})


@family(1)
def count_lines(rng: random.Random) -> Made:
    """Count the lines of a file."""
    name = rng.choice(WORDS)
    number = rng.randint(5, 60)
    text = "".join(f"{rng.choice(WORDS)}\n" for _ in range(number))
    return Made(f"How many lines has {name}.log? Write the number into count.txt.",
                [says("count.txt", str(number))], f"wc -l < {name}.log > count.txt",
                {f"{name}.log": text})


@family(1)
def set_mode(rng: random.Random) -> Made:
    """Change permissions."""
    name, mode = rng.choice(WORDS), rng.choice(("600", "640", "700", "750", "755", "444"))
    return Made(f"Give the file {name}.sh the permissions {mode} (octal).",
                [{"name": f"mode of {name}.sh", "kind": "mode", "path": f"{HOME}/{name}.sh",
                  "mode": mode}], f"chmod {mode} {name}.sh", {f"{name}.sh": "echo hello\n"})


@family(1)
def link_file(rng: random.Random) -> Made:
    """Make a symbolic link."""
    name, other = rng.sample(WORDS, 2)
    return Made(f"Make {other} a symbolic link to the file {name}.txt.",
                [{"name": f"{other} is a link", "kind": "link", "path": f"{HOME}/{other}",
                  "target": f"{HOME}/{name}.txt"}], f"ln -s {name}.txt {other}",
                {f"{name}.txt": "here\n"})


@family(1)
def last_lines(rng: random.Random) -> Made:
    """Keep the end of a file."""
    name, keep = rng.choice(WORDS), rng.randint(2, 6)
    rows = [f"{i} {rng.choice(WORDS)}" for i in range(1, rng.randint(12, 40))]
    return Made(f"Write the last {keep} lines of {name}.log into last.txt.",
                [says("last.txt", "\n".join(rows[-keep:]))],
                f"tail -n {keep} {name}.log > last.txt", {f"{name}.log": "\n".join(rows) + "\n"})


# --- level 2: a pipeline, or a loop ---------------------------------------------------------------

@family(2)
def sort_unique(rng: random.Random) -> Made:
    """Sort and remove doubles."""
    rows = rng.choices(WORDS, k=rng.randint(15, 40))
    return Made("Write the words of words.txt into sorted.txt: sorted by alphabet, one per line, "
                "each only once.", [says("sorted.txt", "\n".join(sorted(set(rows))))],
                "sort -u words.txt > sorted.txt", {"words.txt": "\n".join(rows) + "\n"})


@family(2)
def sum_column(rng: random.Random) -> Made:
    """Add up a column of a CSV file."""
    rows = [(rng.choice(PEOPLE), rng.randint(1, 99)) for _ in range(rng.randint(6, 25))]
    text = "name,amount\n" + "".join(f"{n},{a}\n" for n, a in rows)
    return Made("data.csv has the columns name and amount. Write the sum of all amounts into "
                "total.txt.", [says("total.txt", str(sum(a for _, a in rows)))],
                "awk -F, 'NR>1 {s+=$2} END {print s}' data.csv > total.txt", {"data.csv": text})


@family(2)
def grep_errors(rng: random.Random) -> Made:
    """Pick lines by a word."""
    level = rng.choice(("ERROR", "WARN"))
    rows = [f"{rng.choice(('INFO', 'ERROR', 'WARN', 'DEBUG'))} {rng.choice(WORDS)} {i}"
            for i in range(rng.randint(15, 40))] + [f"{level} {rng.choice(WORDS)} end"]
    kept = [row for row in rows if row.startswith(f"{level} ")]
    return Made(f"Write all lines of app.log that begin with {level} into found.txt, in order.",
                [says("found.txt", "\n".join(kept))], f"grep '^{level} ' app.log > found.txt",
                {"app.log": "\n".join(rows) + "\n"})


@family(2)
def rename_files(rng: random.Random) -> Made:
    """Change the ending of many files."""
    names = rng.sample(WORDS, rng.randint(3, 6))
    old, new = rng.sample(("txt", "md", "log", "dat", "bak"), 2)
    files = {f"box/{name}.{old}": f"{name}\n" for name in names}
    after = {f"{name}.{new}": f"{name}\n" for name in names}
    return Made(f"Rename every file in the folder box so that it ends in .{new} instead of .{old}.",
                [{"name": "the folder box", "kind": "tree", "path": f"{HOME}/box", "files": after}],
                f'for f in box/*.{old}; do mv "$f" "${{f%.{old}}}.{new}"; done', files)


@family(2)
def replace_word(rng: random.Random) -> Made:
    """Replace a word in place."""
    old, new = rng.sample(WORDS, 2)
    rows = [" ".join(rng.choices((*WORDS[:6], old), k=6)) for _ in range(rng.randint(4, 10))]
    rows.append(f"{old} at the end")
    text = "\n".join(rows) + "\n"
    return Made(f"In notes.txt, replace every {old} by {new}. Change nothing else.",
                [says("notes.txt", text.replace(old, new))], f"sed -i 's/{old}/{new}/g' notes.txt",
                {"notes.txt": text})


@family(2)
def largest_file(rng: random.Random) -> Made:
    """Find the largest file."""
    names = rng.sample(WORDS, 5)
    sizes = rng.sample(range(10, 3000), 5)
    files = {f"pile/{n}.bin": "x" * size for n, size in zip(names, sizes, strict=True)}
    best = names[sizes.index(max(sizes))]
    return Made("Write the name (without the folder) of the largest file in the folder pile into "
                "largest.txt.", [says("largest.txt", f"{best}.bin")],
                "ls -S pile | head -1 > largest.txt", files)


@family(2)
def json_field(rng: random.Random) -> Made:
    """Read a value out of JSON."""
    key, inner = rng.sample(WORDS, 2)
    value = rng.randint(100, 999)
    data = {w: {"id": rng.randint(1, 99)} for w in rng.sample(WORDS, 4)}
    data[key] = {"id": rng.randint(1, 99), inner: value}
    return Made(f"config.json is a JSON object. Write the value of {inner} inside {key} into "
                "value.txt.", [says("value.txt", str(value))],
                f"jq '.{key}.{inner}' config.json > value.txt",
                {"config.json": json.dumps(data, indent=2) + "\n"})


@family(2)
def move_by_kind(rng: random.Random) -> Made:
    """Sort files into folders by their ending."""
    names = rng.sample(WORDS, 6)
    files = {f"in/{n}.{'txt' if i % 2 else 'csv'}": f"{n}\n" for i, n in enumerate(names)}
    after = {f"{p.rpartition('.')[2]}/{p.removeprefix('in/')}": t for p, t in files.items()}
    return Made("Move the files of the folder in: those ending in .txt to the folder out/txt, "
                "those ending in .csv to the folder out/csv.",
                [{"name": "the folder out", "kind": "tree", "path": f"{HOME}/out", "files": after}],
                "mkdir -p out/txt out/csv; mv in/*.txt out/txt; mv in/*.csv out/csv", files)


# --- level 3: several steps -----------------------------------------------------------------------

@family(3)
def sum_by_name(rng: random.Random) -> Made:
    """Group and add up."""
    rows = [(rng.choice(PEOPLE[:5]), rng.randint(1, 50)) for _ in range(rng.randint(12, 30))]
    totals = {n: sum(a for m, a in rows if m == n) for n in sorted({n for n, _ in rows})}
    text = "name,amount\n" + "".join(f"{n},{a}\n" for n, a in rows)
    top = min(totals, key=lambda n: (-totals[n], n))
    return Made(
        "sales.csv has the columns name and amount. Write into totals.csv one line per name, "
        "sorted by name: the name, a comma, and the sum of its amounts (no header). Write the name "
        "with the largest sum into top.txt; of equal sums, the first by alphabet.",
        [says("totals.csv", "\n".join(f"{n},{a}" for n, a in totals.items())),
         says("top.txt", top)],
        "awk -F, 'NR>1 {s[$1]+=$2} END {for (n in s) print n \",\" s[n]}' sales.csv | sort > "
        "totals.csv\nsort -t, -k2,2nr -k1,1 totals.csv | head -1 | cut -d, -f1 > top.txt",
        {"sales.csv": text})


@family(3)
def count_requests(rng: random.Random) -> Made:
    """Count lines of a web log by status and by address."""
    hosts = [f"10.0.0.{i}" for i in rng.sample(range(2, 60), 4)]
    weights = [7, 4, 2, 1]
    rows = [(rng.choices(hosts, weights)[0], rng.choice(("200", "200", "404", "500")))
            for _ in range(rng.randint(25, 60))]
    rows += [(hosts[0], "404")] * 12
    text = "".join(f'{h} "GET /{rng.choice(WORDS)}" {s}\n' for h, s in rows)
    misses = sum(s == "404" for _, s in rows)
    return Made(
        "access.log has one request per line: address, request, status. Write the number of "
        "requests with status 404 into misses.txt, and the address with the most requests into "
        "busiest.txt.", [says("misses.txt", str(misses)), says("busiest.txt", hosts[0])],
        "awk '$NF==404' access.log | wc -l > misses.txt\n"
        "cut -d' ' -f1 access.log | sort | uniq -c | sort -nr | awk 'NR==1 {print $2}' "
        "> busiest.txt",
        {"access.log": text})


@family(3)
def fix_script(rng: random.Random) -> Made:
    """Repair a script that does the wrong thing."""
    a, b = rng.randint(3, 20), rng.randint(3, 20)
    wrong, sign, word = rng.choice((("-", "+", "sum"), ("+", "*", "product")))
    right = {"+": lambda x, y: x + y, "*": lambda x, y: x * y}[sign]
    path = f"{HOME}/calc.sh"
    checks = [
        {"name": f"calc.sh {x} {y}", "kind": "printed", "argv": ["bash", path, str(x), str(y)],
         "cwd": HOME, "stdout": str(right(x, y))}
        for x, y in ((a, b), (a + 7, b + 3))
    ]
    return Made(f"The script calc.sh should print the {word} of its two arguments, but prints "
                "something else. Repair it.", checks,
                f"sed -i 's/\\$1 [{wrong}] \\$2/$1 {sign} $2/' calc.sh",
                {"calc.sh": f"#!/bin/bash\n# prints the {word}\necho $(($1 {wrong} $2))\n"})


@family(3)
def write_script(rng: random.Random) -> Made:
    """Write a script that reads its input."""
    word = rng.choice(WORDS)
    samples = []
    for _ in range(2):
        rows = [" ".join(rng.choices((*WORDS[:5], word), k=4)) for _ in range(rng.randint(5, 12))]
        samples.append((rows, sum(word in row.split() for row in rows)))
    checks = [
        {"name": f"sample {i}", "kind": "printed", "argv": ["bash", f"{HOME}/count.sh"],
         "cwd": HOME, "stdin": "\n".join(rows) + "\n", "stdout": str(number)}
        for i, (rows, number) in enumerate(samples)
    ]
    return Made(f"Write a script count.sh that reads lines from its standard input and prints how "
                f"many of them hold the word {word}. It is run as: bash count.sh", checks,
                f"echo 'grep -c -w {word} || true' > count.sh", {})


@family(3)
def merge_settings(rng: random.Random) -> Made:
    """Put one settings file over another, as JSON."""
    keys = rng.sample(WORDS, 6)
    base = {k: rng.randint(1, 99) for k in keys[:4]}
    over = {k: rng.randint(100, 199) for k in keys[2:]}

    def text(values: dict[str, int]) -> str:
        return "".join(f"{k}={v}\n" for k, v in values.items())

    merged = dict(sorted((base | over).items()))
    return Made(
        "base.env and local.env hold lines key=value. Write merged.env with every key once, sorted "
        "by key; where both have a key, local.env wins. Write the same as a JSON object of numbers "
        "into merged.json.",
        [says("merged.env", text(merged)),
         {"name": "merged.json", "kind": "json", "path": f"{HOME}/merged.json", "value": merged}],
        "cat base.env local.env | awk -F= '{v[$1]=$2} END {for (k in v) print k \"=\" v[k]}' | "
        "LC_ALL=C sort > merged.env\n"
        "jq -Rn '[inputs | split(\"=\") | {(.[0]): (.[1] | tonumber)}] | add' merged.env "
        "> merged.json",
        {"base.env": text(base), "local.env": text(over)})


@family(3)
def find_and_collect(rng: random.Random) -> Made:
    """Find files by content, deep in a tree."""
    token = f"{rng.choice(WORDS)}-{rng.randint(100, 999)}"
    files, hits = {}, []
    for i in range(8):
        a, b = rng.sample(WORDS, 2)
        path = f"src/{a}/{i}-{b}.txt"
        is_hit = i in (1, 4, 6)
        files[path] = f"{rng.choice(WORDS)}\n" + (f"see {token}\n" if is_hit else "see none\n")
        hits += [path] if is_hit else []
    return Made(
        f"Find all files below the folder src that hold the text {token}. Write their paths "
        "(relative, beginning with src/) into hits.txt, sorted, one per line, and delete those "
        "files.",
        [says("hits.txt", "\n".join(sorted(hits))),
         {"name": "only the others are left", "kind": "tree", "path": f"{HOME}/src",
          "files": {p.removeprefix("src/"): t for p, t in files.items() if p not in hits}}],
        f"grep -rl -- {token} src | LC_ALL=C sort > hits.txt\nxargs rm < hits.txt", files)
