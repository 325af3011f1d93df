#!/usr/bin/env python3
"""Tests the wheel of build/wheel where that takes long: `make test-python-long`.

usage: python/tests/long.py [STEP...]        (versions, big, exporters, source; all by default)

versions   the oldest and the newest Python that is at hand, with the packages that pip finds for it
big        a model over 2 GB
exporters  docs/examples/export and all of docs/quickstart.md, with torch, transformers and optimum
source     `pip install .` with Go and CMake, and that of an sdist with the oldest Python
What cannot be installed is said and passed over; what was run is listed at the end.
"""

import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "python" / "tests"
EXAMPLES = ROOT / "docs" / "examples" / "export"
ran = []


def run(*command, **how):
    print("+", *command, flush=True)
    subprocess.run([str(c) for c in command], check=True, **how)


def pythons():
    """The Pythons from 3.8 on that are here, by their version."""
    found = {}
    names = [f"python3.{n}" for n in range(8, 30)]
    paths = [p for p in map(shutil.which, names) if p]
    for path in [sys.executable, *paths, *glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))]:
        done = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True,
                              check=False)
        version = tuple(map(int, done.stdout.split())) if done.returncode == 0 else (0, 0)
        if version >= (3, 8):
            found.setdefault(version, path)
    return found


def environment(name, python, *requirements):
    """Makes an environment with the wheel; None if a package is not available."""
    folder = ROOT / "build" / "python" / name
    program = folder / "bin" / "python"
    if not program.exists():
        run(python, "-m", "venv", folder)
    [wheel] = (ROOT / "build" / "wheel").glob("mojo_patch-*.whl")
    pip = [program, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    try:
        run(*pip, *requirements)
    except subprocess.CalledProcessError:
        print(f"{name}: skipped, its packages cannot be installed here")
        return None
    run(*pip, "--no-deps", "--force-reinstall", wheel)
    return program


def plain(version, path):
    return environment("{}.{}".format(*version), path, "onnx", "onnxruntime", "tqdm")


def versions():
    here = pythons()
    for version in sorted({min(here), max(here)}):
        python = plain(version, here[version])
        if python:
            run(python, TESTS / "test_module.py")
            run(python, TESTS / "test_docs.py")
            ran.append("the tests of the module and the documents with Python {}.{}".format(*version))


def big():
    here = pythons()
    python = plain(max(here), here[max(here)])
    if python:
        run(python, TESTS / "test_big.py")
        ran.append("a model over 2 GB")


def exporters():
    requirements = ROOT / "tools" / "requirements"
    with tempfile.TemporaryDirectory() as temp:
        python = environment("exporters", sys.executable, "-r", requirements / "exporters.txt")
        if python:
            run(python, EXAMPLES / "torch_export.py", os.path.join(temp, "torch.onnx"))
            run(python, EXAMPLES / "transformers_export.py", os.path.join(temp, "transformers.onnx"))
            run(python, TESTS / "test_docs.py")
            ran.append("torch.onnx.export, transformers' exporter, the export of docs/quickstart.md")
        python = environment("optimum", sys.executable, "-r", requirements / "optimum.txt")
        if python:
            run(python, EXAMPLES / "optimum_export.py", os.path.join(temp, "exported"), os.path.join(temp, "patched"))
            ran.append("optimum's folder")


def source():
    if not shutil.which("go"):
        print("source: skipped, there is no Go")
        return
    here = pythons()
    with tempfile.TemporaryDirectory() as temp:
        run(sys.executable, "-c", f"import backend; backend.build_sdist({temp!r})", cwd=ROOT / "python")
        [sdist] = pathlib.Path(temp).glob("mojo_patch-*.tar.gz")
        for name, python, what in [("source", sys.executable, ROOT), ("sdist", here[min(here)], sdist)]:
            folder = ROOT / "build" / "python" / name
            shutil.rmtree(folder, ignore_errors=True)
            run(python, "-m", "venv", folder)
            run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", what)
            run(folder / "bin" / "mojo-patch", "doctor", env={**os.environ, "MOJO_OPS_LIBRARY": ""})
            ran.append(f"pip install of {what.name if what == sdist else 'the clone'}")


def main(steps):
    for step in steps or ["versions", "big", "exporters", "source"]:
        {"versions": versions, "big": big, "exporters": exporters, "source": source}[step]()
    if not ran:
        sys.exit("nothing was run")
    print("ran:", *ran, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
