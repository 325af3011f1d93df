#!/usr/bin/env python3
"""Writes the versions of the standard's ops, as rewrite/convert/versions.txt holds them.

    onnx-op-versions.py > rewrite/convert/versions.txt

A line is an op and its versions: the one in force at opset 11, or the first, and every later one. A version marked with
"=" differs from the one before in its text and in types that were added, and in nothing else. "bfloat16:15" means that
all inputs and outputs that can be float32 can be bfloat16 since opset 15, and never if it is 0; without it, they can
since opset 13. Deprecated ops are left out. The line "ir_version" has the IR version that belongs to every opset. Needs
onnx.
"""

import onnx
from onnx import defs, helper

OLDEST = 11


def formals(params):
    return [(p.name, p.option, p.is_homogeneous, p.min_arity) for p in params]


def attributes(schema):
    return {a.name: (a.type, a.required, a.default_value.SerializeToString()) for a in schema.attributes.values()}


def types(schema):
    """The types that each input and output takes."""
    allowed = {t.type_param_str: set(t.allowed_type_strs) for t in schema.type_constraints}
    return [allowed.get(p.type_str, {p.type_str}) for p in [*schema.inputs, *schema.outputs]]


def same(old, new):
    """Whether new has everything that old has, for all of old's types."""
    return (
        formals(old.inputs) == formals(new.inputs)
        and formals(old.outputs) == formals(new.outputs)
        and attributes(old) == attributes(new)
        and all(a <= b for a, b in zip(types(old), types(new)))
    )


def in_bfloat16(schema):
    """Whether everything that can be float32 can be bfloat16, None if nothing can be float32."""
    floats = [t.allowed_type_strs for t in schema.type_constraints if "tensor(float)" in t.allowed_type_strs]
    return all("tensor(bfloat16)" in t for t in floats) if floats else None


def main():
    history = {}
    for s in defs.get_all_schemas_with_history():
        if s.domain == "":
            history.setdefault(s.name, []).append(s)
    newest = defs.onnx_opset_version()
    script = "tools/onnx-op-versions.py"
    print(f"# The versions of the standard's ops in onnx {onnx.__version__}: see {script}, which wrote this by")
    print(f"# build/venv/bin/python {script} > rewrite/convert/versions.txt")
    ir = (f"{v}:{helper.OP_SET_ID_VERSION_MAP['ai.onnx', v]}" for v in range(OLDEST, newest + 1))
    print("ir_version", *ir)
    for name in sorted(history):
        schemas = sorted(history[name], key=lambda s: s.since_version)
        if schemas[-1].deprecated:
            continue
        last_old = max((s.since_version for s in schemas if s.since_version <= OLDEST), default=0)
        schemas = [s for s in schemas if s.since_version >= last_old]
        words = [str(schemas[0].since_version)]
        for old, new in zip(schemas, schemas[1:]):
            words.append(f"{new.since_version}{'=' if same(old, new) else ''}")
        takes = [(s.since_version, in_bfloat16(s)) for s in schemas]
        since = min((v for v, whether in takes if whether), default=0)
        if since > 13 or not since and any(whether is False for _, whether in takes):
            words.append(f"bfloat16:{since}")
        print(name, *words)


if __name__ == "__main__":
    main()
