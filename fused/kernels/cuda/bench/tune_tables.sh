#!/bin/sh
# Measures the tables that the library ships (moe/cuda/moe_tables), on a machine with the GPU that they are for.
#
#     tune_tables.sh FOLDER
#
# Needs the variables MOJO_PATCH (the program), MOJO_OPS_LIBRARY (libmojo_ops_cuda.so) and ONNXRUNTIME_LIB. FOLDER gets
# the tables, each a minute or two; the library's own tables are ignored.
set -e
table() {
    "$MOJO_PATCH" tune --experts "$2" --top-k "$3" --hidden "$4" --inner "$5" --format "$6" --layout "$7" \
        -o "$FOLDER/$1-$6.json"
}
FOLDER=$1
mkdir -p "$FOLDER"
table gpt-oss-20b 32 4 2880 2880 mxfp4 out_in
table gpt-oss-20b 32 4 2880 2880 bfloat16 in_out
table qwen3-30b-a3b 128 8 2048 768 bfloat16 out_in
table mixtral-8x7b 8 2 4096 14336 bfloat16 out_in
table deepseek-v3-eighth 256 8 7168 256 fp8 out_in
table deepseek-v3 256 8 7168 2048 fp8 out_in
