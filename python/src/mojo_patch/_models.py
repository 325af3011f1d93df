"""Models in memory, handed to the program in files of a temporary folder."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, Optional, Set, Union

from ._errors import MojoPatchError

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    import torch.onnx

Path = Union[str, "os.PathLike[str]"]
Model = Union[Path, bytes, "onnx.ModelProto", "onnx_ir.Model", "torch.onnx.ONNXProgram"]

MOST_BYTES = 2**31 - 1  # the most that protobuf serializes

# A tensor of more bytes is written beside the graph.
_EXTERNAL_OVER = 1024
_ALIGNMENT = 4096  # of such tensors, as onnx writes them


def is_proto(model: Any) -> bool:
    """Reports whether a model is an onnx.ModelProto."""
    return hasattr(model, "graph") and hasattr(model, "SerializeToString")


def is_ir(model: Any) -> bool:
    """Reports whether a model is an onnx_ir.Model."""
    return hasattr(model, "graph") and hasattr(model, "opset_imports")


@contextlib.contextmanager
def staged(model: Any) -> Iterator[str]:
    """Yields the path of a model, or of a temporary file that holds it."""
    if isinstance(model, (str, os.PathLike)):
        yield os.fspath(model)
        return
    with tempfile.TemporaryDirectory(prefix="mojo-patch-") as folder:
        path = os.path.join(folder, "model.onnx")
        if isinstance(model, bytes):
            with open(path, "wb") as f:
                f.write(model)
        elif is_proto(model) and model.ByteSize() < MOST_BYTES:
            with open(path, "wb") as f:
                f.write(model.SerializeToString())
        elif is_proto(model):
            path = Staged(model, folder).path
        elif is_ir(model):
            import onnx_ir

            size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
            onnx_ir.save(model, path, external_data="model.onnx.data" if size > MOST_BYTES // 2 else None)
        elif hasattr(model, "model_proto") and hasattr(model, "save"):  # torch.onnx.ONNXProgram
            model.save(path)
        else:
            raise TypeError("a model is a path, bytes, an onnx.ModelProto, an onnx_ir.Model or a "
                            f"torch.onnx.ONNXProgram, not {type(model)}")
        yield path


def kind(model: Any) -> str:
    """Returns the name of a model that is not a file, such as "<ModelProto>", and "" for a path."""
    return "" if isinstance(model, (str, os.PathLike)) else f"<{type(model).__name__}>"


class Staged:
    """A ModelProto in a folder: the graph in path, its weights beside it, and room for the result in patched.

    The weights are neither serialized nor copied in memory on the way. Files of weights in data_folder are linked to.
    The model does not decide where a file is written or which file is linked to: see _link.
    """

    def __init__(
        self, model: onnx.ModelProto, folder: str, data_folder: Optional[Path] = None, allow_links: bool = False
    ) -> None:
        import onnx

        # The model's file names must differ from the names that the program and this class use.
        self._linked: Set[str] = {_location(t) for t in _external(model)}
        stem = "mojo-patch-model"
        while any(stem in name.casefold() for name in self._linked):
            stem += "-"
        self.path = os.path.join(folder, stem + ".onnx")
        self.patched = os.path.join(folder, stem + "-patched.onnx")
        self._data = stem + ".weights"
        self._weights: Dict[int, onnx.TensorProto] = {}  # by their place in that file
        self._link(folder, data_folder, allow_links)
        slim = onnx.ModelProto()
        _copy(model, slim, "graph")
        _copy(model.graph, slim.graph, "initializer")
        with open(os.path.join(folder, self._data), "wb") as data:
            for tensor in model.graph.initializer:
                if len(tensor.raw_data) > _EXTERNAL_OVER:
                    self._write(tensor, slim.graph.initializer.add(), data)
                else:
                    slim.graph.initializer.append(tensor)
        try:
            content = slim.SerializeToString()
        except Exception as e:  # of protobuf, other ones in other versions
            raise MojoPatchError(
                f"the graph without its initializers cannot be serialised: {e}; save the model with external data, "
                "and give its path"
            ) from e
        with open(self.path, "wb") as f:
            f.write(content)

    def _write(self, tensor: onnx.TensorProto, reference: onnx.TensorProto, data: Any) -> None:
        """Writes the tensor's bytes, and makes reference a tensor that refers to them."""
        _copy(tensor, reference, "raw_data")
        offset = -(-data.tell() // _ALIGNMENT) * _ALIGNMENT
        data.seek(offset)
        data.write(tensor.raw_data)
        self._weights[offset] = tensor
        reference.data_location = reference.EXTERNAL
        for key, value in (("location", self._data), ("offset", offset), ("length", len(tensor.raw_data))):
            reference.external_data.add(key=key, value=str(value))

    def _link(self, folder: str, data_folder: Optional[Path], allow_links: bool) -> None:
        """Makes the files that tensors lie in already appear in the folder.

        The model may come from anywhere: as for the program, its files lie in data_folder, and no link leads to them
        unless links are allowed.
        """
        if self._linked and data_folder is None:
            files = ", ".join(sorted(self._linked))
            raise ValueError(f"weights of the model lie in {files}: name the folder of that with data_folder")
        for location in sorted(self._linked):
            target = regular_file(os.path.abspath(os.fspath(data_folder or "")), location, allow_links)
            link = os.path.join(folder, location)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            try:
                os.symlink(target, link)
            except OSError:  # Windows asks for a privilege
                shutil.copyfile(target, link)

    def load(self, path: str) -> onnx.ModelProto:
        """Reads the model that the program made of this one. Weights in files of data_folder stay there."""
        import onnx
        from onnx.external_data_helper import load_external_data_for_tensor

        model = onnx.load(path, load_external_data=False)
        for tensor in _external(model):
            if _location(tensor) in self._linked:
                continue
            place = _place(tensor)
            weight = self._weights.get(int(place.get("offset", 0))) if place["location"] == self._data else None
            if weight is not None and int(place["length"]) == len(weight.raw_data):
                tensor.raw_data = weight.raw_data
            else:
                load_external_data_for_tensor(tensor, os.path.dirname(path))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]
        return model


