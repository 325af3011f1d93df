#!/usr/bin/env python3
"""Writes the models of a folder again with other dimensions: those with goldens of NAME.npz, and truth.json.

    dims.py DIR --out OUT --form unnamed|apart|static

"unnamed" takes the names from all symbolic dimensions, "apart" gives each a name of its own, as tf2onnx does, and
"static" puts the numbers of the first recorded case in their place. What exporters declare of inner values goes.
"""

import argparse
import itertools
import pathlib
import shutil

import numpy as np
import onnx


def change(model, form, shapes):
    count = itertools.count()
    del model.graph.value_info[:]
    for v in [*model.graph.input, *model.graph.output]:
        for i, d in enumerate(v.type.tensor_type.shape.dim):
            if d.HasField("dim_value"):
                continue
            d.Clear()
            if form == "apart":
                d.dim_param = f"unk__{next(count)}"
            elif form == "static" and v.name in shapes:
                d.dim_value = shapes[v.name][i]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--form", choices=["unnamed", "apart", "static"], required=True)
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(args.dir / "truth.json", args.out)
    for path in sorted(args.dir.glob("*.onnx")):
        cases = dict(np.load(path.with_suffix(".npz")))
        shapes = {k.split(".", 2)[2]: v.shape for k, v in cases.items() if k.startswith("0.")}
        if args.form == "static":
            cases = {k: v for k, v in cases.items() if k.startswith("0.")} | {"n": np.int64(1)}
        model = onnx.load(path)
        change(model, args.form, shapes)
        onnx.save(model, args.out / path.name)
        np.savez_compressed(args.out / path.with_suffix(".npz").name, **cases)


if __name__ == "__main__":
    main()
