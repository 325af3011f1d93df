"""Runs one op of libmojo_ops_cann in a model of one node on onnxruntime's CANN provider, for the tests of it."""

import numpy as np
import onnxruntime as ort
from onnx import helper

import harness as h
from ort_test import OpTest
from patched_models import to_numpy, to_ort

CANN = "CANNExecutionProvider"
# With graphs the provider takes models whole, and runs no kernel of a library.
PROVIDER = (CANN, {"enable_cann_graph": "0"})
DTYPES = (h.F32, h.F16, h.BF16)
emulation = None  # the result of cann.start; unset on a device


def one_node(op, values, types, out_types, attributes, constant=(), leave_out=0):
    """A model of one node, inputs and outputs of the node's own types: the provider's Cast lacks bfloat16."""
    info = lambda name, dtype, rank: helper.make_tensor_value_info(name, h.ONNX_TYPE[dtype], [None] * rank)
    inputs, initializers = [], []
    for i, (value, dtype) in enumerate(zip(values, types)):
        if value is None:
            continue
        if i in constant:
            data = np.asarray(value, np.float32).astype(h.NUMPY_TYPE[dtype])
            initializers.append(helper.make_tensor(f"x{i}", h.ONNX_TYPE[dtype], data.shape, data.tobytes(), raw=True))
        else:
            inputs.append(info(f"x{i}", dtype, np.ndim(value)))
    outputs = [
        helper.make_tensor_value_info(f"y{i}", h.ONNX_TYPE[t], None)
        for i, t in enumerate(out_types[: len(out_types) - leave_out])
    ]
    node = helper.make_node(
        op,
        [f"x{i}" if v is not None else "" for i, v in enumerate(values)],
        [o.name for o in outputs],
        name="the_node",
        domain="mojo",
        **attributes,
    )
    graph = helper.make_graph([node], "g", inputs, outputs, initializers)
    return helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)]
    )


def session(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(h.library)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=[PROVIDER])


def feeds_of(values, types, constant=()):
    return {
        f"x{i}": np.asarray(v).astype(h.NUMPY_TYPE[t])
        for i, (v, t) in enumerate(zip(values, types))
        if v is not None and i not in constant
    }


def run_session(s, feeds):
    kinds = {i.name: i.type for i in s.get_inputs()}
    got = s.run_with_ort_values(None, {name: to_ort(v, kinds[name]) for name, v in feeds.items()})
    return [np.array(to_numpy(v)) for v in got]


def run(op, values, types, out_types, attributes, constant=(), leave_out=0):
    """Runs one node and returns its outputs as float32, numbers of experts unchanged."""
    s = session(one_node(op, values, types, out_types, attributes, constant, leave_out))
    got = run_session(s, feeds_of(values, types, constant))
    return [g if g.dtype == np.int64 else g.astype(np.float32) for g in got]


class CANNTest(OpTest):
    # No test has a tensor without elements: the provider's own copy to the device refuses one.
    def within(self, got, want, dtype, units, floor=1e-6, what=""):
        """Results of CANN's calls are rounded in between: they are within units of the greatest magnitude of a row."""
        self.assertEqual(got.shape, want.shape, what)
        if not want.size:
            return
        scale = np.abs(want).max(-1, keepdims=True) if want.ndim else np.abs(want)
        slack = (units * h.EPSILON[dtype] + (4e-6 if dtype == h.F32 else 0)) * scale + floor
        self.assertTrue(
            (np.abs(got - want) <= slack).all(),
            f"{what}: off by {np.abs(got - want).max()}, {np.abs(want).max()} is the greatest",
        )

    def refused(self, words, *args, **kwargs):
        with self.assertRaises(Exception) as caught:
            run(*args, **kwargs)
        for word in words:
            self.assertIn(word, str(caught.exception))
