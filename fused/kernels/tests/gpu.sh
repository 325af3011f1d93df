#!/bin/sh
# Tests the CUDA kernels on a GPU: gpu.sh BUILD TOOL PYTHON [DIR]
# BUILD holds libmojo_ops_cuda.so and cuda/tests (make cuda cuda-programs), TOOL is mojo-patch. PYTHON needs onnxruntime with
# the CUDA provider, onnx, numpy and ml_dtypes. TOOL uses the onnxruntime of ONNXRUNTIME_LIB, or the one that it finds.
# With DIR only models run, and those of DIR or DIR/models, each with its outputs NAME.npz, take the place of the bundled ones.
# Everything runs, and it exits with 1 when something failed.
set -u
if [ $# -lt 3 ] || [ $# -gt 4 ]; then
  echo "usage: gpu.sh BUILD TOOL PYTHON [DIR]" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
tool=$2
python=$3
here=$(cd "$(dirname "$0")" && pwd)
models=${4:-$here/../../../models}
ls "$models"/*.onnx >/dev/null 2>&1 || models=$models/models
library=$build/libmojo_ops_cuda.so
failed=

# try NAME COMMAND... runs a step.
try() {
  name=$1
  shift
  echo "== $name"
  "$@" || { echo "== $name FAILED"; failed="$failed, $name"; }
}

if [ $# -eq 3 ]; then
  for program in "$build"/cuda/tests/*; do
    [ -x "$program" ] && try "$(basename "$program")" "$program"
  done
fi

# each FUNCTION FILE... calls it for every file, eight at a time: to find the device takes a process seconds.
each() {
  call=$1
  shift
  running=0
  for file; do
    "$call" "$file" &
    running=$((running + 1))
    [ $((running % 8)) -eq 0 ] && wait
  done
  wait
}

patched=$build/patched
rm -rf "$patched" && mkdir -p "$patched"
apply() {
  "$tool" apply "$1" -o "$patched/$(basename "$1")" --backend +CUDA,+CPU --assume-available --check-kernels off -q
}
each apply "$models"/*.onnx
for model in "$models"/*.onnx; do
  [ -e "$patched/$(basename "$model")" ] || failed="$failed, apply $(basename "$model")"
done

# kernels passes over a device that is not there: here that is a failure.
kernels() {
  "$tool" kernels --kernels-lib "$library" >"$build/kernels.txt"
  status=$?
  cat "$build/kernels.txt"
  ! grep -q 'for cuda were not tried' "$build/kernels.txt" && return $status
}
if [ $# -eq 3 ]; then
  try "through onnxruntime" "$python" "$here/cuda_test.py" "$library" --models "$models" --patched "$patched"
  try "ranks through onnxruntime" "$python" "$here/cuda_ranks_test.py" "$library"
  try "the kernels against their definitions" kernels
else
  try "models through onnxruntime" "$python" "$here/cuda_test.py" "$library" --models "$models" --patched "$patched" ModelsTest
fi

# The same models in the program.
compare() {
  name=$(basename "$1" .onnx)
  "$tool" diff "$1" --golden "$models/$name.npz" --provider cuda --kernels-lib "$library" >"$patched/$name.log" 2>&1
  echo $? >"$patched/$name.status"
}
each compare "$patched"/*.onnx
compared() {
  cat "$patched/$1.log"
  return "$(cat "$patched/$1.status")"
}
for model in "$patched"/*.onnx; do
  try "mojo-patch, $(basename "$model")" compared "$(basename "$model" .onnx)"
done

# Generation, whose cache stays on the device, gives the tokens that it gives on the CPU.
generated() {
  prompts="--ids 5,17,42 --ids 9,3,77,120,8,31,64 --ids 101"
  "$tool" generate "$1" $prompts -n 12 -q --provider cpu --kernels off >"$patched/generated" &&
    "$tool" generate "$2" $prompts -n 12 --provider cuda --kernels-lib "$library" | diff - "$patched/generated"
}
if [ $# -eq 3 ]; then
  root=$here/../../..
  try "generation" generated "$models/llama-kv-dynamo-fp32.onnx" "$models/llama-kv-dynamo-fp32.onnx"
  try "generation, patched" generated "$models/llama-kv-dynamo-fp32.onnx" "$patched/llama-kv-dynamo-fp32.onnx"
  try "generation, float16" generated "$root/llm/generate/testdata/cache-fp16.onnx" "$root/llm/generate/testdata/cache-fp16.onnx"
fi

# Inputs and outputs that stay on the device.
if [ $# -eq 3 ] && command -v go >/dev/null; then
  try "bindings, from Go" env MOJO_TEST_PROVIDER=CUDA MOJO_REQUIRE_ORT=1 go -C "$here/../../.." test -count=1 ./ort -run "Bind|Bound|Output"
  try "generation, from Go" env MOJO_TEST_PROVIDER=CUDA MOJO_REQUIRE_ORT=1 go -C "$here/../../.." test -count=1 ./llm/generate
fi

if [ -n "$failed" ]; then
  echo "failed: ${failed#, }"
  exit 1
fi
echo "all GPU tests passed"
