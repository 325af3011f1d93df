"""Writes models of bfloat16 as models of float32: widen.py FOLDER MODEL...

For providers that have no bfloat16 kernels of the standard's ops: what a model computes is then the same but for its
roundings.
"""

import os
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

BF16 = TensorProto.BFLOAT16


def tensor(t):
    if t.data_type == BF16:
        bits = np.frombuffer(t.raw_data, np.uint16) if t.raw_data else np.array(t.int32_data, np.uint16)
        values = bits.view(ml_dtypes.bfloat16)
        t.CopyFrom(numpy_helper.from_array(values.astype(np.float32).reshape(t.dims), t.name))


def info(value):
    if value.type.tensor_type.elem_type == BF16:
        value.type.tensor_type.elem_type = TensorProto.FLOAT


def nodes(list_of_nodes):
    for node in list_of_nodes:
        for a in node.attribute:
            if a.type == AttributeProto.TENSOR:
                tensor(a.t)
            elif a.type == AttributeProto.GRAPH:
                graph(a.g)
            elif a.name in ("to", "dtype", "output_dtype") and a.i == BF16:
                a.i = TensorProto.FLOAT


def graph(g):
    for t in g.initializer:
        tensor(t)
    for value in (*g.input, *g.output, *g.value_info):
        info(value)
    nodes(g.node)


def main():
    for path in sys.argv[2:]:
        model = onnx.load(path)
        graph(model.graph)
        for function in model.functions:
            nodes(function.node)
        onnx.save(model, os.path.join(sys.argv[1], os.path.basename(path)))


main()
