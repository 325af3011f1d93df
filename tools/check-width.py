#!/usr/bin/env python3
"""Reports lines that are too wide: of code over 120 columns, of prose in Markdown over 160.

Generated and vendored files, what tests read (testdata), Go's raw strings of several lines, and tables and blocks of
code in Markdown may be wider. The spaces by which gofmt aligns values do not count.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".go", ".c", ".cc", ".h", ".cu", ".cuh", ".py", ".mk"}
TAB = 4
GENERATED = {"docs/cli.md", "docs/ops.md", "docs/targets/matrix.md"}
# Comments, strings, and characters of Go; a raw string is a group.
GO = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|(`[^`]*`)', re.DOTALL)


def files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0")[:-1]:
        path = ROOT / name
        passed_over = name in GENERATED or {"third_party", "testdata", "node_modules"} & set(path.parts)
        if not passed_over and path.is_file():
            yield name, path


def wide(path):
    """The numbers of the lines that are too wide."""
    if path.suffix in CODE or path.name == "Makefile":
        text = path.read_text()
        if path.suffix == ".go":
            text = GO.sub(without_raw_lines, text)
        lines = text.splitlines()
        if not any(re.search("generated .*(do not|DO NOT) edit", line, re.IGNORECASE) for line in lines[:40]):
            return [n for n, line in enumerate(lines, 1) if len(re.sub(":  +", ": ", line).expandtabs(TAB)) > 120]
    if path.suffix == ".md":
        return wide_prose(path.read_text().splitlines())
    return []


def without_raw_lines(token):
    raw = token[1]
    return "`" + "\n" * raw.count("\n") + "`" if raw and "\n" in raw else token[0]


def wide_prose(lines):
    found, fenced = [], False
    for n, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and len(line) > 160 and not line.startswith(("|", "    ", "\t")):
            found.append(n)
    return found


found = [f"{name}:{n}: too wide" for name, path in files() for n in wide(path)]
print("\n".join(found), end="\n" if found else "")
sys.exit(bool(found))
