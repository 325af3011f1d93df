"""export: models as serving engines want them. Each function runs a command of the program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional, TypedDict

from ._apply import flags
from ._command import run
from ._models import Model, Path, staged
from ._reports import GenAIFolder, TritonModel, read

if TYPE_CHECKING:
    from typing_extensions import Unpack


class GenAIOptions(TypedDict, total=False):
    """The options of export_genai. Each is the flag of its name of `mojo-patch export genai`."""

    provider: str  # "cpu" or "cuda"
    cuda_graph: bool
    context_length: int  # tokens of a sequence at most
    engine: bool  # for genai's Engine
    max_batch_size: int  # sequences that it runs together
    blocks: int  # of each of its pools
    kernels_lib: Path
    allow_links: bool
    progress: Optional[bool]


class TritonOptions(TypedDict, total=False):
    """The options of export_triton. Each is the flag of its name of `mojo-patch export triton`."""

    name: str  # of the model
    server_path: str  # of the repository on the server
    max_batch_size: int
    queue_delay: int  # microseconds
    provider: str  # "cpu" or "cuda"
    kernels_lib: Path
    allow_links: bool
    progress: Optional[bool]


def export_genai(model: Model, output: Path, tokenizer: Path, **options: Unpack[GenAIOptions]) -> GenAIFolder:
    """Writes a decoder as a folder that onnxruntime-genai opens. tokenizer is the folder with tokenizer.json."""
    arguments = flags("export_genai", options, GenAIOptions)
    arguments += [f"--output={os.fspath(output)}", f"--tokenizer={os.fspath(tokenizer)}"]
    with staged(model) as path:
        return read(GenAIFolder, run("export", ["genai", *arguments], [path], options.get("progress")).data)


def export_triton(model: Model, repository: Path, **options: Unpack[TritonOptions]) -> TritonModel:
    """Writes a model into a repository of Triton Inference Server."""
    arguments = [*flags("export_triton", options, TritonOptions), f"--output={os.fspath(repository)}"]
    with staged(model) as path:
        return read(TritonModel, run("export", ["triton", *arguments], [path], options.get("progress")).data)
