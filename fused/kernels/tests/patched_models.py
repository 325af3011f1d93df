"""Runs models that `mojo-patch apply` wrote on an execution provider, and compares them with their recorded outputs."""
import ctypes
import json
import os
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

import harness as h
from ops import OPS


def to_ort(value, kind):
    """A value of a tensor type; numpy has no bfloat16, so its bits are passed."""
    if kind == "tensor(bfloat16)":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            value.astype(ml_dtypes.bfloat16).view(np.uint16), TensorProto.BFLOAT16
        )
    return ort.OrtValue.ortvalue_from_numpy(value)


def to_numpy(value):
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    bits = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(value.shape())))
    return np.frombuffer(bits, ml_dtypes.bfloat16).reshape(value.shape())


def profiled(model, runs, providers=None, library=True):
    """Runs a model on each of the given feeds. Returns the outputs of each and (name, op, provider) of the nodes."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(folder, "profile")
        if library:
            options.register_custom_ops_library(h.library)
        wanted = providers or h.providers
        first = wanted[0] if isinstance(wanted[0], str) else wanted[0][0]
        # CUDA refuses calls while another thread captures a stream. Then onnxruntime opens a session on the CPU, or
        # fails.
        for tries in (2, 1, 0):
            session = ort.InferenceSession(model, options, providers=wanted)
            if session.get_providers()[0] != first and tries:
                continue
            kinds = {i.name: i.type for i in session.get_inputs()}
            outputs = []
            try:
                for feeds in runs:
                    values = {name: to_ort(v, kinds[name]) for name, v in feeds.items()}
                    outputs.append([to_numpy(v) for v in session.run_with_ort_values(None, values)])
                break
            except Fail as error:
                if not tries or "stream is capturing" not in str(error):
                    raise
        with open(session.end_profiling()) as file:
            events = json.load(file)
    ran = {(e["name"].removesuffix("_kernel_time"), e["args"]["op_name"], e["args"].get("provider"))
           for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")}
    return outputs, sorted(ran)


def recorded(folder, name):
    """The cases of FOLDER/NAME.npz: (inputs, outputs) by name."""
    arrays = np.load(os.path.join(folder, name + ".npz"))
    of = lambda *which: {k.split(".", 2)[2]: arrays[k] for k in arrays.files if k.startswith("{}.{}.".format(*which))}
    return [(of(case, "in"), of(case, "out")) for case in range(int(arrays["n"]))]


def check_patched(test, file, name, cases, provider, providers, more=""):
    """Every fused node runs on the provider; the outputs match the recorded ones, within the type's tolerance."""
    unit = 2.0**-7 if "bf16" in name else 2.0**-10 if "fp16" in name else 2.0**-19
    runs, ran = profiled(file, [feeds for feeds, _ in cases], providers)
    worst = 0.0
    for (_, wanted), outputs in zip(cases, runs):
        for (output, want), got in zip(wanted.items(), outputs, strict=True):
            got, want = got.astype(np.float64), want.astype(np.float64)
            test.assertEqual(got.shape, want.shape, output)
            test.assertTrue(np.isfinite(got).all(), f"{output} is not finite")
            worst = max(worst, float(np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30)))
    nodes = onnx.load(file, load_external_data=False).graph.node
    written = {n.name for n in nodes if n.domain == "mojo"}
    others = {n.name for n in nodes} - written  # the standard has ops of the same names
    fused = [r for r in ran if r[1] in OPS and r[0] not in others]
    places = {p: sum(r[2] == p for r in ran) for p in sorted({r[2] for r in ran})}
    print(
        f"{name}: {len(fused)} fused nodes on {', '.join(sorted({r[2] for r in fused}))}, nodes by provider {places}, "
        f"worst {worst / unit:.2f} units of {unit:.2g} of the greatest output{more}",
        flush=True,
    )
    test.assertEqual([r for r in fused if r[2] != provider], [], "fused nodes that are not on the provider")
    # Nodes in branches run only if the inputs lead there.
    test.assertEqual(written - {r[0] for r in fused}, set(), "fused nodes that did not run")
    test.assertTrue(fused, "no fused node ran")
    test.assertLess(worst, 8 * unit)
