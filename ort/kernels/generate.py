"""Write the table of the kernels of onnxruntime's providers for the CPU and CUDA.

    generate.py list FILE
    generate.py merge TABLE FILE...

"list" asks the onnxruntime that is installed which kernels it has registered, "merge" makes the table of such lists,
one for each version. Lines about a device that no list has are taken from the table that is there: CUDA's need a
machine with a GPU.

    for v in 1.29.0 1.30.0 1.31.1 1.32.0; do
        python -m venv $v && $v/bin/pip install onnxruntime==$v
        $v/bin/python ort/kernels/generate.py list $v.txt
    done
    python ort/kernels/generate.py merge ort/kernels/table.txt.gz 1.*.txt

With onnxruntime-gpu (and TensorRT, whose provider it opens as well) "list" lists CUDA's kernels, too.
"""

import gzip
import pathlib
import sys
from collections import defaultdict

DEVICES = {"CPUExecutionProvider": "CPU", "CUDAExecutionProvider": "CUDA"}
OPEN = 2**31 - 1  # the last version of a current kernel

# Ops without a kernel that run on their definition: inputs, by type and shape, and attributes.
FLOAT, HALF, INT64 = 1, 10, 7
BODIES = {
    "Attention": ([(FLOAT, [1, 2, 3, 8])] * 3, {}),
    "Bernoulli": ([(FLOAT, [2, 3])], {}),
    "CastLike": ([(FLOAT, [2, 3]), (HALF, [1])], {}),
    "CausalConvWithState": ([(FLOAT, [1, 4, 8]), (FLOAT, [4, 1, 3])], {}),
    "Celu": ([(FLOAT, [2, 3])], {}),
    "CenterCropPad": ([(FLOAT, [2, 3]), (INT64, [2])], {}),
    "GroupNormalization": ([(FLOAT, [1, 4, 3]), (FLOAT, [-1]), (FLOAT, [-1])], {"num_groups": 2}),
    "HardSwish": ([(FLOAT, [2, 3])], {}),
    "LinearAttention": (
        [(FLOAT, [1, 3, 8])] * 3,
        {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"},
    ),
    "Mish": ([(FLOAT, [2, 3])], {}),
    "NegativeLogLikelihoodLoss": ([(FLOAT, [2, 3]), (INT64, [2])], {}),
    "ReduceLogSum": ([(FLOAT, [3])], {}),
    "ReduceLogSumExp": ([(FLOAT, [3])], {}),
    "SoftmaxCrossEntropyLoss": ([(FLOAT, [2, 3]), (INT64, [2])], {}),
    "SwiGLU": ([(FLOAT, [2, 3]), (FLOAT, [2, 3])], {}),
    "Swish": ([(FLOAT, [2, 3])], {}),
}
STATEFUL = ["CausalConvWithState", "LinearAttention"]


def plain(types):
    """Write tensor(double) as float64, as the program names types."""
    for name, ours in (("tensor(double)", "float64"), ("tensor(float)", "float32"), ("tensor(", ""), (")", "")):
        types = types.replace(name, ours)
    return types


def merged(kernels):
    """Merge kernels that differ only in the types behind one name: onnxruntime has one for each type."""
    kept = []
    for types in kernels:
        for other in kept:
            differ = [name for name in types if types[name] != other.get(name)]
            if types.keys() == other.keys() and len(differ) <= 1:
                other.update({name: other[name] | types[name] for name in differ})
                break
        else:
            kept.append(dict(types))
    return kept if len(kept) == len(kernels) else merged(kept)


def opens(op, opset):
    """Return whether onnxruntime opens a model of one node of this opset."""
    import onnxruntime
    from onnx import helper

    inputs, attributes = BODIES.get(op, ([(FLOAT, [1])], {}))
    values = [helper.make_tensor_value_info(f"x{i}", *typed) for i, typed in enumerate(inputs)]
    outputs = ["y", "state"] if op in STATEFUL else ["y"]
    node = helper.make_node(op, [v.name for v in values], outputs, **attributes)
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info(y) for y in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def listed():
    """Return, for each op, the versions of its schema, and one line for each kernel: device, first and last version (0:
    only the first), types of the inputs, and the types behind a name of types. The device "body" marks an op that runs
    on its definition, in models of these opsets. Lines begin with their op.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    onnxruntime.set_default_logger_severity(4)
    schemas = defaultdict(dict)
    for schema in state.get_all_operator_schema():
        schemas[schema.domain or "ai.onnx", schema.name][schema.since_version] = schema
    kernels = defaultdict(lambda: defaultdict(list))
    for kernel in state.get_all_opkernel_def():
        if kernel.provider in DEVICES:
            types = {name: {plain(one) for one in many} for name, many in kernel.type_constraints.items()}
            place = DEVICES[kernel.provider], *kernel.version_range
            kernels[kernel.domain or "ai.onnx", kernel.op_name][place].append(types)
    newest = max(opset for opset in range(20, 40) if opens("Identity", opset))
    yield f"{onnxruntime.__version__}:{newest}"
    for op, versions in sorted(schemas.items()):
        yield "\t".join([*op, "versions", " ".join(map(str, sorted(versions)))])
        if op[0] == "ai.onnx" and op[1] in BODIES:
            run = [opset for opset in range(11, newest + 1) if opset >= min(versions) and opens(op[1], opset)]
            if run:
                yield "\t".join([*op, "body", str(run[0]), str(run[-1]), "", ""])
        for (device, first, last), list_of_types in sorted(kernels[op].items(), key=lambda k: (k[0][0], -k[0][1])):
            schema = versions[max((v for v in versions if v <= first), default=min(versions))]
            names = ",".join(plain(i.typeStr) for i in schema.inputs)
            for types in merged(list_of_types):
                types = ";".join(f"{name}={','.join(sorted(many))}" for name, many in sorted(types.items()))
                yield "\t".join([*op, device, str(first), str(0 if last == OPEN else last), names, types])


def unpacked(table):
    """Return the lists that a table was made of."""
    lines = gzip.decompress(pathlib.Path(table).read_bytes()).decode().splitlines()
    lists = {header: [] for header in lines[0].split("\t")}
    op = []
    for line in lines[1:]:
        cells = line.split("\t")
        if len(cells) == 2:
            op = cells
            continue
        for i, header in enumerate(lists):
            if int(cells[0], 16) >> i & 1:
                lists[header].append("\t".join(op + cells[1:]))
    return lists


def device(line):
    return line.split("\t")[2]


def merge(table, files):
    """Return the lines of a table: the versions, with the newest opset of each; and for each op its name and the lines
    of the lists, which begin with their versions, as bits.
    """
    old = unpacked(table) if pathlib.Path(table).exists() else {}
    lists = {}
    for file in files:
        header, *lines = pathlib.Path(file).read_text().splitlines()
        have = {device(line) for line in lines}
        lists[header] = lines + [line for line in old.get(header, []) if device(line) not in have]
    order, bits = {}, defaultdict(int)
    for i, header in enumerate(sorted(lists, key=lambda h: [int(n) for n in h.split(":")[0].split(".")])):
        for line in lists[header]:
            op = tuple(line.split("\t")[:2])
            order.setdefault(op, {})[line] = None
            bits[line] |= 1 << i
    yield "\t".join(sorted(lists, key=lambda h: [int(n) for n in h.split(":")[0].split(".")]))
    for op in sorted(order):
        yield "\t".join(op)
        for line in sorted(order[op], key=lambda line: (device(line) != "versions", device(line))):
            yield f"{bits[line]:x}\t" + "\t".join(line.split("\t")[2:])


def main():
    match sys.argv[1:]:
        case ["list", file]:
            pathlib.Path(file).write_text("".join(f"{line}\n" for line in listed()))
        case ["merge", table, _, *_]:
            text = "".join(f"{line}\n" for line in merge(table, sys.argv[3:]))
            with open(table, "wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
                packed.write(text.encode())
        case _:
            sys.exit("usage: generate.py list FILE | generate.py merge TABLE FILE...")


if __name__ == "__main__":
    main()
