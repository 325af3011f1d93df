"""Exports with recorded inputs and outputs, patched for a target, and their transcripts."""

import argparse
import contextlib
import datetime
import io
import json
import pathlib
import subprocess
import sys
from importlib import metadata

import numpy as np


class Export:
    """One NAME.onnx with its goldens NAME.npz."""

    def __init__(self, path, blocks):
        self.path, self.name, self.blocks = path, path.stem, blocks
        arrays = np.load(path.with_suffix(".npz"))
        self.cases = []
        for i in range(int(arrays["n"])):
            part = lambda kind: {
                key.split(".", 2)[2]: arrays[key] for key in arrays.files if key.startswith(f"{i}.{kind}.")
            }
            self.cases.append((part("in"), part("out")))

    @property
    def bfloat16(self):
        return "bf16" in self.name.split("-")


def read(folder):
    """The exports of a folder, whose truth.json says which blocks are in them."""
    truth = json.loads((folder / "truth.json").read_text())["models"]
    return [Export(p, truth[p.stem]["blocks"]) for p in sorted(folder.glob("*.onnx"))]


def patch(tool, export, target, shapes, to):
    """Makes mojo-patch write a model for the target; returns the report."""
    command = [tool, "apply", str(export.path), "--target", target, "-o", str(to), "--json"]
    for name, shape in ((n, s) for n, s in shapes.items() if s):
        command += ["--shape", name + "=" + "x".join(str(d) for d in shape)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def difference(inputs, outputs, want):
    """The greatest difference of any output, in units of its greatest magnitude. Rows of padding, with attention_mask
    0, mean nothing: a mask of the least float32 is infinite in float16.
    """
    worst = 0.0
    for name, w in want.items():
        got, w = np.asarray(outputs[name]).astype(np.float64), w.astype(np.float64)
        if got.shape != w.shape:
            raise RuntimeError(f"{name} has shape {got.shape}, not {w.shape}")
        d, magnitude = np.abs(got - w), np.abs(w).max()
        mask = inputs.get("attention_mask")
        if mask is not None and name == "logits" and mask.shape == d.shape[:2]:
            d = d[mask == 1]
        worst = max(worst, float(d.max() / magnitude) if d.size else 0.0)
    return worst if np.isfinite(worst) else float("inf")


def header(title, packages):
    """The first lines of a transcript."""
    print(title)
    print(datetime.date.today().isoformat() + ", " + ", ".join(f"{p} {metadata.version(p)}" for p in packages))


def table(rows):
    """Rows of strings in columns; numbers are aligned to the right."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    right = [all(c == "" or c[0].isdigit() for c in column[1:]) for column in zip(*rows)]
    for r in rows:
        cells = [c.rjust(w) if to_right else c.ljust(w) for c, w, to_right in zip(r, widths, right)]
        print("  ".join(cells).rstrip())


def main(run, description):
    """Runs a transcript's program; exits with 1 when something is not as it should be."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("tool", help="mojo-patch")
    parser.add_argument("models", type=pathlib.Path, help="folder of exports, with truth.json")
    parser.add_argument("names", nargs="*", help="the exports to run; all of the folder if none is named")
    parser.add_argument("-o", dest="transcript", type=pathlib.Path, help="file for the transcript (standard output)")
    args = parser.parse_args()
    picked = [e for e in read(args.models.resolve()) if not args.names or e.name in args.names]
    if not picked:
        sys.exit("no such exports")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):  # libraries write to the process's own
        faults = run(str(pathlib.Path(args.tool).resolve()), picked)
        for fault in faults:
            print("FAILED " + fault)
        print("FAILED" if faults else "PASSED")
    if args.transcript and not faults:
        args.transcript.write_text(text.getvalue())
        print(text.getvalue().splitlines()[0] + ": PASSED")
    else:
        print(text.getvalue(), end="")
    sys.exit(1 if faults else 0)
