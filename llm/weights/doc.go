// Package weights puts the tensors of a checkpoint into a graph that lacks its weights, takes weights out of a model,
// and describes tensors.
//
// Open reads a checkpoint: GGUF files, safetensors files, an index of such files, a folder of them. Match finds for
// each initializer whose external data are missing the tensor it is, by a map (ReadMap) or by rules, and says how that
// tensor has to be turned: which axes are swapped, which rows stand in another order. Plan.Apply makes the initializers
// tensors whose elements are read, dequantised and cast when the model is written, one after the other. Report says
// what came of it. Strip does the opposite, and Describe counts what a tensor holds.
//
// # Names
//
// An initializer is looked up under its own name, as PyTorch and Hugging Face checkpoints call it, with prefixes such
// as "model." or "module." or without. Where that finds nothing, its name is read off the nodes that compute with it:
// their metadata (pkg.torch.onnx.name_scopes, namespace), their names as TorchScript exports them
// ("/model/layers.0/self_attn/q_proj/MatMul"), or, where there is neither, the part they play in a decoder layer. In
// GGUF files names are those of llama.cpp (gguf_names.txt).
//
// # Layouts
//
// The weight of a linear layer is [out, in] in a checkpoint. A MatMul reads it as [in, out], a Gemm as transB says. So
// who reads an initializer decides whether it is transposed; the shapes have to agree with that. What llama.cpp's
// conversion changed is undone: the rows of q and k, which it reorders for some architectures, and the 1 that it adds
// to the norms of others.
package weights
