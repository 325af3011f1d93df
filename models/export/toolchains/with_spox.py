"""Builds the models of spox, with the outputs that numpy gives."""

import numpy as np
from spox import Tensor, argument, build

import spox_layers
import spox_models

CASES = spox_models.CASES + spox_layers.CASES


def export(case):
    """Returns the model, its inputs' shapes by the names that they have there, and a function of arrays."""
    form, golden, shapes = case.build()
    arguments = {name: argument(Tensor(dtype, dims)) for name, (dtype, dims) in shapes.items()}
    model = build(arguments, {"out": form(*arguments.values())})
    return model, shapes, lambda arrays: [golden(*arrays.values()).astype(np.float32)]
