// Package safetensors reads safetensors files, the weights of Hugging Face models, and the index of split files.
//
// Open maps a file and reads its header. Tensor.Float32 returns any range of a tensor's elements as float32, and
// Tensor.Bytes the stored bytes, so that weights can be streamed.
//
// The format and its rules are those of https://github.com/huggingface/safetensors (0.8.0). A file is rejected if its
// header has more than 100,000,000 bytes or passes the file's end, does not begin with "{" or is not UTF-8 JSON; if
// metadata are not strings; if a tensor's bytes do not match its type and shape; or if bytes belong to no tensor or to
// two. Duplicate keys, which the format forbids but its readers accept, are rejected too.
package safetensors
