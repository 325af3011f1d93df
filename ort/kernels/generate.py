"""Write the table of the kernels of onnxruntime's providers for the CPU and CUDA: generate.py TABLE

It asks the onnxruntime-gpu that is installed which kernels it has registered, so it needs a GPU:

    pip install onnxruntime-gpu==1.31.1  # and TensorRT, whose provider it opens as well
    python ort/kernels/generate.py ort/kernels/table.txt.gz
"""

import gzip
import sys
from collections import defaultdict

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

DEVICES = {"CPUExecutionProvider": "CPU", "CUDAExecutionProvider": "CUDA"}
OPEN = 2**31 - 1  # the last version of a kernel that has none


def plain(types):
    """Write tensor(double) as float64, as the program names types."""
    for name, ours in (("tensor(double)", "float64"), ("tensor(float)", "float32"), ("tensor(", ""), (")", "")):
        types = types.replace(name, ours)
    return types


def merged(kernels):
    """Make one of kernels that differ in the types behind one name alone: onnxruntime has one for each type."""
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


def lines():
    """Return the version, a line for each op, with the versions of its schema, and below it one for each kernel:
    device, first and last version (0: the first alone), types of the inputs, and the types behind a name of types."""
    schemas = defaultdict(dict)
    for schema in state.get_all_operator_schema():
        schemas[schema.domain or "ai.onnx", schema.name][schema.since_version] = schema
    kernels = defaultdict(lambda: defaultdict(list))
    for kernel in state.get_all_opkernel_def():
        if kernel.provider in DEVICES:
            types = {name: {plain(one) for one in many} for name, many in kernel.type_constraints.items()}
            place = DEVICES[kernel.provider], *kernel.version_range
            kernels[kernel.domain or "ai.onnx", kernel.op_name][place].append(types)
    if not any(place[0] == "CUDA" for op in kernels.values() for place in op):
        raise SystemExit("generate.py: onnxruntime has no kernels for CUDA here")
    yield onnxruntime.__version__
    for op, versions in sorted(schemas.items()):
        yield "\t".join([*op, " ".join(map(str, sorted(versions)))])
        for (device, first, last), list_of_types in sorted(kernels[op].items(), key=lambda k: (k[0][0], -k[0][1])):
            schema = versions[max((v for v in versions if v <= first), default=min(versions))]
            names = ",".join(plain(i.typeStr) for i in schema.inputs)
            for types in merged(list_of_types):
                types = ";".join(f"{name}={','.join(sorted(many))}" for name, many in sorted(types.items()))
                yield "\t".join([device, str(first), str(0 if last == OPEN else last), names, types])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: generate.py TABLE")
    text = "".join(f"{line}\n" for line in lines())
    with open(sys.argv[1], "wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as table:
        table.write(text.encode())


if __name__ == "__main__":
    main()
