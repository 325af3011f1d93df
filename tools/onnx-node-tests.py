#!/usr/bin/env python3
"""Writes the node tests of the ONNX standard as files.

    onnx-node-tests.py OUT_DIR

makes, for every case that the installed onnx package defines,

    OUT_DIR/<name>/model.onnx
    OUT_DIR/<name>/test_data_set_<i>/input_<j>.pb, output_<j>.pb

the layout of the standard's backend tests: each .pb is a TensorProto, or a SequenceProto, OptionalProto or MapProto
where the model declares that kind of value. OUT_DIR is made anew beside its place and renamed when it is whole, so an
interrupted run leaves no half of it. Needs onnx, numpy and ml_dtypes.
"""

import pathlib
import shutil
import sys
import warnings

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def message(value, info):
    """The protobuf message that holds value, of the kind that info declares."""
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto, onnx.MapProto)):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if kind == "tensor_type":
        return numpy_helper.from_array(value, info.name)
    raise ValueError(f"{info.name}: values of kind {kind} have no message")


def write_case(case, folder):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString(deterministic=True))
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        for prefix, values, infos in (
            ("input", inputs, case.model.graph.input),
            ("output", outputs, case.model.graph.output),
        ):
            for j, value in enumerate(values):
                raw = message(value, infos[j]).SerializeToString(deterministic=True)
                (data / f"{prefix}_{j}.pb").write_bytes(raw)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    partial = out.with_name(out.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # cases overflow and divide by zero on purpose
    cases = collect_testcases()
    for case in cases:
        try:
            write_case(case, partial / case.name)
        except Exception as err:
            err.add_note(f"in the case {case.name}")
            raise
    if out.exists():
        shutil.rmtree(out)
    partial.rename(out)
    print(f"{out}: {len(cases)} cases of onnx {onnx.__version__}")


if __name__ == "__main__":
    main()
