"""Builds the models of onnxscript, with the outputs that numpy gives."""

import numpy as np

import cases

MODULES = {1: ["script_models"], 2: ["second_script"]}


def export(case):
    """Returns the model, its inputs' shapes by the names that they have there, and a function of arrays."""
    form, golden, shapes = case.build()
    # The scripts declare positions as INT64; other cases have them as int32.
    shapes = {k: (np.int64 if np.issubdtype(t, np.integer) else t, d) for k, (t, d) in shapes.items()}
    model = form.to_model_proto()
    return model, shapes, lambda arrays: cases.typed(model, golden(*arrays.values()))
