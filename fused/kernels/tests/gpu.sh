#!/bin/sh
# Tests the CUDA kernels on a GPU: gpu.sh BUILD TOOL PYTHON
# BUILD holds libmojo_ops_cuda.so and cuda/tests (make cuda cuda-programs), TOOL is mojo-patch. PYTHON needs onnxruntime with
# the CUDA provider, onnx, numpy and ml_dtypes. TOOL uses the onnxruntime of ONNXRUNTIME_LIB, or the one that it finds.
# Everything runs, and it exits with 1 when something failed.
set -u
if [ $# -ne 3 ]; then
  echo "usage: gpu.sh BUILD TOOL PYTHON" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
tool=$2
python=$3
here=$(cd "$(dirname "$0")" && pwd)
models=$here/../../../models
library=$build/libmojo_ops_cuda.so
failed=

# try NAME COMMAND... runs a step.
try() {
  name=$1
  shift
  echo "== $name"
  "$@" || { echo "== $name FAILED"; failed="$failed, $name"; }
}

for program in "$build"/cuda/tests/*; do
  [ -x "$program" ] && try "$(basename "$program")" "$program"
done

patched=$build/patched
rm -rf "$patched" && mkdir -p "$patched"
for model in "$models"/*.onnx; do
  "$tool" apply "$model" -o "$patched/$(basename "$model")" --backend +CUDA,+CPU --assume-available --check-kernels off -q ||
    failed="$failed, apply $(basename "$model")"
done

try "through onnxruntime" "$python" "$here/cuda_test.py" "$library" --models "$models" --patched "$patched"
# kernels passes over a device that is not there: here that is a failure.
kernels() {
  "$tool" kernels --kernels-lib "$library" >"$build/kernels.txt"
  status=$?
  cat "$build/kernels.txt"
  ! grep -q 'were not tried' "$build/kernels.txt" && return $status
}
try "the kernels against their definitions" kernels
for model in "$patched"/*.onnx; do
  name=$(basename "$model" .onnx)
  try "mojo-patch, $name" "$tool" diff "$model" --golden "$models/$name.npz" --provider cuda --kernels-lib "$library"
done

if [ -n "$failed" ]; then
  echo "failed: ${failed#, }"
  exit 1
fi
echo "all GPU tests passed"
