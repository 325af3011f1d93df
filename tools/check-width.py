#!/usr/bin/env python3
"""Reports lines that are too wide: of code over 120 columns, of prose in Markdown over 160.

Generated and vendored files, what tests read (testdata), tables and blocks of code in Markdown may be wider.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".go", ".c", ".cc", ".h", ".cu", ".cuh", ".py", ".sh", ".mk"}
TAB = 4


def files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0")[:-1]:
        path = ROOT / name
        if not {"third_party", "testdata", "node_modules"} & set(path.parts) and path.is_file():
            yield name, path


def too_wide(path):
    """The numbers of the lines that are too wide."""
    if path.suffix in CODE or path.name == "Makefile":
        lines = path.read_text().splitlines()
        if not any(line.startswith("// Code generated") for line in lines[:5]):
            return [n for n, line in enumerate(lines, 1) if len(line.expandtabs(TAB)) > 120]
    if path.suffix == ".md":
        return wide_prose(path.read_text().splitlines())
    return []


def wide_prose(lines):
    wide, fenced = [], False
    for n, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and len(line) > 160 and not line.startswith(("|", "    ", "\t")):
            wide.append(n)
    return wide


found = [f"{name}:{n}: too wide" for name, path in files() for n in too_wide(path)]
print("\n".join(found), end="\n" if found else "")
sys.exit(bool(found))
