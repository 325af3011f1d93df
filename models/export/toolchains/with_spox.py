"""Builds the models of spox, with the outputs that numpy gives."""

from spox import Tensor, argument, build

import cases

MODULES = {1: ["spox_models", "spox_layers"], 2: ["second_spox", "second_spox_layers"]}


def export(case):
    """Returns the model, its inputs' shapes by the names that they have there, and a function of arrays."""
    form, golden, shapes = case.build()
    arguments = {name: argument(Tensor(dtype, dims)) for name, (dtype, dims) in shapes.items()}
    outs = form(*arguments.values())
    outs = dict(zip(("weights", "ids"), outs, strict=True)) if isinstance(outs, tuple) else {"out": outs}
    model = build(arguments, outs)
    return model, shapes, lambda arrays: cases.typed(model, golden(*arrays.values()))
