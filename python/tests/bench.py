"""Prints what the module costs beside the command: its import, and apply.

    python python/tests/bench.py [ROUNDS]        (make bench-python)
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import mojo_patch

MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models" / "qwen3-dynamo-fp32.onnx")


def milliseconds(do):
    start = time.perf_counter()
    do()
    return 1000 * (time.perf_counter() - start)


def main(rounds):
    quietly = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as temp:
        out = temp + "/patched.onnx"
        program = mojo_patch.find_program()
        python = lambda code: subprocess.run([sys.executable, "-c", code], **quietly)
        measured = {
            "Python alone": lambda: python(""),
            "Python, import mojo_patch": lambda: python("import mojo_patch"),
            "Python, mojo_patch.apply imported": lambda: python("from mojo_patch import apply, Report"),
            "the program alone (version)": lambda: subprocess.run([program, "version"], **quietly),
            "the program through Python (python -m)":
                lambda: subprocess.run([sys.executable, "-m", "mojo_patch", "version"], **quietly),
            "mojo-patch apply --json":
                lambda: subprocess.run([program, "apply", MODEL, "-o", out, "--json"], **quietly),
            "mojo_patch.apply": lambda: mojo_patch.apply(MODEL, out),
        }
        for do in measured.values():
            do()
        # In turns, so that other load on the machine affects all of them.
        times = [[milliseconds(do) for do in measured.values()] for _ in range(rounds)]
    print(f"{'in milliseconds':40} {'least':>8} {'median':>8}")
    for what, column in zip(measured, zip(*times)):
        print(f"{what:40} {min(column):8.1f} {statistics.median(column):8.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
