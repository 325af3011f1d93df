"""Tests memory, streams and failures of the emulated device: python cann_device_test.py FOLDER [unittest arguments]."""

import ctypes
import os
import sys
import unittest

import numpy as np

import cann
from cann import F32, SIZE, U64, P

e = None  # the emulation


class Device(cann.Case):
    def failing(self, words, stream, code=cann.AICORE_EXCEPTION):
        """The stream must have failed with these words."""
        self.assertEqual(e.acl.aclrtSynchronizeStream(stream), code)
        self.assertIn(words, e.message())
        e.run("aclrtDestroyStream", stream)

    def launch(self, name, *args, stream, workspace=None):
        size, executor = e.plan(name, *args)
        e.check(e.operator(name)(workspace or e.allocate(size), U64(size), executor, stream))

    def test_phases(self):
        x, y = e.tensor(self.normal(4)), e.empty((4,), F32)
        silu, relu = e.operator("aclnnSilu"), e.operator("aclnnRelu")
        size, executor = e.plan("aclnnSilu", x, y)
        self.assertGreater(size, 0)
        self.assertEqual(silu(e.allocate(size), U64(size), executor, None), cann.SUCCESS)
        self.assertEqual(silu(e.allocate(size), U64(size), executor, None), cann.INNER_NULL)
        self.assertIn("used before", e.message())
        for words, call in [("are given", lambda w, s, x: silu(w, U64(s - 1), x, None)),
                            ("not on the device", lambda w, s, x: silu(None, U64(s), x, None)),
                            ("is one of aclnnSilu", lambda w, s, x: relu(w, U64(s), x, None))]:
            size, executor = e.plan("aclnnSilu", x, y)
            self.assertEqual(call(e.allocate(size), size, executor), cann.INVALID)
            self.assertIn(words, e.message())
        size, executor = e.plan("aclnnSilu", x, y)
        e.check(e.base.aclDestroyTensor(x.handle))
        self.assertEqual(silu(e.allocate(size), U64(size), executor, None), cann.INVALID)
        self.assertIn("destroyed", e.message())
        self.assertEqual(e.live("executor"), 0)
        e.run("aclrtSynchronizeStream", None)

    def test_repeated(self):
        first, second = self.normal(4), self.normal(4)
        x, y = e.tensor(first), e.empty((4,), F32)
        size, executor = e.plan("aclnnRelu", x, y)
        workspace = e.allocate(size)
        e.check(e.base.aclSetAclOpExecutorRepeatable(executor))
        for value in (first, second):
            e.check(e.base.aclSetInputTensorAddr(executor, SIZE(0), x.handle, e.upload(value)))
            e.check(e.operator("aclnnRelu")(workspace, U64(size), executor, None))
            e.run("aclrtSynchronizeStream", None)
            self.near(y, np.maximum(value, 0))
        e.check(e.base.aclDestroyAclOpExecutor(executor))

    def test_later(self):
        """A task is not done before a caller waits for it."""
        stream, held = e.stream(), e.tensor(np.zeros(8, np.uint8).view(F32))
        e.run("aclrtMemsetAsync", held.address, SIZE(8), 1, SIZE(8), stream)
        self.assertEqual(held.value().view(np.uint8).tolist(), [0] * 8)
        e.run("aclrtSynchronizeStream", stream)
        self.assertEqual(held.value().view(np.uint8).tolist(), [1] * 8)
        e.run("aclrtDestroyStream", stream)

    def test_by_itself(self):
        """It is done after some time even if no caller waits."""
        got = cann.in_a_process("""
import cann, numpy, time
e = cann.start(FOLDER)
held = e.tensor(numpy.zeros(8, numpy.uint8).view(cann.F32))
e.run("aclrtMemsetAsync", held.address, cann.SIZE(8), 1, cann.SIZE(8), None)
end = time.monotonic() + 30
while held.value().view(numpy.uint8)[0] == 0 and time.monotonic() < end:
    time.sleep(0.01)
print(held.value().view(numpy.uint8).tolist())
""", CANN_EMULATION_DELAY_MS="5")
        self.assertEqual(got.stdout, "[1, 1, 1, 1, 1, 1, 1, 1]\n", got.stderr)

    def test_events(self):
        a, b, event = e.stream(), e.stream(), P()
        e.run("aclrtCreateEvent", ctypes.byref(event))
        x, y, z = e.tensor(np.full(4, 2, F32)), e.empty((4,), F32), e.empty((4,), F32)
        self.launch("aclnnMul", x, x, y, stream=a)
        e.run("aclrtRecordEvent", event, a)
        e.run("aclrtStreamWaitEvent", b, event)
        self.launch("aclnnMul", x, y, z, stream=b)
        e.run("aclrtSynchronizeStream", b)
        self.near(z, np.full(4, 8))
        e.run("aclrtSynchronizeEvent", event)
        e.run("aclrtDestroyEvent", event)
        for stream in (a, b):
            e.run("aclrtDestroyStream", stream)
        self.assertEqual(e.acl.aclrtSynchronizeStream(a), 107003)
        self.assertIn("no stream", e.message())

    def test_memory(self):
        """Freed too early, written past the end, never written, in the way of the workspace."""
        stream, x, y = e.stream(), e.tensor(self.normal(4)), e.empty((4,), F32)
        self.launch("aclnnSilu", x, y, stream=stream)
        e.run("aclrtFree", x.address)
        self.failing("is used after it was freed", stream)
        self.assertNotEqual(e.acl.aclrtFree(x.address), 0)
        self.assertIn("freed before", e.message())
        stream, small = e.stream(), e.allocate(8)
        wide_view = cann.Held(e, small, (4,), F32, e.view(small, F32, (4,)))
        self.launch("aclnnSilu", y, wide_view, stream=stream)
        self.failing("the allocation of 8 bytes", stream)
        stream = e.stream()
        host = np.zeros(8, F32)
        on_host = cann.Held(e, None, (8,), F32, e.view(P(host.ctypes.data // 32 * 32), F32, (8,)))
        self.launch("aclnnSilu", on_host, e.empty((8,), F32), stream=stream)
        self.failing("is not device memory", stream)
        self.assertTrue(np.isnan(e.download(e.allocate(16), (4,), F32)).all())
        stream, x = e.stream(), e.tensor(np.ones(256, F32))
        self.launch("aclnnRelu", x, e.empty((256,), F32), stream=stream, workspace=e.upload(np.zeros(4096, np.uint8)))
        e.run("aclrtSynchronizeStream", stream)
        big = e.upload(np.ones(1024, F32))
        inside = cann.Held(e, big, (256,), F32, e.view(big, F32, (256,)))
        self.launch("aclnnRelu", inside, y := e.empty((256,), F32), stream=stream, workspace=big)
        e.run("aclrtSynchronizeStream", stream)
        self.assertFalse((y.value() == 1).any())
        e.run("aclrtDestroyStream", stream)

    def test_copies(self):
        host, device = np.zeros(4, F32), e.allocate(16)
        for words, args in [
            ("host memory", (P(host.ctypes.data), SIZE(16), P(host.ctypes.data), SIZE(16), cann.HOST_TO_DEVICE)),
            ("do not fit", (device, SIZE(8), P(host.ctypes.data), SIZE(16), cann.HOST_TO_DEVICE)),
            ("the source", (P(host.ctypes.data), SIZE(16), P(host.ctypes.data), SIZE(16), cann.DEVICE_TO_HOST)),
        ]:
            self.assertEqual(e.acl.aclrtMemcpy(*args), 107000)
            self.assertIn(words, e.message())

    def test_touch(self):
        """The host must not read or write the device's memory."""
        for touch in ("ctypes.string_at(a, 1)", "ctypes.memset(a, 0, 1)"):
            got = cann.in_a_process(
                f"import cann, ctypes\na = cann.start(FOLDER).allocate(64).value\nprint('here', flush=True)\n{touch}\n")
            self.assertEqual((got.returncode, got.stdout), (-11, "here\n"), got.stderr)

    def test_planted(self):
        x, y = e.tensor(self.normal(4)), e.empty((4,), F32)
        e.fail("aclnnSiluGetWorkspaceSize", 2)
        e.call("aclnnSilu", x, y)
        self.refused(cann.INNER, "planted failure of call 2", "aclnnSilu", x, y)
        e.fail("aclnnSilu")
        with self.assertRaisesRegex(cann.CannError, "561000: aclnnSilu: planted failure of call 2"):
            e.call("aclnnSilu", x, y)
        stream = e.stream()
        e.fail("aclnnSilu@device")
        self.launch("aclnnSilu", x, y, stream=stream)
        self.failing("aclnnSilu: planted failure on the device", stream)
        e.fail("aclrtMalloc")
        with self.assertRaisesRegex(cann.CannError, "207001"):
            e.allocate(8)
        e.fail("aclCreateTensor")
        self.assertIsNone(e.view(x.address, F32, (4,)))
        self.assertIn("planted", e.message())
        self.assertIsNone(e.message())
        self.assertEqual(e.calls("aclCreateTensor"), 3)
        self.assertEqual(
            [n for n in e.log() if n.startswith("aclnnSilu")],
            ["aclnnSiluGetWorkspaceSize", "aclnnSilu", "aclnnSilu@device", "aclnnSiluGetWorkspaceSize",
             "aclnnSiluGetWorkspaceSize", "aclnnSilu", "aclnnSiluGetWorkspaceSize", "aclnnSilu", "aclnnSilu@device"],
        )

    def test_device_is_set(self):
        got = cann.in_a_process("""
import cann, ctypes
e = cann.start(FOLDER, device=False)
p = cann.P()
print(e.acl.aclrtMalloc(ctypes.byref(p), cann.SIZE(8), 0), e.message())
e.run("aclInit", None)
print(e.acl.aclrtMalloc(ctypes.byref(p), cann.SIZE(8), 0), e.message())
print(e.acl.aclrtSetDevice(7), e.message())
print(e.acl.aclInit(None))
""")
        want = ["100001 aclrtMalloc: aclInit has not been called", "107002 aclrtMalloc: this thread has set no device",
                "107001 aclrtSetDevice: there is no device 7", "100002"]
        self.assertEqual(got.stdout.splitlines(), want, got.stderr)


if __name__ == "__main__":
    os.environ["CANN_EMULATION_DELAY_MS"] = "60000"  # even a slow machine runs no task early
    e = cann.start(sys.argv.pop(1))
    unittest.main()
