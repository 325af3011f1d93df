"""Writes models with older versions of ops, and cases that onnxruntime computed with these versions.

    older.py OUT_DIR

makes OUT_DIR/<name>/model.onnx and OUT_DIR/<name>/test_data_set_0/input_<i>.pb, output_<i>.pb. The standard's node
tests have the newest version of every op alone.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(7)
OUT = pathlib.Path(sys.argv[1])


def floats(*shape, dtype=np.float32):
    return rng.uniform(0.1, 2, shape).astype(dtype)


def ints(values, dtype=np.int64):
    return np.array(values, dtype)


def value(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def save(name, opset, nodes, inputs, outputs=("y",), functions=(), constants=()):
    """inputs are {name: array}; constants are initializers. onnxruntime finds the outputs' types."""
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in {f.domain for f in functions})]
    graph = helper.make_graph(
        nodes,
        name,
        [value(k, v) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in dict(constants).items()],
    )
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, inputs)
    del graph.output[:]
    graph.output.extend(value(o, r) for o, r in zip(outputs, results))
    model.graph.CopyFrom(graph)
    folder = OUT / f"{name}_{opset}"
    (folder / "test_data_set_0").mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    for prefix, arrays in (("input", inputs.values()), ("output", results)):
        for i, a in enumerate(arrays):
            (folder / "test_data_set_0" / f"{prefix}_{i}.pb").write_bytes(
                numpy_helper.from_array(a).SerializeToString()
            )


def one(name, opset, op, inputs, constants=(), outputs=("y",), **attributes):
    """One node, that reads the inputs and then the constants; an omitted input is one named ""."""
    names = [k if not k.startswith("none") else "" for k in [*inputs, *dict(constants)]]
    node = helper.make_node(op, names, outputs, name=name, **attributes)
    graph_outputs = [o for o in outputs if o]
    constants = {k: v for k, v in dict(constants).items() if not k.startswith("none")}
    save(name, opset, [node], inputs, graph_outputs, constants=constants)


def reductions():
    x = floats(2, 3, 4)
    for op in "L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare".split():
        one(f"reduce_{op}", 13, f"Reduce{op}", {"x": x}, axes=[-1, 0], keepdims=0)
        one(f"reduce_{op}", 17, f"Reduce{op}", {"x": x}, axes=[1])
        one(f"reduce_all_{op}", 17, f"Reduce{op}", {"x": x})
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["a"], name="first", axes=[2]),
        helper.make_node("ReduceMax", ["x"], ["b"], name="second", axes=[2]),
        helper.make_node("ReduceMin", ["x"], ["axes"], name="third", axes=[0, 2]),
        helper.make_node("Add", ["a", "b"], ["c"], name="sum"),
        helper.make_node("Add", ["c", "axes"], ["y"], name="sum_2"),
    ]
    save("reduce_shared", 15, nodes, {"x": x})


def before_13():
    x = floats(2, 3, 4)
    for op in "Softmax", "LogSoftmax", "Hardmax":
        for axis in (None, 0, 1, -1, -2):
            axes = {} if axis is None else {"axis": axis}
            one(f"{op}_{axis}", 11, op, {"x": x}, **axes)
    one("argmax", 11, "ArgMax", {"x": x}, axis=1)
    one("argmin", 11, "ArgMin", {"x": x}, axis=1)
    one("dropout", 11, "Dropout", {"x": x}, ratio=0.3)
    one("dropout_mask", 11, "Dropout", {"x": x}, outputs=("y", "z"))
    one("erf", 12, "Erf", {"x": x})
    one("gather_nd", 11, "GatherND", {"x": x}, {"i": ints([[0, 1], [1, 2]])})
    one("reduce_sum", 12, "ReduceSum", {"x": x}, axes=[-1])
    one("reduce_sum_all", 11, "ReduceSum", {"x": x}, keepdims=0)
    one("squeeze", 12, "Squeeze", {"x": x[:, :1]}, axes=[1])
    one("squeeze_all", 11, "Squeeze", {"x": x[:, :1]})
    one("unsqueeze", 11, "Unsqueeze", {"x": x}, axes=[0, -1])
    one("split", 12, "Split", {"x": x}, outputs=("y", "z"), axis=2, split=[1, 3])
    one("split_equal", 11, "Split", {"x": x}, outputs=("y", "z"), axis=-1)
    scales = {"roi": ints([], np.float32), "scales": ints([1, 1, 2, 1.5], np.float32)}
    one("resize_before", 11, "Resize", {"x": x[:, None]}, scales, mode="linear")
    one("quantize_before", 12, "QuantizeLinear", {"x": x}, {"scale": ints(0.1, np.float32), "zero": ints(3, np.uint8)})
    q = {"scale": ints(0.1, np.float32), "zero": ints(3, np.uint8)}
    one("dequantize_before", 12, "DequantizeLinear", {"x": rng.integers(0, 255, (4, 6)).astype(np.uint8)}, q)
    nodes = [
        helper.make_node("Constant", [], ["two"], name="two", value=numpy_helper.from_array(np.float32(2))),
        helper.make_node("Mul", ["x", "two"], ["y"], name="mul"),
    ]
    save("constant", 11, nodes, {"x": x})


