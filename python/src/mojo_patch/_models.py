"""Models in memory, handed to the program in files of a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Set, Union

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
_ALIGNMENT = 4096  # of such tensors, as in what onnx writes


def is_proto(model: Any) -> bool:
    """Reports whether a model is an onnx.ModelProto."""
    return hasattr(model, "graph") and hasattr(model, "SerializeToString")


def is_ir(model: Any) -> bool:
    """Reports whether a model is an onnx_ir.Model."""
    return hasattr(model, "graph") and hasattr(model, "opset_imports")


@contextlib.contextmanager
def staged(model: Any) -> Iterator[str]:
    """Yields the path of a model: its own, or that of a temporary file that holds it."""
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
            Staged(model, folder)
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
    """A ModelProto in a folder: the graph in model.onnx, its weights beside it.

    The weights are neither serialised nor copied in memory on the way. Those that lie in files already, in data_folder,
    are linked to.
    """

    def __init__(self, model: onnx.ModelProto, folder: str, data_folder: Optional[Path] = None) -> None:
        import onnx

        self.path = os.path.join(folder, "model.onnx")
        self._data = "model.onnx.mojo-patch"
        self._weights: Dict[int, onnx.TensorProto] = {}  # by their place in that file
        slim = onnx.ModelProto()
        _copy(model, slim, "graph")
        _copy(model.graph, slim.graph, "initializer")
        with open(os.path.join(folder, self._data), "wb") as data:
            for tensor in model.graph.initializer:
                if len(tensor.raw_data) > _EXTERNAL_OVER:
                    self._write(tensor, slim.graph.initializer.add(), data)
                else:
                    slim.graph.initializer.append(tensor)
        self._link(slim, folder, data_folder)
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

    def _link(self, model: onnx.ModelProto, folder: str, data_folder: Optional[Path]) -> None:
        """Makes the files that tensors lie in already appear in the folder."""
        self._linked: Set[str] = {_place(t)["location"] for t in _external(model.graph)} - {self._data}
        if self._linked and data_folder is None:
            files = ", ".join(sorted(self._linked))
            raise ValueError(f"weights of the model lie in {files}: name the folder of that with data_folder")
        for location in self._linked:
            target = os.path.join(os.path.abspath(os.fspath(data_folder or "")), location)
            link = os.path.join(folder, location)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            try:
                os.symlink(target, link)
            except OSError:  # Windows asks for a privilege
                shutil.copyfile(target, link)

    def load(self, path: str) -> onnx.ModelProto:
        """Reads the model that the program made of this one. What lay in files of data_folder still does."""
        import onnx
        from onnx.external_data_helper import load_external_data_for_tensor

        model = onnx.load(path, load_external_data=False)
        for tensor in _external(model.graph):
            place = _place(tensor)
            if place["location"] in self._linked:
                continue
            weight = self._weights.get(int(place.get("offset", 0))) if place["location"] == self._data else None
            if weight is not None and int(place["length"]) == len(weight.raw_data):
                tensor.raw_data = weight.raw_data
            else:
                load_external_data_for_tensor(tensor, os.path.dirname(path))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]
        return model


def _copy(source: Any, target: Any, leave: str) -> None:
    """Copies the fields of a message, but for one."""
    for field, value in source.ListFields():
        if field.name == leave:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def _external(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph and the graphs in it that lie in other files."""
    for tensor in graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor
    for node in graph.node:
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                if tensor.data_location == tensor.EXTERNAL:
                    yield tensor
            for inner in (attribute.g, *attribute.graphs):
                yield from _external(inner)


def _place(tensor: onnx.TensorProto) -> Dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
