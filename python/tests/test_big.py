"""Patches, opens and compares a model with 2.4 GB of weights, and prints the memory that it took.

    python python/tests/test_big.py

with the Python of an environment that has the wheel, onnx, onnxruntime and numpy. It needs 5 GB of disk and 8 GB of
memory, and some minutes.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import big_model

# Each runs in a separate process, to measure its memory.
APPLY = """
report = mojo_patch.apply(sys.argv[1], sys.argv[2])
assert report.fused == 36, report.fused
program = report.peak_rss_bytes
"""
APPLY_MODEL = """
import onnx
model = onnx.load(sys.argv[1])
said("loaded")
patched, report = mojo_patch.apply_model(model)
program = report.peak_rss_bytes
assert report.fused == 36, report.fused
starts = lambda m: {t.name: (len(t.raw_data), t.raw_data[:4]) for t in m.graph.initializer if t.name.endswith("weight")}
assert starts(patched) == starts(model)
assert sum(size for size, _ in starts(patched).values()) > 2 ** 31
"""
SESSION = """
import numpy as np
session = mojo_patch.session(sys.argv[2])
x = np.linspace(-1, 1, 2 * 4096, dtype=np.float32).reshape(2, 4096)
assert np.isfinite(session.run(None, {"x": x})[0]).all()
"""
DIFF = """
assert mojo_patch.diff(sys.argv[1], sys.argv[2]).passed
"""
FRAME = """
import resource, sys, time
import mojo_patch
def said(what):
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{what}: {time.perf_counter() - start:.1f} s, at most {python} MB in Python"
          + (f" and {program >> 20} MB in the program" if program else ""))
start, program = time.perf_counter(), 0
"""


class Big(unittest.TestCase):
    def test_all(self):
        with tempfile.TemporaryDirectory() as name:
            given = pathlib.Path(name) / "given"
            given.mkdir()
            big_model.write(given / "big.onnx")
            patched = pathlib.Path(name) / "patched.onnx"
            for what, code in [("apply", APPLY), ("apply_model", APPLY_MODEL), ("session", SESSION), ("diff", DIFF)]:
                script = f"{FRAME}{code}\nsaid({what!r})"
                done = subprocess.run([sys.executable, "-c", script, str(given / "big.onnx"), str(patched)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False)
                self.assertEqual(done.returncode, 0, done.stdout[-2000:])
                print(done.stdout, end="", flush=True)


if __name__ == "__main__":
    unittest.main()
