// Package gguf reads GGUF files, the weights and metadata of ggml and llama.cpp.
//
// Open maps a file and reads its metadata and the list of its tensors; Tensor.Float32 returns any range of a tensor's
// elements as float32, and Tensor.Bytes what is stored, so that weights are streamed and nothing has to be held whole.
// Versions 2 and 3 are read, in little-endian order (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// # Types
//
// Stored one by one: F64, F32, F16, BF16, I8, I16, I32, I64. In blocks of quantised elements: Q4_0, Q4_1, Q5_0, Q5_1,
// Q8_0, Q4_K, Q5_K, Q6_K. What these are in float32 is what gguf-py 0.19.0 says (gguf.quants.dequantize), bit for bit;
// only the sign and payload of a NaN that arithmetic makes, from a scale that is infinite or NaN, are the processor's.
// Tensors of other types are listed, and err when their elements are asked for.
//
// # Damaged files
//
// No count, length, dimension or offset is believed before it is compared with the size of the file. Refused are also
// keys and tensors of the same name, tensors that overlap, whose offset is not a multiple of general.alignment, or
// whose rows are no whole number of blocks.
package gguf
