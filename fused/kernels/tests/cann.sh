#!/bin/sh
# Tests the kernels for onnxruntime's CANN provider on the emulation of CANN: cann.sh BUILD TOOL PYTHON
# BUILD holds libmojo_ops_cann.so and the emulation (kernels/cann, kernels/cann-split), TOOL is mojo-patch. PYTHON needs
# tools/requirements/cann.txt. The bundled models are patched into BUILD/patched-npu and compared with their recorded outputs;
# BUILD/ascend.txt is a transcript.
set -eu
if [ $# -ne 3 ]; then
  echo "usage: cann.sh BUILD TOOL PYTHON" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
tool=$2
python=$3
here=$(cd "$(dirname "$0")" && pwd)
models=$here/../../../models
patched=$build/patched-npu

# Models of bfloat16 do not load on the provider, as they were exported or patched, so they are made float32 first.
rm -rf "$patched" && mkdir -p "$patched/float32"
"$python" "$here/widen.py" "$patched/float32" "$models"/*bf16*.onnx
for model in "$models"/*.onnx; do
  name=$(basename "$model")
  [ ! -e "$patched/float32/$name" ] || model=$patched/float32/$name
  "$tool" apply "$model" -o "$patched/$name" --target ascend -q
done

# test_with FOLDER ARGUMENTS... runs the tests with the libraries of a folder. The provider logs what is planted.
test_with() {
  folder=$1
  shift
  echo "the kernels on CANNExecutionProvider, with the libraries of $folder"
  "$python" "$here/cann_test.py" "$build/libmojo_ops_cann.so" --emulation "$build/kernels/$folder" "$@" \
    >"$build/cann-$folder.log" 2>&1 || { cat "$build/cann-$folder.log"; exit 1; }
  grep -oE '[a-z0-9_-]+(, as float32)?: [0-9]+ fused .*|[0-9]+ calls failed .*|^Ran .*|^OK.*' \
    "$build/cann-$folder.log"
}
transcript() {
  echo "mojo-patch apply --target ascend, run by onnxruntime's CANN provider: emulation of CANN, no hardware"
  version=$("$python" -c 'import importlib.metadata as m; print(m.version("onnxruntime-cann"))')
  echo "$(date -u +%F), onnxruntime-cann $version, enable_cann_graph 0"
  test_with cann --models "$models" --patched "$patched"
}
echo "the CPU kernels of libmojo_ops_cann.so, the objects of libmojo_ops.so, through onnxruntime-cann"
"$python" "$here/ort_test.py" "$build/libmojo_ops_cann.so" --failfast EveryOpTest LoadTest
# Only the place of the functions differs, which cann_emulation_test.py looks up: a test of each op.
test_with cann-split -k test_axis -k GLUTest -k RotaryEmbeddingTest.test_broadcasting -k NormRotaryTest -k AttentionTest \
  -k test_groups -k test_routings
(transcript) >"$build/ascend.txt" || { cat "$build/ascend.txt"; exit 1; }
cat "$build/ascend.txt"
