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


def clock(do, rounds):
    """Median and half the spread of the quartiles, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        do()
        times.append(1000 * (time.perf_counter() - start))
    lower, median, upper = statistics.quantiles(times, n=4)
    return f"{median:.0f} ms ± {(upper - lower) / 2:.0f}"


def main(rounds):
    quietly = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as temp:
        out = temp + "/patched.onnx"
        program = mojo_patch.find_program()
        for what, do in [
            ("Python alone", lambda: subprocess.run([sys.executable, "-c", ""], **quietly)),
            ("Python, import mojo_patch",
             lambda: subprocess.run([sys.executable, "-c", "import mojo_patch"], **quietly)),
            ("Python, mojo_patch.apply imported",
             lambda: subprocess.run([sys.executable, "-c", "from mojo_patch import apply, Report"], **quietly)),
            ("the program alone (version)", lambda: subprocess.run([program, "version"], **quietly)),
            ("the program through Python (python -m)",
             lambda: subprocess.run([sys.executable, "-m", "mojo_patch", "version"], **quietly)),
            ("mojo-patch apply --json",
             lambda: subprocess.run([program, "apply", MODEL, "-o", out, "--json"], **quietly)),
            ("mojo_patch.apply", lambda: mojo_patch.apply(MODEL, out)),
        ]:
            do()
            print(f"{what:40} {clock(do, rounds)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
