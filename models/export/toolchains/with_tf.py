"""Exports the models of TensorFlow and Keras by tf2onnx, with the outputs that TensorFlow gives."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402

import tf_blocks  # noqa: E402
import tf_layers  # noqa: E402

CASES = tf_blocks.CASES + tf_layers.CASES
# The opsets that tf2onnx's users have: its default is 15; a third of the models each.
OPSETS = 13, 15, 18


def export(case):
    """Returns the model, its inputs' shapes by the names that they have there, and a function of arrays."""
    fn, shapes = case.build()
    signature = [
        tf.TensorSpec([None if isinstance(d, str) else d for d in dims], tf.as_dtype(dtype), name=name)
        for name, (dtype, dims) in shapes.items()
    ]
    graph = tf.function(lambda *args: fn(*args), input_signature=signature)
    opset = OPSETS[sum(case.name.encode()) % len(OPSETS)]
    model, _ = tf2onnx.convert.from_function(graph, input_signature=signature, opset=opset)

    def run(arrays):
        outs = graph(*(tf.constant(a) for a in arrays.values()))
        return [o.numpy() for o in tf.nest.flatten(outs)]

    return model, shapes, run
