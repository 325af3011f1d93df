"""Reads a config.pbtxt by the schema of Triton Inference Server, which the package tritonclient has:  triton.py FILE

Prints what a back end needs of it, a line each: the batch, the libraries, the inputs, the outputs and the states with
the value that a sequence begins with.
"""

import importlib.util
import pathlib
import sys
import sysconfig

from google.protobuf import text_format

# The package around the schema wants grpc.
path = pathlib.Path(sysconfig.get_paths()["purelib"]) / "tritonclient" / "grpc" / "model_config_pb2.py"
spec = importlib.util.spec_from_file_location("model_config_pb2", path)
schema = importlib.util.module_from_spec(spec)
spec.loader.exec_module(schema)
config = text_format.Parse(pathlib.Path(sys.argv[1]).read_text(), schema.ModelConfig())


def kind(tensor):
    return schema.DataType.Name(tensor.data_type).removeprefix("TYPE_")


assert config.backend == "onnxruntime" and config.name, "the server would not find the back end"
print("batch", config.max_batch_size)
for library in config.model_operations.op_library_filename:
    print("library", library)
for tensor in config.input:
    print("input", tensor.name, kind(tensor), *tensor.dims)
for tensor in config.output:
    print("output", tensor.name, kind(tensor), *tensor.dims)
for state in config.sequence_batching.state:
    [initial] = state.initial_state
    # What the server checks: SequenceBatchScheduler::GenerateInitialStateData.
    assert initial.name and initial.data_type == state.data_type and initial.WhichOneof("state_data") == "zero_data"
    assert initial.dims == state.dims and all(d > 0 for d in state.dims)
    print("state", state.input_name, state.output_name, kind(state), *state.dims)
