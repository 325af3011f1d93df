"""Tests the emulation of CANN below the stock onnxruntime for CANN: python cann_emulation_test.py FOLDER [unittest
arguments]. FOLDER holds the emulated libraries."""

import pathlib
import re
import sys
import threading
import unittest
from math import erf

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import cann

ort.set_default_logger_severity(4)
emulation = None
ONNX = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.float64): TensorProto.DOUBLE,
}


def session(nodes, feeds, out_type=np.float32, constants=None, opset=17):
    """A session whose nodes all run on CANN, one by one."""
    infos = [helper.make_tensor_value_info(n, ONNX[v.dtype], [None] * v.ndim) for n, v in feeds.items()]
    out = helper.make_tensor_value_info("y", ONNX[np.dtype(out_type)], None)
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    graph = helper.make_graph([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "g", infos, [out], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=[("CANNExecutionProvider", {"enable_cann_graph": "0"})]
    )


def run(nodes, feeds, out_type=np.float32, constants=None, opset=17):
    return session(nodes, feeds, out_type, constants, opset).run(None, feeds)[0]


class OrdinaryOps(unittest.TestCase):
    def setUp(self):
        emulation.reset()
        self.rng = np.random.default_rng(3)

    def normal(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def near(self, got, want, tolerance=1e-6):
        want = np.asarray(want)
        self.assertEqual(got.dtype, want.dtype)
        self.assertEqual(got.shape, want.shape)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)

    def test_unary(self):
        x = np.abs(self.normal(2, 3, 4)) + np.float32(0.3)
        wants = dict(Abs=np.abs, Neg=np.negative, Floor=np.floor, Ceil=np.ceil, Round=np.round, Sqrt=np.sqrt,
                     Log=np.log, Sin=np.sin, Cos=np.cos, Identity=lambda v: v, Reciprocal=lambda v: 1 / v,
                     Relu=lambda v: np.maximum(v, 0), Erf=lambda v: np.vectorize(erf, otypes=[np.float32])(v))
        for op, f in wants.items():
            with self.subTest(op):
                self.near(run([(op, ["x"], ["y"], {})], {"x": x - 1 if op in ("Abs", "Relu", "Sin") else x}),
                          f(x - 1 if op in ("Abs", "Relu", "Sin") else x).astype(np.float32))
        half = x.astype(np.float16)
        self.near(run([("Exp", ["x"], ["y"], {})], {"x": half}, np.float16), np.exp(half), 1e-3)

    def test_binary(self):
        a, b = self.normal(2, 3, 4), self.normal(4)
        for op, f in dict(Add=np.add, Sub=np.subtract, Mul=np.multiply, Div=np.divide).items():
            for dtype in (np.float32, np.float16):
                with self.subTest(op=op, dtype=dtype):
                    x, y = a.astype(dtype), b.astype(dtype)
                    self.near(run([(op, ["x", "b"], ["y"], {})], {"x": x, "b": y}, dtype), f(x, y))
        ints = self.rng.integers(-9, 9, (2, 3)).astype(np.int64)
        self.near(run([("Add", ["x", "x"], ["y"], {})], {"x": ints}, np.int64), ints + ints)

    def test_products(self):
        x, w = self.normal(2, 3, 4), self.normal(4, 5)
        self.near(run([("MatMul", ["x", "w"], ["y"], {})], {"x": x}, constants={"w": w}), x @ w, 1e-5)
        self.near(run([("MatMul", ["x", "w"], ["y"], {})], {"x": x[0, 0]}, constants={"w": w}), x[0, 0] @ w, 1e-5)
        h, v, c = x[0].astype(np.float16), w.T.astype(np.float16).copy(), self.normal(5).astype(np.float16)
        want = (0.5 * (h.astype(np.float32) @ v.T.astype(np.float32)) + 2 * c.astype(np.float32)).astype(np.float16)
        self.near(
            run([("Gemm", ["x", "w", "c"], ["y"], dict(transB=1, alpha=0.5, beta=2.0))], {"x": h}, np.float16,
                {"w": v, "c": c}),
            want,
            2e-3,
        )

    def test_shapes_and_types(self):
        x = self.normal(2, 3, 4) * 9
        self.near(run([("Transpose", ["x"], ["y"], dict(perm=[2, 0, 1]))], {"x": x}, opset=12), x.transpose(2, 0, 1))
        self.near(
            run([("Reshape", ["x", "s"], ["y"], {})], {"x": x}, constants={"s": np.array([6, 4])}), x.reshape(6, 4)
        )
        self.near(run([("Flatten", ["x"], ["y"], dict(axis=2))], {"x": x}), x.reshape(6, 4))
        for dtype in (np.float16, np.float64, np.int32, np.int64):
            self.near(run([("Cast", ["x"], ["y"], dict(to=ONNX[np.dtype(dtype)]))], {"x": x}, dtype), x.astype(dtype))

    def test_chain(self):
        """Many operators in one stream, which runs them after all were asked for; runs from many shapes."""
        nodes = [("Mul", ["x", "w"], ["a"], {}), ("Sqrt", ["v"], ["b"], {}), ("Div", ["a", "b"], ["c"], {}),
                 ("MatMul", ["c", "m"], ["y"], {})]
        w, m = self.normal(4), self.normal(4, 3)
        feeds = {"x": self.normal(2, 4), "v": np.abs(self.normal(2, 4)) + 1}
        s = session(nodes, feeds, constants={"w": w, "m": m})
        for rows in (1, 5, 2, 300):
            feeds = {"x": self.normal(rows, 4), "v": np.abs(self.normal(rows, 4)) + 1}
            self.near(s.run(None, feeds)[0], (feeds["x"] * w / np.sqrt(feeds["v"])) @ m, 1e-5)
        self.assertEqual(emulation.calls("aclopCompileAndExecute:BatchMatMul"), 4)
        self.assertEqual(emulation.calls("aclopCompileAndExecute:BatchMatMul@device"), 4)


    def test_callers(self):
        """Callers side by side, each in a separate stream, below one session."""
        w = self.normal(8, 8)
        s = session([("Mul", ["x", "x"], ["a"], {}), ("MatMul", ["a", "w"], ["y"], {})], {"x": w}, constants={"w": w})
        wrong = []

        def call(seed):
            for rows in range(1, 9):
                x = np.random.default_rng(seed + rows).standard_normal((rows, 8)).astype(np.float32)
                if not np.allclose(s.run(None, {"x": x})[0], (x * x) @ w, rtol=1e-4, atol=1e-4):
                    wrong.append((seed, rows))

        threads = [threading.Thread(target=call, args=(seed,)) for seed in range(0, 400, 100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertEqual(emulation.calls("aclopCompileAndExecute:BatchMatMul@device"), 32)


class Failures(unittest.TestCase):
    def setUp(self):
        emulation.reset()

    def tearDown(self):
        emulation.reset()

    def raises(self, *words):
        """Runs a session of two operators, which must fail with these words."""
        x = np.ones((2, 2), np.float32)
        with self.assertRaises(Exception) as caught:
            run([("Add", ["x", "x"], ["a"], {}), ("Mul", ["a", "x"], ["y"], {})], {"x": x})
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_planted(self):
        emulation.fail("aclopCompileAndExecute:Mul")
        self.raises("running Mul node", "CANN error executing aclopCompileAndExecute")
        emulation.reset()
        emulation.fail("aclrtMalloc")
        self.raises("CANN failure 207001", "aclrtMalloc")
        emulation.reset()
        emulation.fail("aclopCompileAndExecute:Add@device")
        self.raises("CANN error executing aclrtMemcpyAsync")  # the copy back waits for the stream, which has stopped
        emulation.reset()
        x = np.ones((2, 2), np.float32)
        np.testing.assert_array_equal(run([("Add", ["x", "x"], ["y"], {})], {"x": x}), x + x)

    def test_planted_message(self):
        """Text that is left over after an operator succeeded is a failure of the operator, with that text."""
        s = session([("Add", ["x", "x"], ["y"], {})], {"x": np.ones(3, np.float32)})
        emulation.fail("aclrtFree")
        self.assertEqual(emulation.acl.aclrtFree(None), 500000)
        with self.assertRaisesRegex(Exception, "aclrtFree: planted failure of call 1"):
            s.run(None, {"x": np.ones(3, np.float32)})

    def test_from_the_environment(self):
        got = cann.in_a_process("""
import cann, numpy
import cann_emulation_test as t
cann.start(FOLDER, device=False)
t.run([("Add", ["x", "x"], ["y"], {})], {"x": numpy.ones(3, numpy.float32)})
""", CANN_EMULATION_FAIL="aclrtFree:1,aclopCompileAndExecute:Add:1")
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertIn("aclopCompileAndExecute", got.stderr)

    def test_whole_graph(self):
        x = np.ones(3, np.float32)
        graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
        whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        with self.assertRaises(Exception):
            ort.InferenceSession(whole.SerializeToString(), options,
                                 providers=[("CANNExecutionProvider", {"enable_cann_graph": "1"})]).run(None, {"x": x})
        self.assertIn("aclgrphParseONNXFromMem", emulation.log())

    def test_no_library(self):
        """Without the libraries the provider does not load: the tests above ran on the emulation."""
        got = cann.in_a_process("""
import numpy
import cann_emulation_test as t
t.run([("Add", ["x", "x"], ["y"], {})], {"x": numpy.ones(3, numpy.float32)})
""", LD_LIBRARY_PATH="")
        self.assertEqual(got.returncode, 1)
        self.assertIn("create CANN ExecutionProvider fail", got.stderr)


class Functions(unittest.TestCase):
    def test_functions(self):
        """One of the operator libraries of FOLDER, one or three, has each function that the kernels look up."""
        source = pathlib.Path(__file__).resolve().parents[1] / "ascend" / "aclnn.h"
        names = re.findall(r'{"(aclnn\w+)"}', re.sub(r"\s", "", source.read_text(encoding="utf-8")))
        self.assertGreater(len(names), 30)
        for name in names:
            for function in (name, name + "GetWorkspaceSize"):
                self.assertEqual(sum(hasattr(library, function) for library in emulation.operators), 1, function)


class HostTouch(unittest.TestCase):
    def test_fault(self):
        """A read of device memory by the host ends the process, a copy does not."""
        got = cann.in_a_process("""
import cann, ctypes, numpy
import cann_emulation_test as t
cann.start(FOLDER, device=False)
x = numpy.arange(4, dtype=numpy.float32)
binding = (s := t.session([("Add", ["x", "x"], ["y"], {})], {"x": x})).io_binding()
binding.bind_cpu_input("x", x)
binding.bind_output("y", "cann", 0)
s.run_with_iobinding(binding)
print(binding.copy_outputs_to_cpu()[0].tolist(), flush=True)
ctypes.string_at(binding.get_outputs()[0].data_ptr(), 4)
""")
        self.assertIn("[0.0, 2.0, 4.0, 6.0]", got.stdout, got.stderr)
        self.assertEqual(got.returncode, -11, got.stderr)


if __name__ == "__main__":
    emulation = cann.start(sys.argv.pop(1), device=False)
    unittest.main()
