"""Exports the models of JAX by jax2onnx, with the outputs that JAX gives."""

import warnings

import jax
import jax2onnx
import numpy as np

MODULES = {1: ["jax_blocks", "jax_layers"], 2: ["second_jax", "second_jax_layers"]}


def export(case):
    """Returns the model, its inputs' shapes by the names that they have there, and a function of arrays."""
    fn, shapes = case.build()
    specs = [
        jax.ShapeDtypeStruct(dims, dtype)
        if not any(isinstance(d, str) for d in dims) else symbolic(dims, dtype)
        for dtype, dims in shapes.values()
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = jax2onnx.to_onnx(fn, specs, model_name=case.name, input_names=list(shapes))

    def run(arrays):
        outs = fn(*arrays.values())
        return [np.asarray(o) for o in (outs if isinstance(outs, tuple | list) else [outs])]

    return model, shapes, run


SCOPE = jax.export.SymbolicScope()


def symbolic(dims, dtype):
    text = ",".join(map(str, dims))
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=SCOPE), dtype)
