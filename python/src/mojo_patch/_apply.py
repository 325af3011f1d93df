"""apply and the functions around it. Each runs a command of the program."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypedDict,
    TypeVar,
    Union,
    cast,
)

from ._command import log, run
from ._errors import MojoPatchError
from ._models import Model, Path, Staged, is_ir, is_proto, kind, staged
from ._reports import Difference, Inspection, KernelTrial, Report, read

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    import torch.onnx
    from typing_extensions import Literal, Unpack

F = TypeVar("F", bound=Callable[..., Any])


class ApplyOptions(TypedDict, total=False):
    """The options of apply, match, apply_kernel, apply_model and apply_folder.

    Each option is the flag of the same name of `mojo-patch apply`, whose --help says more; kernels is --include, and
    for_ is --for.

    What to patch:
        kernels: "auto", "none", or kernel ids, as scan_all_kernels returns them
        only, skip: names of patterns to take, or to leave out
        node: a regular expression for the names of the sites' last nodes
        site: ids of sites, as a report has them
        patterns: files or folders of more patterns
        learn: file to write a pattern to for each spelling that no pattern matched
        inline: functions to inline first: "auto", "all" or "none"
        plan: file of a plan that match made, and force=True to take it for another file
    What to write:
        target: "mojo" (fused ops), "ort", "onnx", "qnn", "openvino", "ascend" or "ascend310p"
        shape: with a target, fixed shapes: {"input_ids": "1x128"} or {"sequence": 128}
        backend: devices whose kernels to use, such as "+CUDA,CPU"
        runs_on: lower nodes that a provider of onnxruntime lacks: "cpu", "cuda", "cpu@1.29"
        html: file for the report as a page
        external_data_over: put weights of more than this many bytes into a data file
        link_weights: make the data file a hard link of the input's data file if it has the same bytes
        crosscheck: read the output with another ONNX reader and compare
    Decoders:
        for_: choose flags for serving on "cpu", "cuda", "genai", "triton" or "web"; other options win
        dtype: convert the model first: "float32", "float16" or "bfloat16"
        safe: with dtype="float16", scale values that would overflow by powers of two
        safe_inputs, safe_headroom: recorded cases to measure magnitudes on, and how many times they must fit
        strict: with safe, raise CheckFailed if a value has to stay in float32
        free: dimensions of inputs whose sizes at export are baked, such as ["batch", "sequence"]
        extend_masks: with free, assume that folded masks continue as they begin
        last_logits: compute the logits of the last position only
        sample: choose the next tokens in the model
        cache: "static", "static=M" for buffers of M tokens, or "paged", "paged=N" for pools of blocks of N tokens
        cache_type: with cache="paged": "int8" or "fp8" for keys and values, with a scale for each block and head
        past_length: True: the number of cached tokens is an input; "rows": one number for each sequence
        mla_cache: keep the latents of DeepSeek's attention in its caches
        merge_products: merge several products of one value into one
        quantized: "keep", or "mojo" for products and tables that other tools quantized in blocks
        activations: with quantized="mojo": "int16", "int8" or "float"
        accuracy_level: with target="ort": 0 or 4
    How to check:
        verify: "off", "distinct" or "all"
        check_kernels: "auto", "on" or "off"
        golden: recorded cases that the patched model must reproduce
        evaluator: run the golden cases in the built-in evaluator
        keep_failed: keep the output when the golden cases fail
        require: raise NothingFused if there is nothing to fuse
    Where things are:
        assume_available: assume kernels that are not on this machine
        allow_missing_weights, allow_links: take models whose weights are absent, or behind links
        kernels_lib, onnxruntime: paths of the libraries
    progress: a bar: None if stderr is a terminal, True always, False never
    """

    kernels: Union[str, Sequence[str]]
    only: Sequence[str]
    skip: Sequence[str]
    node: str
    site: Sequence[str]
    patterns: Sequence[Path]
    learn: Path
    inline: Literal["auto", "all", "none"]
    plan: Path
    force: bool
    target: Literal["mojo", "ort", "onnx", "qnn", "openvino", "ascend", "ascend310p"]
    shape: Dict[str, Union[str, int]]
    backend: str
    runs_on: str
    html: Path
    external_data_over: int
    link_weights: bool
    crosscheck: bool
    for_: Literal["cpu", "cuda", "genai", "triton", "web"]
    dtype: Literal["float32", "float16", "bfloat16"]
    safe: bool
    safe_inputs: Path
    safe_headroom: float
    strict: bool
    free: Sequence[str]
    extend_masks: bool
    last_logits: bool
    sample: bool
    cache: str
    cache_type: Literal["int8", "fp8"]
    past_length: Union[bool, Literal["one", "rows"]]
    mla_cache: bool
    merge_products: bool
    quantized: Literal["keep", "mojo"]
    activations: Literal["int16", "int8", "float"]
    accuracy_level: int
    verify: Literal["off", "distinct", "all"]
    check_kernels: Literal["auto", "on", "off"]
    golden: Path
    evaluator: bool
    keep_failed: bool
    require: bool
    assume_available: bool
    allow_missing_weights: bool
    allow_links: bool
    kernels_lib: Path
    onnxruntime: Path
    progress: Optional[bool]


class DiffOptions(TypedDict, total=False):
    """The options of diff.

    Each option is the flag of the same name of `mojo-patch diff`, whose --help says more.

    Inputs:
        inputs: recorded inputs
        seed, cases: of random inputs
        hard: inputs that attention often gets wrong
        dim: sizes of open dimensions
    Bounds:
        atol, rtol: one number, or numbers by output
        logits: outputs that are logits
        max_kl, min_top1: for logits
    Runtime:
        evaluator: run in the built-in evaluator
        provider, provider_option, provider_library, provider_only: the execution provider
        kernels: "auto", "on" or "off"
        kernels_lib, onnxruntime: paths of the libraries
        optimize: onnxruntime's level of optimization
        backend: devices whose kernels to use
        threads: of onnxruntime
    allow_links: take models whose weights are behind links
    progress: a bar: None if stderr is a terminal, True always, False never
    """

    inputs: Path
    seed: int
    cases: int
    hard: bool
    dim: Dict[str, int]
    atol: Union[float, Dict[str, float]]
    rtol: Union[float, Dict[str, float]]
    logits: Sequence[str]
    max_kl: float
    min_top1: float
    evaluator: bool
    provider: str
    provider_option: Dict[str, str]
    provider_library: Sequence[Path]
    provider_only: bool
    kernels: Literal["auto", "on", "off"]
    kernels_lib: Path
    onnxruntime: Path
    optimize: str
    backend: str
    threads: int
    allow_links: bool
    progress: Optional[bool]


def _documented(options: Type[Any]) -> Callable[[F], F]:
    """Adds the description of the options to a function's documentation, for help()."""

    def add(function: F) -> F:
        lines = (options.__doc__ or "").partition("\n")[2]
        function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{lines}"
        return function

    return add


