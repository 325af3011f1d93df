// Package gguf reads GGUF files, the weights and metadata of ggml and llama.cpp.
//
// Open maps a file and reads its metadata and list of tensors. Tensor.Float32 returns any range of a tensor's elements
// as float32, and Tensor.Bytes the stored bytes, so that weights can be streamed. The package reads versions 2 and 3 in
// little-endian order (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// # Types
//
// Stored individually: F64, F32, F16, BF16, I8, I16, I32, I64. In quantized blocks: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
// Q5_K, Q6_K, MXFP4. Float32 returns the values of gguf-py 0.19.0 (gguf.quants.dequantize), bit for bit, except that
// the processor determines the sign and payload of a NaN computed from an infinite or NaN scale. Tensors of other types
// are listed, but reading their elements returns an error.
//
// # Damaged files
//
// Every count, length, dimension and offset is checked against the size of the file. The package also rejects duplicate
// keys and tensors, tensors that overlap, offsets that are not a multiple of general.alignment, and rows that are not a
// whole number of blocks.
package gguf
