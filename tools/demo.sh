#!/bin/sh
# Patches a bundled export and shows that it still does what PyTorch did, and how fast.
#
# usage: tools/demo.sh [MODEL.onnx]      (build/mojo-patch is there: make; MOJO_OPS_LIBRARY names the kernel library)
#
# The model needs recorded outputs beside it, MODEL.npz. Where onnxruntime cannot be fetched, everything runs in the
# built-in evaluator.
set -eu
cd "$(dirname "$0")/.."
model=${1-models/qwen3-dynamo-fp32.onnx}
golden=${model%.onnx}.npz
out=build/demo
patched=$out/$(basename "$model" .onnx).mojo.onnx
mojo=build/mojo-patch

title() { printf '\n== %s\n' "$*"; }
show() {
  printf '$ %s\n' "$*"
  "$@" 2>&1
}

mkdir -p "$out"
title "onnxruntime"
on=
if [ -z "${ONNXRUNTIME_LIB-}" ]; then
  if library=$(tools/fetch-onnxruntime.sh); then
    ONNXRUNTIME_LIB=$library
    export ONNXRUNTIME_LIB
  else
    echo "onnxruntime cannot be fetched here: the built-in evaluator runs the models instead (its times say nothing)"
    on=--evaluator
  fi
fi

title "what is inside"
show $mojo inspect "$model"

title "find, check, rewrite"
show $mojo apply "$model" -o "$patched" --require

title "both against the outputs that PyTorch gave"
show $mojo diff "$model" "$patched" --golden "$golden" $on

title "the time of one run: batch 1, 96 tokens, median of 200 runs in onnxruntime (or 3 in the evaluator)"
repeat=200 threads="--threads 1"
[ -z "$on" ] || { repeat=3; threads=; }
for m in "$model" "$patched"; do
  $mojo run "$m" --dim batch=1 --dim sequence=96 --repeat $repeat $threads $on 2>&1 | grep -E ' in |^case'
done
echo "(the model is tiny, and most of its time goes to other ops: docs/benchmarks.md has wide ones)"
