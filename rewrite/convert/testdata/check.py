"""Checks converted models with Python's onnx.

    check.py < LINES

Each line is a model, the model that it was made from, and the folder of a recorded case (input_0.pb, ..., output_0.pb,
...) or nothing, with tabs between them. Every model goes through onnx.checker with full shape inference; one with a
case is run by onnx's reference evaluator, too, which must give what is recorded. What fails is printed, unless the
model that it was made from fails, too.
"""

import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


def tensor(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def run(model, folder):
    feeds = {v.name: tensor(folder / f"input_{i}.pb") for i, v in enumerate(model.graph.input)}
    outputs = ReferenceEvaluator(model).run(None, feeds)
    for i, got in enumerate(outputs):
        want = tensor(folder / f"output_{i}.pb")
        if want.dtype.kind in "fciub":
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 if want.dtype == np.float16 else 1e-5)
        else:
            np.testing.assert_array_equal(got, want)


def check(path, folder):
    onnx.checker.check_model(path, full_check=True)
    if folder:
        run(onnx.load(path), pathlib.Path(folder))


def passes(path, folder):
    try:
        check(path, folder)
    except Exception:
        return False
    return True


def main():
    warnings.filterwarnings("ignore")
    bad, passed, excused = 0, 0, []
    for line in sys.stdin:
        path, before, folder = line.rstrip("\n").split("\t")
        try:
            check(path, folder)
            passed += 1
        except Exception as err:
            if not passes(before, folder):
                excused.append(before)
                continue
            bad += 1
            print(f"{path}: {type(err).__name__}: {str(err)[:600]}")
    print(f"{passed} models pass, {len(excused)} fail as they did before: {' '.join(excused)}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
