"""Checks models with onnx's checker and runs them in onnx's reference evaluator.

    reference.py MODEL.onnx RECORDED.npz [MODEL.onnx RECORDED.npz ...]

Every case of RECORDED must come out as it was recorded. "-" in the place of RECORDED checks the model and does not run
it.
"""

import sys

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

TOLERANCE = {np.dtype(np.float32): 2e-4, np.dtype(np.float16): 2e-2}


def run(path, recorded):
    """Runs all cases; gives how many there were."""
    session = ReferenceEvaluator(path)
    cases = np.load(recorded)
    count = int(cases["n"])
    for case in range(count):
        prefix = f"{case}.in."
        inputs = {k[len(prefix):]: cases[k] for k in cases.files if k.startswith(prefix)}
        for name, got in zip(session.output_names, session.run(None, inputs), strict=True):
            want = cases[f"{case}.out.{name}"]
            if got.dtype != want.dtype or got.shape != want.shape:
                raise ValueError(
                    f"output {name} is {got.dtype}{list(got.shape)}, recorded is {want.dtype}{list(want.shape)}"
                )
            worst = np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0) / max(
                1, np.abs(want.astype(np.float64)).max(initial=0)
            )
            if not worst <= TOLERANCE[want.dtype]:
                raise ValueError(f"output {name} of case {case} differs by {worst:.3g} of the greatest magnitude")
    return count


def main():
    bad = cases = 0
    pairs = list(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    for path, recorded in pairs:
        try:
            onnx.checker.check_model(path, full_check=True)
            if recorded != "-":
                cases += run(path, recorded)
        except Exception as error:
            bad += 1
            print(f"{path}: {type(error).__name__}: {error}")
    print(f"{len(pairs)} models checked, {cases} cases run, {bad} of the models failed")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
