"""apply and what surrounds it. Every function runs a command of the program."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Type, TypedDict, Union

from ._command import run
from ._models import Path, Staged, staged
from ._reports import Difference, Inspection, KernelTrial, Report, read

if TYPE_CHECKING:
    import onnx
    import torch.onnx
    from typing_extensions import Unpack

Model = Union[str, "os.PathLike[str]", "onnx.ModelProto", "torch.onnx.ONNXProgram"]


class ApplyOptions(TypedDict, total=False):
    """The options of apply. Each is the flag of its name of `mojo-patch apply`, whose --help says more."""

    kernels: Union[str, Sequence[str]]  # --include: "auto", "none", or ids as scan_all_kernels gives them
    target: str  # "mojo" (fused ops), "ort", "onnx", "qnn", "openvino", "ascend", "ascend310p"
    shape: Dict[str, Union[str, int]]  # for a target: {"input_ids": "1x128"} or {"sequence": 128}
    backend: str  # devices whose kernels are taken, as in "+CUDA,CPU"
    only: Sequence[str]  # patterns
    skip: Sequence[str]
    node: str  # a regular expression
    site: Sequence[str]  # ids, as a report has them
    patterns: Sequence[Path]  # files or folders of more patterns
    learn: Path  # of apply: the file for patterns of blocks that none matched
    inline: str  # "auto", "all", "none"
    verify: str  # "off", "distinct", "all"
    check_kernels: str  # "auto", "on", "off"
    last_logits: bool
    cache: str  # "static" or "static=M": keys and values in buffers, of M tokens
    past_length: Union[bool, str]  # with cache: the number of tokens in them is an input; "rows": of each sequence
    mla_cache: bool  # latents of DeepSeek's attention in its caches
    require: bool  # raises NothingFused where there is nothing to fuse
    assume_available: bool
    allow_missing_weights: bool
    allow_links: bool
    golden: Path  # recorded cases that the patched model must reproduce
    evaluator: bool
    keep_failed: bool
    external_data_over: int  # bytes
    kernels_lib: Path
    onnxruntime: Path
    progress: Optional[bool]  # a bar: None where stderr is a terminal, True everywhere, False nowhere


class DiffOptions(TypedDict, total=False):
    """The options of diff. Each is the flag of its name of `mojo-patch diff`, whose --help says more."""

    inputs: Path
    seed: int
    cases: int
    hard: bool  # inputs that attention is got wrong on
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
    kernels: str  # "auto", "on", "off"
    kernels_lib: Path
    onnxruntime: Path
    optimize: str
    backend: str
    threads: int
    allow_links: bool
    progress: Optional[bool]


def apply(model: Model, output: Optional[Path] = None, **options: Unpack[ApplyOptions]) -> Report:
    """Patches a model and writes it to output; without that, beside the model as NAME.mojo.onnx.

    model is a path, an onnx.ModelProto or what torch.onnx.export returns.
    """
    arguments = flags("apply", options, ApplyOptions)
    if output is not None:
        arguments.append(f"--output={os.fspath(output)}")
    elif not isinstance(model, (str, os.PathLike)):
        raise TypeError("apply() needs the output for a model that is no file; apply_model() returns one in memory")
    with staged(model) as path:
        return read(Report, run("apply", arguments, [path], options.get("progress")))


def match(model: Model, **options: Unpack[ApplyOptions]) -> Report:
    """Reports what apply would do, and writes nothing."""
    arguments = flags("match", options, ApplyOptions)
    with staged(model) as path:
        return read(Report, run("match", arguments, [path], options.get("progress")))


def apply_kernel(
    kernel: str, model: Model, output: Optional[Path] = None, **options: Unpack[ApplyOptions]
) -> Report:
    """Patches a model for one kernel alone, by its id."""
    options["kernels"] = kernel
    return apply(model, output, **options)


def apply_model(
    model: onnx.ModelProto, *, data_folder: Optional[Path] = None, **options: Unpack[ApplyOptions]
) -> Tuple[onnx.ModelProto, Report]:
    """Patches a model in memory and returns a new one.

    data_folder is where weights lie that the model refers to as external data; the new model refers to the same files.
    """
    with tempfile.TemporaryDirectory(prefix="mojo-patch-") as folder:
        given = Staged(model, folder, data_folder)
        arguments = flags("apply_model", options, ApplyOptions)
        output = os.path.join(folder, "patched.onnx")
        arguments += [f"--output={output}", "--allow-links"]
        report = read(Report, run("apply", arguments, [given.path], options.get("progress")))
        return given.load(output), report


def apply_folder(folder: Path, output: Path, **options: Unpack[ApplyOptions]) -> Dict[str, Report]:
    """Patches each model in a folder, as optimum exports it, into another folder, and copies what is beside them.

    The reports are by the models' paths in the folder.
    """
    reports = {}
    for parent, _, names in os.walk(folder):
        target = os.path.join(output, os.path.relpath(parent, folder))
        os.makedirs(target, exist_ok=True)
        models = tuple(n for n in names if n.endswith(".onnx"))
        for name in names:
            path = os.path.join(parent, name)
            if name in models:
                reports[os.path.relpath(path, folder)] = apply(path, os.path.join(target, name), **options)
            elif not name.startswith(models):  # model.onnx_data, model.onnx.data: the weights are written anew
                shutil.copyfile(path, os.path.join(target, name))
    if not reports:
        raise FileNotFoundError(f"{os.fspath(folder)} holds no .onnx file")
    return reports


def diff(
    model: Path, other: Optional[Path] = None, *, golden: Optional[Path] = None, **options: Unpack[DiffOptions]
) -> Difference:
    """Compares the outputs of two models, or of models with those of golden. What differs does not raise."""
    arguments = flags("diff", options, DiffOptions)
    if golden is not None:
        arguments.append(f"--golden={os.fspath(golden)}")
    models = [os.fspath(m) for m in (model, other) if m is not None]
    return read(Difference, run("diff", arguments, models, options.get("progress")))


def inspect(model: Model) -> Inspection:
    """Reports what is inside a model."""
    with staged(model) as path:
        return read(Inspection, run("inspect", [], [path]))


@lru_cache(maxsize=None)
def scan_all_kernels() -> Dict[str, List[KernelTrial]]:
    """Tries every kernel that there is, and returns the results by the kernels' ids. It takes seconds, once."""
    kernels: Dict[str, List[KernelTrial]] = {}
    for row in run("kernels", [], [])["kernels"]:
        kernels.setdefault(row["kernel"], []).append(read(KernelTrial, row))
    return kernels


def flags(function: str, options: Any, known: Type[Any]) -> List[str]:
    """Turns keyword arguments into the program's flags."""
    made: List[str] = []
    for name, value in options.items():
        if name not in known.__annotations__:
            there_are = ", ".join(known.__annotations__)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; there are {there_are}")
        flag = "--" + ("include" if name == "kernels" and known is ApplyOptions else name.replace("_", "-"))
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
