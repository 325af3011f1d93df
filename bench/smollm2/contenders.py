"""The contenders: the model as it was exported, patched in several ways, and llama.cpp with the same weights."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import onnx

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Contender:
    """kind and arguments are Worker's; patch has the wall and CPU seconds of each making."""

    name: str
    kind: str
    arguments: dict
    patch: list = dataclasses.field(default_factory=list)

    @property
    def nodes(self):
        """The number of nodes in the graph, None in llama.cpp."""
        if self.kind == "llama":
            return None
        return len(onnx.load(self.arguments["path"], load_external_data=False).graph.node)


def measured(command):
    """Runs a program; its standard output, and its wall and CPU seconds."""
    command = [str(c) for c in command]
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        out = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}\n{errors.read().decode()[-2000:]}")
    return out, {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime}


def load(tool, graph, mapping, gguf, folder):
    """The exported model with its weights."""
    # Patched models of another run share the weights, which are not written over then.
    for old in folder.glob("*.onnx*"):
        old.unlink()
    path = folder / "model.onnx"
    measured([tool, "weights", "load", graph, "--from", gguf, "--map", mapping, "-o", path])
    return Contender("unpatched", "onnxruntime", {"path": str(path)})


def ours(tool, model, library, folder, times=3, name="patched", flags=()):
    """The model after mojo-patch apply; whole runs of the program are measured."""
    path = folder / f"{name.replace(' ', '')}.onnx"
    patch = [measured([tool, "apply", model, "-o", path, *flags])[1] for _ in range(times)]
    return Contender(name, "onnxruntime", {"path": str(path), "library": str(library)}, patch)


def rounded(tool, patched, dtype, folder):
    """A patched model with weights of 16 bits."""
    path = folder / f"patched-{dtype}.onnx"
    measured([tool, "quantize", patched.arguments["path"], "--format", dtype, "-o", path])
    return Contender(f"patched, {dtype}", "onnxruntime", patched.arguments | {"path": str(path)})


def theirs(fuse, model, folder):
    """The model after the call of another tool; only the call is measured."""
    path = folder / f"{fuse}.onnx"
    out, _ = measured([sys.executable, HERE / "fuse.py", fuse, model, path])
    return Contender(fuse, "onnxruntime", {"path": str(path)}, [json.loads(out.splitlines()[-1])])


def llama(gguf, dtype, folder):
    """llama.cpp with all weights in this type, or with the GGUF file's weights."""
    if dtype is None:
        return Contender(f"llama.cpp, {gguf.stem.split('.')[-1]} as packaged", "llama", {"path": str(gguf)})
    from llama import convert

    path = folder / f"llama-{dtype}.gguf"
    convert(gguf, path, dtype)
    return Contender(f"llama.cpp, {dtype}", "llama", {"path": str(path), "cache": "F32" if dtype == "F32" else "F16"})
