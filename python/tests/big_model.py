"""Writes a model with more than 2 GB of weights: layers of RMSNorm and MatMul.

usage: big_model.py MODEL [LAYERS]        (each layer has a matrix of 4096 times 4096 floats, 64 MiB; 36 by default)

The matrices lie in MODEL.data, which is a sparse file where the file system has such: the zeros take no space.
"""

import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH = 4096


def matrix(name, location, offset):
    """A square matrix whose elements lie in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH],
                         data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", 4 * WIDTH * WIDTH)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def layer(i, x):
    """The nodes of a layer as exporters write them, and the name of the last one's output."""
    name = lambda part: f"layers.{i}.{part}"
    nodes = [
        helper.make_node("Pow", [x, "two"], [name("square")], name("pow")),
        helper.make_node("ReduceMean", [name("square"), "last"], [name("mean")], name("mean"), keepdims=1),
        helper.make_node("Add", [name("mean"), "epsilon"], [name("sum")], name("add")),
        helper.make_node("Sqrt", [name("sum")], [name("root")], name("sqrt")),
        helper.make_node("Div", [x, name("root")], [name("normal")], name("div")),
        helper.make_node("Mul", [name("scale"), name("normal")], [name("scaled")], name("mul")),
        helper.make_node("MatMul", [name("scaled"), name("weight")], [name("out")], name("matmul")),
    ]
    return nodes, name("out")


def write(path, layers=36):
    path = str(path)
    data = path + ".data"
    constants = [
        numpy_helper.from_array(np.float32(2), "two"),
        numpy_helper.from_array(np.array([-1], np.int64), "last"),
        numpy_helper.from_array(np.float32(1e-6), "epsilon"),
    ]
    nodes, x = [], "x"
    size = 4 * WIDTH * WIDTH
    with open(data, "wb") as f:
        for i in range(layers):
            more, x = layer(i, x)
            nodes += more
            constants += [numpy_helper.from_array(np.full(WIDTH, 1 + i / 64, np.float32), f"layers.{i}.scale"),
                          matrix(f"layers.{i}.weight", data.replace("\\", "/").rsplit("/", 1)[-1], i * size)]
            f.seek(i * size)
            f.write(np.float32([i + 1]).tobytes())  # one element that tells the matrices apart
        f.truncate(layers * size)
    shape = ["batch", WIDTH]
    graph = helper.make_graph(nodes, "big", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with open(path, "wb") as f:
        f.write(model.SerializeToString())


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:]))
