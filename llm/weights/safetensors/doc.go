// Package safetensors reads safetensors files, the weights of Hugging Face models, and the index of those that are cut
// into several.
//
// Open maps a file and reads its header; Tensor.Float32 returns any range of a tensor's elements as float32, and
// Tensor.Bytes what is stored, so that weights are streamed and nothing has to be held whole.
//
// The format is that of https://github.com/huggingface/safetensors (0.8.0), and so are the rules by which a file is
// refused: a header of more than 100,000,000 bytes or beyond the file's end, that does not begin with "{" or is no JSON
// in UTF-8; metadata that are no strings; a tensor whose bytes are not what its type and shape take; bytes that belong
// to no tensor or to two. Duplicate keys, which the format forbids and its readers overlook, are refused as well.
package safetensors
