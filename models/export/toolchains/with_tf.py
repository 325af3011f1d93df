"""Exports the models of TensorFlow and Keras by tf2onnx, with the outputs that TensorFlow gives."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import onnx  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402

MODULES = {1: ["tf_blocks", "tf_layers"], 2: ["second_tf", "second_tf_layers"]}


def export(case):
    """Returns the model, its inputs' shapes by the names that they have there, and a function of arrays."""
    fn, shapes = case.build()
    signature = [
        tf.TensorSpec([None if isinstance(d, str) else d for d in dims], tf.as_dtype(dtype), name=name)
        for name, (dtype, dims) in shapes.items()
    ]
    graph = tf.function(lambda *args: fn(*args), input_signature=signature)
    model, _ = tf2onnx.convert.from_function(graph, input_signature=signature, opset=case.opset)
    # Tensors that Keras made before the function was traced have become inputs.
    captured = {p.name: t.numpy() for t, p in graph.get_concrete_function().graph.captures if t.dtype != tf.resource}
    for i in [i for i in model.graph.input if i.name in captured]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(captured[i.name], i.name))
        model.graph.input.remove(i)

    def run(arrays):
        outs = graph(*(tf.constant(a) for a in arrays.values()))
        return [o.numpy() for o in tf.nest.flatten(outs)]

    return model, shapes, run