@_documented(ApplyOptions)
def apply(model: Model, output: Optional[Path] = None, **options: Unpack[ApplyOptions]) -> Report:
    """Patches a model and writes it to output; without output, beside the model as NAME.mojo.onnx.

    model is a path, bytes, an onnx.ModelProto, an onnx_ir.Model, or the result of torch.onnx.export.
    """
    arguments = flags("apply", options, ApplyOptions)
    if output is not None:
        arguments.append(f"--output={os.fspath(output)}")
    elif kind(model):
        raise TypeError("apply() needs an output for a model that is not a file; apply_model() returns one in memory")
    return _patch("apply", model, arguments, options)


@_documented(ApplyOptions)
def match(model: Model, **options: Unpack[ApplyOptions]) -> Report:
    """Reports the changes that apply would make, and writes nothing."""
    return _patch("match", model, flags("match", options, ApplyOptions), options)


def _patch(command: str, model: Model, arguments: List[str], options: ApplyOptions) -> Report:
    with staged(model) as path:
        data, text = run(command, arguments, [path], options.get("progress"))
    if kind(model):
        data["input"]["path"] = kind(model)  # the file was temporary
    report = read(Report, data, text)
    if command == "match":  # which prints a table; apply prints a line for each site that it leaves
        for site in report.left:
            log.warning("%s %s: %s", site.status, site.pattern, site.reason)
    return report


@_documented(ApplyOptions)
def apply_kernel(
    kernel: str, model: Model, output: Optional[Path] = None, **options: Unpack[ApplyOptions]
) -> Report:
    """Patches a model for one kernel only. kernel is its id."""
    options["kernels"] = kernel
    return apply(model, output, **options)


M = TypeVar("M", bytes, "onnx.ModelProto", "onnx_ir.Model")


