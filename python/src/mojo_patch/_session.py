"""Patched models in onnxruntime."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

from ._errors import NotInstalled
from ._libraries import find_library, get_library_path
from ._models import staged

if TYPE_CHECKING:
    import onnx
    import onnxruntime

log = logging.getLogger("mojo_patch")

Provider = Union[str, Tuple[str, Dict[Any, Any]]]

_CUDA = "CUDAExecutionProvider"
_MOST_BYTES = 2**31 - 1  # that protobuf serialises


def session(
    model: Union[str, os.PathLike[str], bytes, onnx.ModelProto],
    sess_options: Optional[onnxruntime.SessionOptions] = None,
    providers: Optional[Sequence[Provider]] = None,
    provider_options: Optional[Sequence[Dict[Any, Any]]] = None,
    **others: Any,
) -> onnxruntime.InferenceSession:
    """Opens a model in onnxruntime with the kernels registered; the arguments are those of InferenceSession.

    Without providers, they are CUDA's and the CPU's as far as this onnxruntime has them.
    """
    try:
        import onnxruntime
    except ImportError as e:
        raise NotInstalled("onnxruntime is not here: pip install onnxruntime", 4) from e
    if providers is None:
        here = onnxruntime.get_available_providers()
        providers = [p for p in (_CUDA, "CPUExecutionProvider") if p in here]
    options = sess_options or onnxruntime.SessionOptions()
    library = _library([p if isinstance(p, str) else p[0] for p in providers])
    if library:
        options.register_custom_ops_library(library)
    others.update(sess_options=options, providers=providers, provider_options=provider_options)
    open_ = partial(onnxruntime.InferenceSession, **others)
    if isinstance(model, (str, os.PathLike)):
        return open_(os.fspath(model))
    if isinstance(model, bytes):
        return open_(model)
    if model.ByteSize() < _MOST_BYTES:
        return open_(model.SerializeToString())
    with staged(model) as path:
        return open_(path)


def _library(providers: List[str]) -> Optional[str]:
    """Chooses the library for the first provider. What it has no kernels for runs on the definitions in the model."""
    if not providers or providers[0] == "CPUExecutionProvider":
        return get_library_path("cpu")
    if providers[0] == _CUDA:
        library = find_library("cuda")
        if library is None:
            log.warning("no CUDA kernels are here (pip install mojo-patch[cuda]): fused ops run as their definitions")
        return library
    log.info("there are no kernels for %s: fused ops run as their definitions", providers[0])
    return None
