// Package weights puts the tensors of a checkpoint into a graph without weights, strips the weights of a model, and
// lists its quantized matrices.
//
// checkpoint.Open reads GGUF files, safetensors files, an index of such files, or a folder of them. Match finds the
// tensor of each initializer whose external data are missing, by a map (ReadMap) or by rules, and works out its
// conversion: swapped axes, reordered rows. Plan.Apply sets the initializers to tensors whose elements are read,
// dequantized and cast one after the other when the model is written. Report reports the results. Strip does the
// opposite.
//
// # Names
//
// An initializer is looked up by its own name, as PyTorch and Hugging Face checkpoints spell it, with or without
// prefixes such as "model." or "module.". If that fails, its name is derived from the nodes that read it: from their
// metadata (pkg.torch.onnx.name_scopes, namespace), from their names in TorchScript exports
// ("/model/layers.0/self_attn/q_proj/MatMul"), or else from their role in a decoder layer. GGUF files use llama.cpp's
// names (package llamacpp).
//
// # Layouts
//
// The weight of a linear layer is [out, in] in a checkpoint. A MatMul reads it as [in, out], a Gemm according to
// transB. So the readers of an initializer decide whether it is transposed; the shapes must agree. Changes of
// llama.cpp's conversion are undone: the rows of q and k, which it reorders for some architectures, and the 1 that it
// adds to the norms of others.
package weights
