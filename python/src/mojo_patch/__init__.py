"""The kernels of the fused ops (domain "mojo") in models that mojo-patch wrote.

    import mojo_patch
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.register_custom_ops_library(mojo_patch.get_library_path())
    session = ort.InferenceSession("patched.onnx", options)

This package holds the kernel library alone. The program that patches models is written in Go and is no part of it.
"""

import os
import sys

__all__ = ["get_library_path", "__version__"]

_NAMES = {"win32": "mojo_ops.dll", "darwin": "libmojo_ops.dylib"}


def get_library_path() -> str:
    """Gives the path of the kernel library, for SessionOptions.register_custom_ops_library."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), _NAMES.get(sys.platform, "libmojo_ops.so"))
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing: mojo_patch is to be installed from a wheel (make wheel)")
    return path


def __getattr__(name: str) -> str:
    # Looked up when asked for: reading the metadata takes longer than everything else here.
    if name == "__version__":
        from importlib.metadata import version

        return version("mojo-patch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
