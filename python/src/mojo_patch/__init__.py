"""Fuses blocks of language models in ONNX, and runs the result in onnxruntime with kernels.

    import mojo_patch

    report = mojo_patch.apply("model.onnx", "patched.onnx")
    session = mojo_patch.session("patched.onnx")

The functions run the program mojo-patch, which is installed with this package. What it says goes to the logger
"mojo_patch", and its errors become MojoPatchError.
"""

from __future__ import annotations

from ._apply import apply, apply_folder, apply_kernel, apply_model, diff, inspect, match, scan_all_kernels
from ._command import find_program
from ._errors import CheckFailed, MojoPatchError, NothingFused, NotInstalled
from ._libraries import get_library_path
from ._reports import Difference, Inspection, KernelTrial, Report, Site
from ._session import session

__all__ = [
    "CheckFailed",
    "Difference",
    "Inspection",
    "KernelTrial",
    "MojoPatchError",
    "NotInstalled",
    "NothingFused",
    "Report",
    "Site",
    "__version__",
    "apply",
    "apply_folder",
    "apply_kernel",
    "apply_model",
    "diff",
    "find_program",
    "get_library_path",
    "inspect",
    "match",
    "scan_all_kernels",
    "session",
]


def __getattr__(name: str) -> str:
    # Looked up when asked for: reading the metadata takes longer than everything else here.
    if name == "__version__":
        from importlib.metadata import version

        return version("mojo-patch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
