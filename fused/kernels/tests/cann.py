"""The emulation of CANN (cann_emulation) from Python: loads it, controls it, and calls its operators."""

import ctypes
import os
import subprocess
import sys
import unittest

import ml_dtypes
import numpy as np

SUCCESS, NULL_POINTER, INVALID, INNER, TILING, INNER_NULL = 0, 161001, 161002, 561000, 561002, 561103
AICORE_EXCEPTION = 507015
BF16 = np.dtype(ml_dtypes.bfloat16)
F32, F16, I32, INT64, BOOL = map(np.dtype, (np.float32, np.float16, np.int32, np.int64, np.bool_))
TYPES = {F32: 0, F16: 1, np.dtype(np.int8): 2, I32: 3, INT64: 9, np.dtype(np.float64): 11, BOOL: 12, BF16: 27}
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
FORMAT_ND = 2

P, I64, U64, SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t


class CannError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class Emulation:
    """The libraries of a folder, which whatever is loaded later finds by their names."""

    def __init__(self, folder):
        load = lambda name: ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
        self.acl, self.base = load("libascendcl.so"), load("libnnopbase.so")
        for name in ("libacl_op_compiler.so", "libfmk_onnx_parser.so"):
            load(name)
        self.operators = [load(name) for name in sorted(os.listdir(folder)) if name.startswith("libopapi")]
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.acl.aclrtGetSocName.restype = ctypes.c_char_p
        self.acl.CannEmulationLog.restype = ctypes.c_char_p
        self.acl.CannEmulationCalls.restype = U64
        self.acl.CannEmulationLive.restype = I64
        for name in ("aclCreateTensor", "aclCreateTensorList", "aclCreateScalar", "aclCreateIntArray"):
            getattr(self.base, name).restype = P
        self.kept = []  # memory of a call's tensors

    def fail(self, name, nth=1):
        """Lets the nth call of that name from now on fail."""
        self.acl.CannEmulationFail(name.encode(), nth)

    def calls(self, name):
        """How often a call was made since the last reset."""
        return self.acl.CannEmulationCalls(name.encode())

    def log(self):
        """The names of all calls since the last reset."""
        return self.acl.CannEmulationLog().decode().split()

    def live(self, kind):
        """How many objects of a kind are alive."""
        return self.acl.CannEmulationLive(kind.encode())

    def reset(self):
        self.acl.CannEmulationReset()

    def message(self):
        """The text of aclGetRecentErrMsg: None if nothing failed."""
        text = self.acl.aclGetRecentErrMsg()
        return None if text is None else text.decode()

    def check(self, code):
        if code != SUCCESS:
            raise CannError(code, self.message())

    def run(self, name, *args):
        """A call of the runtime, which must succeed."""
        self.check(getattr(self.acl, name)(*args))

    def allocate(self, size):
        address = P()
        self.run("aclrtMalloc", ctypes.byref(address), SIZE(size), 0)
        return address

    def stream(self):
        stream = P()
        self.run("aclrtCreateStream", ctypes.byref(stream))
        return stream

    def upload(self, array):
        """Device memory that holds the array."""
        array = np.ascontiguousarray(array)
        address = self.allocate(max(array.nbytes, 1))
        self.run("aclrtMemcpy", address, SIZE(array.nbytes), P(array.ctypes.data), SIZE(array.nbytes), HOST_TO_DEVICE)
        return address

    def download(self, address, shape, dtype):
        array = np.empty(shape, dtype)
        self.run("aclrtMemcpy", P(array.ctypes.data), SIZE(array.nbytes), address, SIZE(array.nbytes), DEVICE_TO_HOST)
        return array

    def view(self, address, dtype, shape, strides=None, offset=0, storage=None, form=FORMAT_ND):
        """An aclTensor, or None if it is refused."""
        if strides is None:
            strides = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
        dims = lambda values: (I64 * max(len(values), 1))(*values)
        storage = shape if storage is None else storage
        return self.base.aclCreateTensor(dims(shape), U64(len(shape)), TYPES[np.dtype(dtype)], dims(strides),
                                         I64(offset), form, dims(storage), U64(len(storage)), address)

    def tensor(self, array):
        """A tensor on the device that holds the array."""
        address = self.upload(array)
        return Held(self, address, array.shape, array.dtype, self.view(address, array.dtype, array.shape))

    def window(self, held, shape, strides, offset=0):
        """A strided view of a tensor's memory."""
        storage = (int(np.prod(held.shape)),)
        return Held(self, held.address, shape, held.dtype,
                    self.view(held.address, held.dtype, shape, strides, offset, storage))

    def empty(self, shape, dtype):
        """A tensor on the device that holds no numbers yet."""
        return self.tensor(np.full(shape, np.nan, dtype) if np.dtype(dtype).kind in "fV" else np.full(shape, 77, dtype))

    def list(self, *tensors):
        return P(self.base.aclCreateTensorList((P * len(tensors))(*[t.handle for t in tensors]), U64(len(tensors))))

    def scalar(self, value, dtype=np.float32):
        return P(self.base.aclCreateScalar(P(np.array([value], dtype).ctypes.data), TYPES[np.dtype(dtype)]))

    def integers(self, *values):
        return P(self.base.aclCreateIntArray((I64 * len(values))(*values), U64(len(values))))

    def operator(self, name):
        for library in self.operators:
            if hasattr(library, name):
                return getattr(library, name)
        raise AttributeError(name)

    def plan(self, name, *args):
        """The first phase: workspace size and executor."""
        size, executor = U64(), P()
        self.check(
            self.operator(name + "GetWorkspaceSize")(*map(argument, args), ctypes.byref(size), ctypes.byref(executor))
        )
        return size.value, executor

    def call(self, name, *args, stream=None):
        """Both phases, and waits for the stream."""
        size, executor = self.plan(name, *args)
        workspace = self.allocate(size) if size else None
        self.check(self.operator(name)(workspace, U64(size), executor, stream))
        self.run("aclrtSynchronizeStream", stream)
        if size:
            self.run("aclrtFree", workspace)


