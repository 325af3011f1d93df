#!/usr/bin/env python3
"""Writes models with functions, and what onnx.inliner makes of them.

    inline.py OUT [NODE_TESTS]

writes OUT/nest.onnx, a nest of functions, and for each node test in the folder NODE_TESTS (see
tools/onnx-node-tests.py) that has an op which the standard defines as a function, OUT/<name>.onnx, where that op is a
call of such a function. Beside each stands <name>.inlined.onnx. onnx.inliner passes over the defaults of attributes,
and loses outputs that are inputs: it gets models without them.
"""

import pathlib
import sys

import onnx
from onnx import defs, helper, inliner, parser

NEST = """
<ir_version: 10, opset_import: ["": 21, "outer": 1, "inner": 1, "idle": 3]>
nest (float[n, 4] x, bool flag) => (float[n, 4] y, float[n, 4] z, float same, float[n, 4] again, float[n, 4] chosen,
                                   float[n, 4] looped)
<float[n, 4] t, float[n, 4] u>
{
   t = Abs(x)
   [first] y, z = outer.Layer <slope: float = 0.25, upper: int = 1> (x, t)
   [second] u = outer.Layer <slope: float = 2.0> (y)
   [third] , v = outer.Layer <slope: float = 0.5> (u, z)
   w = ReduceSum <keepdims: int = 0> (v)
   [passed] same, again = inner.Pass(w, u)
   [if_flag] chosen = If (flag) <
      then_branch = then_graph () => (float[n, 4] a) { [in_then] a, t_1 = outer.Layer <slope: float = 3.0> (x) },
      else_branch = else_graph () => (float[n, 4] b) { o = inner.Scale <by: float = -1.0> (again)  b = Identity(o) }>
   [loop] looped = outer.Twice <rate: float = 0.5> (chosen)
}
<domain: "inner", opset_import: ["": 21]>
Scale <low, by: float = 1.5> (x, limit) => (t)
{
   factor = Constant <value_float: float = @by> ()
   scaled = Mul(x, factor)
   [leak] leaky = LeakyRelu <alpha: float = @low> (scaled)
   [clip] t = Clip(leaky, limit)
}
<domain: "inner", opset_import: ["": 21]>
Pass (a, b) => (a, b) { unread = Neg(b) }
<domain: "outer", opset_import: ["": 21, "inner": 1]>
Layer <slope, upper: int = 0> (x, bias) => (y, t)
{
   none = Constant <value_float: float = -1.0> ()
   [scale] t = inner.Scale <by: float = @slope> (x, none)
   [again] u = inner.Scale <low: float = @slope> (x)
   up = Constant <value_int: int = @upper> ()
   is_up = Cast <to: int = 9> (up)
   [choose] s = If (is_up) <
      then_branch = g () => (r) { [deep] r = inner.Scale <by: float = @slope> (u) },
      else_branch = h () => (q) { p = Constant <value_float: float = @slope> ()  q = Add(t, p) }>
   y = Add(s, t)
}
<domain: "outer", opset_import: ["": 21, "inner": 1]>
Twice <rate> (x) => (y)
{
   two = Constant <value_int: int = 2> ()
   yes = Constant <value: tensor = bool {1}> ()
   y = Loop (two, yes, x) <body = b (i, c, s) => (c_out, s_out) {
      c_out = Identity(c)
      [step] t = inner.Scale <by: float = @rate> (s)
      s_out = Add(t, x)
   }>
}
<domain: "idle", opset_import: ["": 17]>
Unused (x) => (y) { y = Neg(x) }
"""


def explicit(model):
    """The model with the defaults of attributes on its calls, and with Identity nodes for outputs that are inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    functions = {(f.domain, f.name): f for f in copy.functions}

    def visit(nodes):
        for n in nodes:
            f = functions.get((n.domain, n.op_type))
            given = {a.name for a in n.attribute}
            n.attribute.extend(a for a in (f.attribute_proto if f else ()) if a.name not in given)
            for a in n.attribute:
                visit(a.g.node)

    visit(copy.graph.node)
    for f in copy.functions:
        visit(f.node)
    for f in copy.functions:
        del f.attribute_proto[:]
        for i, name in enumerate(f.output):
            if name in f.input:
                f.output[i] = f"{name}_out"
                f.node.append(helper.make_node("Identity", [name], [f.output[i]]))
    return copy


def function_of(node, types, opset):
    """The op's definition as a function, or None."""
    try:
        schema = defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return None
    f = onnx.FunctionProto()
    if schema.has_function and schema.function_opset_versions:
        version = max((v for v in schema.function_opset_versions if v <= opset), default=None)
        if version is None:
            return None
        f.ParseFromString(schema.get_function_with_opset_version(version))
    elif schema.has_context_dependent_function and all(types):
        version = max((v for v in schema.context_dependent_function_opset_versions if v <= opset), default=None)
        if version is None:
            return None
        f.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), [t.SerializeToString() for t in types]
            )
        )
    else:
        return None
    if not f.node:
        return None
    del f.opset_import[:], f.attribute[:], f.attribute_proto[:]
    f.opset_import.add(domain="", version=opset)
    f.opset_import.add(domain="standard", version=1)
    for a in schema.attributes.values():
        if a.default_value.name:
            f.attribute_proto.add().CopyFrom(a.default_value)
        else:
            f.attribute.append(a.name)
    return f


def with_functions(model):
    """Replaces the ops that are functions by calls, also in the functions; whether there is any."""
    opset = next((o.version for o in model.opset_import if o.domain == ""), 0)
    known = {v.name: v.type for v in model.graph.input}
    made = 0

    def visit(nodes, types):
        nonlocal made
        for n in nodes:
            f = function_of(n, [types.get(x) for x in n.input if x], opset) if n.domain == "" else None
            if f is None:
                continue
            made += 1
            f.domain, f.name = "standard", f"{n.op_type}_{made}"
            n.domain, n.op_type = f.domain, f.name
            visit(f.node, {})
            model.functions.append(f)

    visit(model.graph.node, known)
    model.opset_import.add(domain="standard", version=1)
    model.ir_version = max(model.ir_version, 8)
    return made > 0


def write(model, out, name):
    (out / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
    inlined = inliner.inline_local_functions(explicit(model))
    (out / f"{name}.inlined.onnx").write_bytes(inlined.SerializeToString(deterministic=True))


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    nest = parser.parse_model(NEST)
    onnx.checker.check_model(nest)
    for f in nest.functions:
        for n in f.node:
            n.metadata_props.add(key="from", value=f.name)
        if f.name == "Scale":
            f.value_info.append(helper.make_tensor_value_info("scaled", onnx.TensorProto.FLOAT, ["rows", 4]))
    nest.graph.node[1].metadata_props.add(key="layer", value="0")
    nest.graph.value_info.append(helper.make_tensor_value_info("inner::Scale/scaled", onnx.TensorProto.FLOAT, None))
    write(nest, out, "nest")
    for file in sorted(pathlib.Path(sys.argv[2]).glob("*/model.onnx")) if len(sys.argv) > 2 else []:
        model = onnx.load(file)
        if with_functions(model):
            write(model, out, file.parent.name)


if __name__ == "__main__":
    main()