@_documented(ApplyOptions)
def apply_model(
    model: Union[M, torch.onnx.ONNXProgram], *, data_folder: Optional[Path] = None, **options: Unpack[ApplyOptions]
) -> Tuple[M, Report]:
    """Patches a model in memory and returns a new one of the same kind; an onnx.ModelProto for an ONNXProgram.

    data_folder contains the external data that the model refers to. The new model refers to the same files. They lie
    inside that folder, and behind a symbolic link only with allow_links=True.
    """
    if isinstance(model, bytes):
        import onnx

        patched, report = _apply_proto(onnx.load_model_from_string(model), kind(model), data_folder, options)
        return cast(M, patched.SerializeToString()), report
    if is_ir(model):
        import onnx_ir

        patched, report = _apply_proto(onnx_ir.to_proto(model), kind(model), data_folder, options)
        return onnx_ir.from_proto(patched), report
    proto = model if is_proto(model) else getattr(model, "model_proto", None)
    if proto is None:
        raise TypeError(f"a model in memory is bytes, an onnx.ModelProto, an onnx_ir.Model or a "
                        f"torch.onnx.ONNXProgram, not {type(model)}")
    return _apply_proto(proto, kind(model), data_folder, options)


def _apply_proto(
    proto: onnx.ModelProto, name: str, data_folder: Optional[Path], options: ApplyOptions
) -> Tuple[onnx.ModelProto, Report]:
    """Patches a model in memory, which the report calls name."""
    with tempfile.TemporaryDirectory(prefix="mojo-patch-") as folder:
        given = Staged(proto, folder, data_folder, bool(options.get("allow_links")))
        arguments = flags("apply_model", options, ApplyOptions)
        arguments += [f"--output={given.patched}", "--allow-links"]  # the links that Staged made
        data, text = run("apply", arguments, [given.path], options.get("progress"))
        data["input"]["path"] = name
        return given.load(given.patched), read(Report, data, text)


@_documented(ApplyOptions)
def apply_folder(folder: Path, output: Path, **options: Unpack[ApplyOptions]) -> Dict[str, Report]:
    """Patches each model in a folder, as optimum exports it, into another folder, and copies the other files.

    Returns the reports by the models' paths in the folder. Symbolic links are followed only with allow_links=True.
    """
    reports = {}
    for parent, _, names in os.walk(folder):
        target = os.path.join(output, os.path.relpath(parent, folder))
        os.makedirs(target, exist_ok=True)
        models = tuple(n for n in names if n.endswith(".onnx"))
        for name in names:
            path = os.path.join(parent, name)
            if not options.get("allow_links") and os.path.islink(path):
                raise MojoPatchError(f"{path} is a symbolic link: put the file itself there, or give allow_links=True")
            if name in models:
                reports[os.path.relpath(path, folder)] = apply(path, os.path.join(target, name), **options)
            elif not name.startswith(models):  # model.onnx_data, model.onnx.data: the weights are written anew
                shutil.copyfile(path, os.path.join(target, name))
    if not reports:
        raise FileNotFoundError(f"{os.fspath(folder)} contains no .onnx file")
    return reports


@_documented(DiffOptions)
def diff(
    model: Model, other: Optional[Model] = None, *, golden: Optional[Path] = None, **options: Unpack[DiffOptions]
) -> Difference:
    """Compares the outputs of two models, or of one model with golden. A difference does not raise."""
    arguments = flags("diff", options, DiffOptions)
    if golden is not None:
        arguments.append(f"--golden={os.fspath(golden)}")
    with contextlib.ExitStack() as stack:
        models = [stack.enter_context(staged(m)) for m in (model, other) if m is not None]
        return read(Difference, *run("diff", arguments, models, options.get("progress")))


def inspect(model: Model) -> Inspection:
    """Reports the contents of a model."""
    with staged(model) as path:
        data, text = run("inspect", [], [path])
    if kind(model):
        data["path"] = kind(model)
    return read(Inspection, data, text)


@lru_cache(maxsize=None)
def scan_all_kernels() -> Dict[str, List[KernelTrial]]:
    """Tries every kernel and returns the results by the kernels' ids. The first call takes seconds."""
    kernels: Dict[str, List[KernelTrial]] = {}
    for row in run("kernels", [], []).data["kernels"]:
        kernels.setdefault(row["kernel"], []).append(read(KernelTrial, row))
    return kernels


def flags(function: str, options: Any, known: Type[Any]) -> List[str]:
    """Turns keyword arguments into the program's flags."""
    made: List[str] = []
    for name, value in options.items():
        if name not in known.__annotations__:
            there_are = ", ".join(known.__annotations__)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; there are {there_are}")
        flag = "--" + ("include" if name == "kernels" and known is ApplyOptions else name.rstrip("_").replace("_", "-"))
        if name == "progress" or value is None or value is False:
            continue
        if value is True:
            made.append(flag)
        elif isinstance(value, dict):
            between = ":" if name in ("atol", "rtol") else "="
            made += [f"{flag}={key}{between}{v}" for key, v in value.items()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            values = [os.fspath(v) for v in value]
            made += [f"{flag}={','.join(values)}"] if name == "kernels" else [f"{flag}={v}" for v in values]
        else:
            made.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return made
