#!/usr/bin/env python3
"""Builds the wheel with the kernel library.

usage: python/build_wheel.py LIBRARY OUT_DIR        (with python/requirements.txt installed: make wheel)

The version is `git describe` in the form of PEP 440, or $MOJO_PATCH_VERSION. On Linux auditwheel reads which versions
of glibc's and libstdc++'s symbols the library needs, and names the manylinux tag of the oldest systems that have them.
The path of the wheel is printed to stdout. It appears in OUT_DIR whole or not at all.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pep440(described: str) -> str:
    """Turns what `git describe --tags --always --long --dirty` prints into a version.

    v1.2.0-0-gabc1234 -> 1.2.0, v1.2.0-3-gabc1234-dirty -> 1.2.0.post3+gabc1234.dirty, abc1234 -> 0.0.0+gabc1234
    """
    dirty = described.endswith("-dirty")
    described = described.removesuffix("-dirty")
    if m := re.fullmatch(r"v?(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?)-(\d+)-g([0-9a-f]+)", described):
        release, commits, commit = m.groups()
    elif re.fullmatch(r"[0-9a-f]{7,40}", described):
        release, commits, commit = "0.0.0", "", described
    else:
        raise ValueError(f"git describe gives {described!r}: the tag is no version, as v1.2.0 is one")
    if commits == "0" and not dirty:
        return release
    post = f".post{commits}" if commits not in ("", "0") else ""
    return f"{release}{post}+g{commit}{'.dirty' if dirty else ''}"


def version() -> str:
    if given := os.environ.get("MOJO_PATCH_VERSION"):
        return given
    try:
        described = subprocess.run(["git", "describe", "--tags", "--always", "--long", "--dirty"], cwd=ROOT, check=True,
                                   capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "0.0.0"  # an unpacked archive of the sources
    return pep440(described)


def run(*command: object, **environment: str) -> str:
    done = subprocess.run([str(c) for c in command], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nwheel: {' '.join(map(str, command))} failed (see above)")
    return done.stdout


def pack(stage: pathlib.Path, out: pathlib.Path, platform: str) -> pathlib.Path:
    """Runs the build backend; platform is the tag, empty for what setuptools takes this machine for."""
    run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
        "--wheel-dir", out, stage, MOJO_PATCH_VERSION=version(), MOJO_PATCH_PLATFORM=platform)
    [wheel] = out.glob("*.whl")
    return wheel


def manylinux(wheel: pathlib.Path) -> str:
    """The tag of the oldest systems that have all symbols which the library in the wheel needs."""
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
    m = re.search(r'following\s+platform\s+tag:\s+"(\w+)"', shown)
    if not m:
        sys.exit(f"{shown}\nwheel: auditwheel names no platform tag")
    return m.group(1)


def build(library: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".wheel-") as name:
        temp = pathlib.Path(name)
        stage = temp / "python"
        leave = shutil.ignore_patterns(
            "__pycache__", "tests", "build", "*.egg-info", "build_wheel.py", "requirements.txt")
        shutil.copytree(ROOT / "python", stage, ignore=leave)
        shutil.copy(library, stage / "src" / "mojo_patch" / library.name)
        for licence in ("LICENSE", "NOTICE"):
            shutil.copy(ROOT / licence, stage / licence)
        shutil.copy(ROOT / "fused/kernels/third_party/onnxruntime/LICENSE", stage / "LICENSE.onnxruntime")
        wheel = pack(stage, temp / "built", "")
        if sys.platform == "linux":
            wheel = pack(stage, temp / "tagged", manylinux(wheel))
        for old in out.glob("*.whl"):
            old.unlink()
        return wheel.replace(out / wheel.name)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if sys.argv[1:] in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    try:
        print(build(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    except (OSError, ValueError) as e:
        sys.exit(f"wheel: {e}")