def recurrent():
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        inputs = {"x": floats(5, 2, 3), "w": floats(1, gates * 4, 3), "r": floats(1, gates * 4, 4)}
        one(f"recurrent_{op}", 13, op, inputs, outputs=("", "y"), hidden_size=4)


def images():
    x = floats(1, 4, 6, 6)
    one("average_pool", 18, "AveragePool", {"x": x}, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])
    one("lp_pool", 17, "LpPool", {"x": x}, kernel_shape=[3, 2], strides=[2, 2])
    one("max_pool", 13, "MaxPool", {"x": x}, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    one("space_to_depth", 13, "SpaceToDepth", {"x": x}, blocksize=2)
    c = {"s": floats(4), "b": floats(4), "m": floats(4), "v": floats(4)}
    one("batch_norm", 13, "BatchNormalization", {"x": x}, c)
    for dtype in (np.float32, np.float64):
        group = {"s": floats(2, dtype=dtype), "b": floats(2, dtype=dtype)}
        one(f"group_norm_{dtype.__name__}", 18, "GroupNormalization", {"x": x.astype(dtype)}, group, num_groups=2)
    grid = rng.uniform(-1.2, 1.2, (1, 3, 2, 2)).astype(np.float32)
    for mode in ("bilinear", "bicubic", "nearest"):
        one(f"grid_sample_{mode}", 16, "GridSample", {"x": x, "grid": grid}, mode=mode, align_corners=1)
    one("grid_sample", 16, "GridSample", {"x": x, "grid": grid})
    rois = {"rois": ints([[0, 0, 4, 4], [1, 2, 5, 4]], np.float32), "batch": ints([0, 0])}
    one("roi_align", 15, "RoiAlign", {"x": x}, rois, output_height=2, output_width=2, sampling_ratio=2)
    scales = {"none_roi": ints([]), "scales": ints([1, 1, 2, 1.5], np.float32)}
    one("resize", 13, "Resize", {"x": x}, scales, mode="linear")
    one(
        "resize_nearest",
        13,
        "Resize",
        {"x": x},
        scales,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    one("pad", 13, "Pad", {"x": x}, {"pads": ints([0, 0, 1, 2, 0, 0, 3, 0]), "value": ints(1.5, np.float32)})


def signals():
    x = floats(2, 5, 6, 1)
    one("dft", 17, "DFT", {"x": x})
    one("dft_axis", 19, "DFT", {"x": x}, axis=2)
    one("dft_length", 17, "DFT", {"x": x}, {"length": ints(4)}, axis=1, onesided=1)
    one("range", 13, "Range", {"start": ints(1), "limit": ints(9), "delta": ints(3)})


def indices():
    x = floats(4, 6)
    one("split", 13, "Split", {"x": x}, outputs=("y", "z", "w"), axis=1)
    one("split_sizes", 13, "Split", {"x": x}, {"sizes": ints([1, 5])}, outputs=("y", "z"), axis=1)
    update = {"i": ints([[1, 0]]), "u": floats(1, 2)}
    one("scatter_elements", 13, "ScatterElements", {"x": x}, update)
    one("scatter_nd", 13, "ScatterND", {"x": x}, {"i": ints([[1], [3]]), "u": floats(2, 6)})
    q = {"scale": ints(0.1, np.float32), "zero": ints(3, np.uint8)}
    one("quantize", 13, "QuantizeLinear", {"x": x}, q)
    q = {"scale": floats(6), "zero": rng.integers(0, 9, 6).astype(np.uint8)}
    one("dequantize", 13, "DequantizeLinear", {"x": rng.integers(0, 255, (4, 6)).astype(np.uint8)}, q, axis=1)
    one("reshape", 13, "Reshape", {"x": x}, {"shape": ints([0, 2, -1])})
    one("shape", 13, "Shape", {"x": x})
    one("cast", 13, "Cast", {"x": x}, to=TensorProto.INT32)
    one("cast_like", 17, "CastLike", {"x": x}, {"like": ints(1, np.float64)})


def nested():
    """Reductions in the branches of an If and in a Loop, and in functions that take the axes as an attribute."""
    then = helper.make_graph(
        [helper.make_node("ReduceMax", ["x"], ["t"], name="then", axes=[1])],
        "then",
        [],
        [helper.make_empty_tensor_value_info("t")],
    )
    other = helper.make_graph(
        [helper.make_node("ReduceMin", ["x"], ["e"], name="else", axes=[1])],
        "else",
        [],
        [helper.make_empty_tensor_value_info("e")],
    )
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)
    save("if", 16, [node], {"x": floats(3, 4), "c": np.array(True)})
    float_type = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    body = helper.make_graph(
        [
            helper.make_node("Split", ["s"], ["p", "q"], name="split", axis=1),
            helper.make_node("Concat", ["q", "p"], ["joined"], name="join", axis=1),
            helper.make_node("ReduceMean", ["joined"], ["mean"], name="mean", axes=[1]),
            helper.make_node("Add", ["joined", "mean"], ["next"], name="add"),
            helper.make_node("Identity", ["go"], ["goes"], name="goes"),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_value_info("s", float_type),
        ],
        [helper.make_tensor_value_info("goes", TensorProto.BOOL, []), helper.make_value_info("next", float_type)],
    )
    node = helper.make_node("Loop", ["trips", "on", "x"], ["y"], name="loop", body=body)
    save("loop", 13, [node], {"x": floats(3, 4)}, constants={"trips": ints(3), "on": np.array(True)})

    mean = helper.make_node("ReduceMean", ["x"], ["m"], name="mean", keepdims=1)
    mean.attribute.append(ref("axes", onnx.AttributeProto.INTS))
    center = helper.make_function(
        "local", "Center", ["x"], ["y"], [mean, helper.make_node("Sub", ["x", "m"], ["y"], name="sub")],
        [helper.make_opsetid("", 17)], ["axes"],
    )
    peak = helper.make_node("ReduceMax", ["x"], ["m"], name="max", axes=[-1])
    again = helper.make_node("ReduceMin", ["m"], ["y"], name="min", axes=[-1])
    group = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], name="group")
    group.attribute.append(ref("num_groups", onnx.AttributeProto.INT))
    default = helper.make_function(
        "local", "Group", ["x", "s", "b"], ["y"], [group], [helper.make_opsetid("", 18)],
        attribute_protos=[helper.make_attribute("num_groups", 2)],
    )
    lowest = helper.make_function("local", "Lowest", ["x"], ["y"], [peak, again], [helper.make_opsetid("", 17)], [])
    nodes = [
        helper.make_node("Center", ["x"], ["a"], name="a", domain="local", axes=[0]),
        helper.make_node("Center", ["a"], ["b"], name="b", domain="local", axes=[-1, 1]),
        helper.make_node("Lowest", ["b"], ["y"], name="c", domain="local"),
    ]
    save("functions", 17, nodes, {"x": floats(3, 4, 5)}, functions=[center, lowest])
    node = helper.make_node("Group", ["x", "s", "b"], ["y"], name="a", domain="local")
    save("function_group", 18, [node], {"x": floats(1, 4, 3, 3), "s": floats(2), "b": floats(2)}, functions=[default])


def ref(name, kind):
    return onnx.AttributeProto(name=name, type=kind, ref_attr_name=name)


def main():
    for make in (before_13, reductions, recurrent, images, signals, indices, nested):
        make()


if __name__ == "__main__":
    main()