class Held:
    """A tensor and the device memory that it covers."""

    def __init__(self, emulation, address, shape, dtype, handle):
        self.emulation, self.address, self.shape, self.dtype = emulation, address, shape, dtype
        self.handle = P(handle)

    def value(self):
        return self.emulation.download(self.address, self.shape, self.dtype)


def argument(value):
    """A Python value as the C call takes it."""
    if isinstance(value, Held):
        return value.handle
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        return I64(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    if isinstance(value, np.dtype):
        return ctypes.c_int(TYPES[value])
    return value


emulation = None  # the one that start loaded
FOLDER = None


def start(folder, device=True):
    """Loads the emulation, and opens its device unless onnxruntime will."""
    global emulation, FOLDER
    FOLDER, emulation = os.path.abspath(folder), Emulation(folder)
    if device:
        emulation.run("aclInit", None)
        emulation.run("aclrtSetDevice", 0)
    return emulation


def in_a_process(code, **environment):
    """Runs Python code in a separate process, with FOLDER set to the folder."""
    return subprocess.run([sys.executable, "-c", f"FOLDER = {FOLDER!r}\n{code}"], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=os.path.dirname(__file__), **environment))


TOLERANCE = {F32: 1e-6, F16: 2e-3, BF16: 1.6e-2}


def wide(x):
    return np.asarray(x).astype(np.float64)


class Case(unittest.TestCase):
    """A test of the emulation by itself."""

    def setUp(self):
        emulation.reset()
        self.assertIsNone(emulation.message())
        self.rng = np.random.default_rng(7)

    def normal(self, *shape, dtype=np.float32):
        return self.rng.standard_normal(shape).astype(dtype)

    def near(self, held, want):
        tolerance = TOLERANCE.get(held.dtype, 0)
        np.testing.assert_allclose(wide(held.value()), wide(want), rtol=tolerance, atol=tolerance)

    def refused(self, code, words, name, *args):
        """The first phase must refuse with the code and with the words in the text."""
        with self.assertRaises(CannError) as caught:
            emulation.plan(name, *args)
        self.assertEqual(caught.exception.code, code, caught.exception.text)
        self.assertIn(name, caught.exception.text)
        self.assertIn(words, caught.exception.text)
