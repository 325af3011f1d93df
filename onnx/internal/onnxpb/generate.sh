#!/bin/sh
# Regenerates mojopatch_onnx.proto and mojopatch_onnx.pb.go from the onnx.proto of PyPI's onnx package.
#
#   generate.sh path/to/site-packages/onnx/onnx.proto
#
# needs protoc (for example from PyPI's grpcio-tools: PROTOC="python -m grpc_tools.protoc") and
# protoc-gen-go v1.36.12 on PATH. Comments are left out: docs/IR.md of ONNX says what the messages are. The proto
# package is renamed because onnx-go registers "onnx.*" too, and two registrations of one name panic at start.
set -e
cd "$(dirname "$0")"
sed -e '/SPDX/b' -e '/^[[:space:]]*\/\//d' -e 's/^package onnx;/package mojopatch.onnx;/' \
	-e 's/^option optimize_for = LITE_RUNTIME;//' "$1" | cat -s > mojopatch_onnx.proto
${PROTOC:-protoc} -I. --go_out=. --go_opt=paths=source_relative \
	--go_opt=Mmojopatch_onnx.proto=github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb mojopatch_onnx.proto
