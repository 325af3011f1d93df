"""Finds the kernel libraries."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from typing import List, Optional

from ._errors import NotInstalled

# The package that brings the library for each device, and the library's name.
_DEVICES = {"cpu": ("mojo_patch", "mojo_ops"), "cuda": ("mojo_patch_cuda", "mojo_ops_cuda")}


def _file_name(library: str) -> str:
    if sys.platform == "win32":
        return library + ".dll"
    return f"lib{library}.dylib" if sys.platform == "darwin" else f"lib{library}.so"


def package_folders(package: str) -> List[str]:
    """Returns the folders of an installed package, without importing it.

    `python -c` and `python -m` put the working directory first in sys.path. A package there counts only if Python has
    already imported it: a downloaded folder of models must not supply the libraries to load.
    """
    module = sys.modules.get(package)
    if module is not None:
        return [os.path.abspath(f) for f in getattr(module, "__path__", ())]
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        here = ""
    path = [p for p in sys.path if os.path.isabs(p) and os.path.realpath(p) != here]
    spec = importlib.machinery.PathFinder.find_spec(package, path)
    return list(spec.submodule_search_locations or ()) if spec else []


def find_library(device: str) -> Optional[str]:
    """Returns the path of the kernel library for "cpu" or "cuda", None if its package is not installed."""
    package, library = _DEVICES[device]
    for folder in package_folders(package):
        path = os.path.join(folder, _file_name(library))
        if os.path.isfile(path):
            return path
    return None


def get_library_path(device: str = "cpu") -> str:
    """Returns the path of the kernel library, for SessionOptions.register_custom_ops_library.

    The library for "cuda" has the CPU's kernels as well, and comes in a separate wheel.
    """
    if device not in _DEVICES:
        raise ValueError(f"there are no kernels for {device!r} here, but for {' and '.join(_DEVICES)}")
    path = find_library(device)
    if path is None:
        build = "make" if device == "cpu" else f"make {device}"
        name = _file_name(_DEVICES[device][1])
        raise NotInstalled(f"{name} is not here: `{build}` in a clone of mojo-patch builds it (docs/install.md)", 4)
    return path
