"""Fuses blocks of language models in ONNX, and runs the result in onnxruntime with kernels.

    import mojo_patch

    report = mojo_patch.apply("model.onnx", "patched.onnx")
    session = mojo_patch.session("patched.onnx")

The functions run the program mojo-patch, which is installed with this package. Its messages go to the logger
"mojo_patch", and its errors become MojoPatchError.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from ._apply import (
        ApplyOptions,
        DiffOptions,
        apply,
        apply_folder,
        apply_kernel,
        apply_model,
        diff,
        inspect,
        match,
        scan_all_kernels,
    )
    from ._command import find_program
    from ._errors import CheckFailed, ModelNotFound, MojoPatchError, NothingFused, NotInstalled
    from ._export import export_genai, export_triton
    from ._libraries import get_library_path
    from ._reports import Difference, GenAIFolder, Inspection, KernelTrial, Report, Site, TritonModel
    from ._session import session

    __version__: str

__all__ = [
    "ApplyOptions",
    "CheckFailed",
    "DiffOptions",
    "Difference",
    "GenAIFolder",
    "Inspection",
    "KernelTrial",
    "ModelNotFound",
    "MojoPatchError",
    "NotInstalled",
    "NothingFused",
    "Report",
    "Site",
    "TritonModel",
    "__version__",
    "apply",
    "apply_folder",
    "apply_kernel",
    "apply_model",
    "diff",
    "export_genai",
    "export_triton",
    "find_program",
    "get_library_path",
    "inspect",
    "match",
    "scan_all_kernels",
    "session",
]


def __getattr__(name: str) -> Any:
    # Each module is imported when something of it is asked for: an import of all takes longer than starting Python.
    if name == "__version__":
        from importlib.metadata import version

        return version("mojo-patch")
    if name in __all__:
        from importlib import import_module

        for module in ("_errors", "_libraries", "_session", "_command", "_apply", "_export", "_reports"):
            value = getattr(import_module("." + module, __name__), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
