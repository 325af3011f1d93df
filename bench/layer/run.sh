#!/bin/sh
# Times a decoder layer of Qwen3-30B-A3B's width in onnxruntime on a GPU: as exported, patched, and with onnxruntime's own fused ops.
#
#     run.sh FOLDER
#
# FOLDER has the models of export.py: fp16.onnx, bf16.onnx (--experts batched_mm), grouped-fp16.onnx, grouped-bf16.onnx (grouped_mm).
# Needs 8 GB there, and the variables MOJO_PATCH (the program), MOJO_OPS_LIBRARY (libmojo_ops_cuda.so), ONNXRUNTIME_LIB (onnxruntime with
# its CUDA provider), PYTHON (with onnx, ml_dtypes, numpy and that onnxruntime; for the times of kernels torch as well).
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
: "${MOJO_PATCH:=$here/../../build/mojo-patch}" "${PYTHON:=python3}"

say() { echo; echo "== $*"; }

prepare() { # weights, the patched model, and the one with onnxruntime's ops
	"$PYTHON" "$here/weights.py" "$1.onnx" || exit 1
	case $1 in grouped-*) return ;; esac
	"$MOJO_PATCH" apply "$1.onnx" -o "$1-patched.onnx" --backend +CUDA,+CPU >"$1.log" 2>&1 || { cat "$1.log"; exit 1; }
	"$PYTHON" "$here/contrib.py" "$1-patched.onnx" "$1-contrib.onnx" && "$PYTHON" "$here/weights.py" "$1-contrib.onnx"
}

say "preparing"
for model in fp16 bf16 grouped-fp16 grouped-bf16; do prepare $model & done
wait
cat fp16.log

bench() { "$MOJO_PATCH" bench "$@" --provider cuda 2>&1; }

word="--dim sequence=1 --dim past=512"
prompt="--dim sequence=512 --dim past=0"
for type in fp16 bf16; do
	models="$type.onnx $type-patched.onnx $type-contrib.onnx"
	for batch in 1 8; do
		say "$type, decode, batch $batch, and as a CUDA graph"
		bench $models --dim batch=$batch $word --runs 100
		bench $models --dim batch=$batch $word --runs 100 --cuda-graph
		# batched_mm gathers the experts' weights for each token: 26 GB for gate and up of 512 tokens.
		[ $batch = 1 ] || models="$type-patched.onnx $type-contrib.onnx"
		say "$type, prefill, batch $batch, and as a CUDA graph"
		bench grouped-$type.onnx $models --dim batch=$batch $prompt --runs 10
		bench $type-patched.onnx $type-contrib.onnx --dim batch=$batch $prompt --runs 50 --cuda-graph
	done
done
say "fp16, decode, batch 1, of grouped_mm; through the host; bound, of fixed sizes"
bench grouped-fp16.onnx fp16-patched.onnx --dim batch=1 $word --runs 20
bench fp16.onnx fp16-patched.onnx --dim batch=1 $word --runs 100 --bind=false
bench fp16.onnx fp16-patched.onnx fp16-contrib.onnx --dim batch=1 $word --runs 100 --fixed
say "fp16, nodes, decode, batch 1"
bench fp16.onnx fp16-patched.onnx fp16-contrib.onnx --dim batch=1 $word --fixed --profile --runs 10
say "fp16, nodes, prefill, batch 1"
bench fp16-patched.onnx fp16-contrib.onnx --dim batch=1 $prompt --fixed --profile --runs 10
say "fp16, decode, batch 1, from Python, and as a CUDA graph"
for graph in "" --cuda-graph; do
	"$PYTHON" "$here/bind.py" fp16.onnx fp16-patched.onnx fp16-contrib.onnx --library "$MOJO_OPS_LIBRARY" $graph 2>&1
done
say "fp16, rows"
"$PYTHON" "$here/rows.py" grouped-fp16.onnx fp16.onnx fp16-patched.onnx fp16-contrib.onnx --library "$MOJO_OPS_LIBRARY" 2>&1
for shape in "--batch 1" "--sequence 512 --past 0"; do
	say "fp16, kernels on the GPU, $shape"
	"$PYTHON" "$here/kernels.py" fp16-patched.onnx fp16-contrib.onnx --library "$MOJO_OPS_LIBRARY" $shape 2>/dev/null
done
