// Package onnx holds an ONNX model in memory and on disk.
//
// A Model owns a Graph (and Functions, whose bodies are Graphs too). A Graph consists of Nodes that read and write
// Values. Every Value knows its producer and its uses, so a rewriter can walk in both directions without name lookups.
// Read maps the file: weights stay in the mapping until they are read. Write streams them to the new file, including
// those assembled from others (Concat, Tensor.View).
//
// Files are untrusted. Read rejects a file that contradicts itself or refers outside the model's folder, with an error
// that names the file and the place. It needs little more private memory than the graph takes in the file. Write never
// changes the file that the model was read from, and leaves either whole files or no files.
//
// Fields that the package does not model (unknown fields, device configurations, sparse tensors, training info, …) stay
// in their protobuf message and are written back unchanged.
package onnx
