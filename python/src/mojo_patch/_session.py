"""Patched models in onnxruntime."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, MutableMapping, Optional, Sequence, Tuple, Union
from weakref import WeakKeyDictionary

from ._errors import MojoPatchError, NotInstalled
from ._libraries import find_library, get_library_path
from ._models import MOST_BYTES, Model, is_proto, staged

if TYPE_CHECKING:
    import onnxruntime

log = logging.getLogger("mojo_patch")

# The library that session() has registered in a caller's SessionOptions. onnxruntime refuses a second registration.
_registered: MutableMapping[Any, str] = WeakKeyDictionary()

Provider = Union[str, Tuple[str, Dict[Any, Any]]]

_CUDA = "CUDAExecutionProvider"


def session(
    model: Model,
    sess_options: Optional[onnxruntime.SessionOptions] = None,
    providers: Optional[Sequence[Provider]] = None,
    provider_options: Optional[Sequence[Dict[Any, Any]]] = None,
    **others: Any,
) -> onnxruntime.InferenceSession:
    """Opens a model in onnxruntime with the kernels registered. The arguments are those of InferenceSession.

    One sess_options may serve several sessions. Without providers, CUDA's and the CPU's are used, as far as this
    onnxruntime has them.
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
        if _registered.get(options) is None:
            options.register_custom_ops_library(library)
            _registered[options] = library
    others.update(sess_options=options, providers=providers, provider_options=provider_options)
    try:
        return _open(model, partial(onnxruntime.InferenceSession, **others))
    except Exception as e:  # onnxruntime's Fail, which has no public name
        if "Domain already set" not in str(e):
            raise
        raise MojoPatchError(
            "sess_options had the kernels registered before session() registered them: make new SessionOptions, and "
            "either leave register_custom_ops_library out or open the model with onnxruntime.InferenceSession"
        ) from e


def _open(model: Model, make: Callable[[Union[str, bytes]], onnxruntime.InferenceSession]) -> Any:
    if isinstance(model, bytes):
        return make(model)
    proto: Any = model if is_proto(model) else None
    if proto is not None and proto.ByteSize() < MOST_BYTES:
        return make(proto.SerializeToString())
    with staged(model) as path:
        return make(path)


def _library(providers: List[str]) -> Optional[str]:
    """Returns the library for the first provider. Ops without a kernel run on their definitions in the model."""
    if not providers or providers[0] == "CPUExecutionProvider":
        return get_library_path("cpu")
    if providers[0] == _CUDA:
        library = find_library("cuda")
        if library is None:
            log.warning(
                "no CUDA kernels are here (`make cuda` in a clone builds them: docs/install.md): "
                "fused ops run as their definitions"
            )
        return library
    log.info("there are no kernels for %s: fused ops run as their definitions", providers[0])
    return None
