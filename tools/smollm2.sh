#!/bin/sh
# SmolLM2-135M-Instruct from its weights to generated text: loads them into the exported graph, patches it, generates
# with both models, and compares both with what PyTorch generated.
#
# usage: tools/smollm2.sh [FOLDER]      (build/mojo-patch and build/libmojo_ops.so are there: make)
#
# FOLDER is build/smollm2 if not given.
#
# exit codes: 0 both models generate PyTorch's tokens (or differ at near ties alone, which are shown), 1 one does not,
# 4 the weights or onnxruntime cannot be fetched here
set -eu
cd "$(dirname "$0")/.."
case "${1-}" in
  -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; exit 0 ;;
  -*) echo "smollm2: unknown option $1" >&2; exit 2 ;;
esac
out=${1-build/smollm2}
model=models/smollm2
mojo=build/mojo-patch

title() { printf '\n== %s\n' "$*"; }
show() {
  printf '$'
  for word; do
    case $word in *[!A-Za-z0-9_./=:+-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\n'
  "$@" 2>&1
}

gguf=$(tools/fetch-smollm2.sh "$out")
if [ -z "${ONNXRUNTIME_LIB-}" ]; then
  ONNXRUNTIME_LIB=$(tools/fetch-onnxruntime.sh)
  export ONNXRUNTIME_LIB
fi

title "the weights, from GGUF into the graph"
rm -f "$out"/*.onnx "$out"/*.onnx.data # a patched model shares the weights, which are not written over then
show $mojo weights load $model/graph.onnx --from "$gguf" --map $model/map.json -o "$out/model.onnx"

title "find, check, rewrite"
show $mojo apply "$out/model.onnx" -o "$out/patched.onnx" --require

title "generate"
set -- "What is the capital of France?" "Write a haiku about the sea." "Explain in one sentence why the sky is blue."
for prompt; do
  show $mojo generate "$out/patched.onnx" --tokenizer $model --chat --prompt "$prompt" --max-tokens 64
done

title "the logits and 32 tokens that PyTorch computed for each of these prompts, in the original and the patched model"
status=0
for each in model patched; do
  show $mojo generate "$out/$each.onnx" --golden $model/golden.npz || status=$?
done

title "the ids of the prompts, and the tokens of all three generated together"
show $mojo generate "$out/patched.onnx" --tokenizer $model --chat --prompt "$1" --prompt "$2" --prompt "$3" \
  --max-tokens 32 --ignore-eos --json \
  >"$out/together.txt" || { cat "$out/together.txt"; exit 1; }
head -n 1 "$out/together.txt"
"${PYTHON-python3}" tools/smollm2.py "$out/together.txt" $model/golden.npz || status=1
exit $status
