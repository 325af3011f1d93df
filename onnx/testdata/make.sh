#!/bin/sh
# Takes a few small models of the ONNX standard's node tests as fixtures: control flow, sequences, optionals, strings,
# tensors of rare types, expanded functions. They are the first inputs of the fuzz target, too.
#
#   testdata/make.sh build/onnx-node-tests      (the folder that tools/onnx-node-tests.py wrote)
set -e
out="$(dirname "$0")/models"
mkdir -p "$out"
for name in if_opt if_seq loop13_seq loop16_seq_none scan9_sum sequence_map_add_1_sequence_1_tensor_expanded \
	optional_get_element_optional_sequence constant string_split_basic cast_INT2_to_FLOAT adagrad \
	ai_onnx_ml_label_encoder_tensor_mapping rms_normalization_2d_axis0_expanded; do
	cp "$1/test_$name/model.onnx" "$out/$name.onnx"
done