def _copy(source: Any, target: Any, leave: str) -> None:
    """Copies the fields of a message, except one."""
    for field, value in source.ListFields():
        if field.name == leave:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def regular_file(folder: str, location: str, allow_links: bool) -> str:
    """Returns the path of a file below a folder, for a location that _location returns."""
    parts = location.split("/")
    for i in range(len(parts)):
        path = os.path.join(folder, *parts[: i + 1])
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode) and allow_links:
                mode = os.stat(path).st_mode
        except OSError as e:
            raise MojoPatchError(f"weights of the model lie in {location!r}: {e}") from e
        if stat.S_ISLNK(mode):
            raise MojoPatchError(
                f"weights of the model lie in {location!r}, and {path} is a symbolic link: put the file itself there, "
                "or give allow_links=True"
            )
    if not stat.S_ISREG(mode):
        raise MojoPatchError(f"weights of the model lie in {location!r}, and {path} is not a regular file")
    return os.path.realpath(path)


def _location(tensor: onnx.TensorProto) -> str:
    """Returns the cleaned path of a tensor's file, within the folder of its model."""
    given = _place(tensor).get("location", "")
    location = posixpath.normpath(given.replace("\\", "/") if os.name == "nt" else given)
    inside = location.split("/")[0] not in ("", ".", "..")
    if not given or not inside or "\0" in given or (os.name == "nt" and ":" in given):
        raise MojoPatchError(
            f"tensor {tensor.name!r} has external data in {given!r}, which is not a file in the model's folder"
        )
    return location


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a model, its graphs and its functions that lie in other files."""
    yield from _external_in(model.graph)
    for function in model.functions:
        yield from _external_of(function.node)


def _external_in(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    sparse = [t for s in graph.sparse_initializer for t in (s.values, s.indices)]
    for tensor in (*graph.initializer, *sparse):
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor
    yield from _external_of(graph.node)


def _external_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            sparse = [t for s in (attribute.sparse_tensor, *attribute.sparse_tensors) for t in (s.values, s.indices)]
            for tensor in (attribute.t, *attribute.tensors, *sparse):
                if tensor.data_location == tensor.EXTERNAL:
                    yield tensor
            for inner in (attribute.g, *attribute.graphs):
                yield from _external_in(inner)


def _place(tensor: onnx.TensorProto) -> Dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
