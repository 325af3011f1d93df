// Package onnx holds an ONNX model in memory and on disk.
//
// A Model owns a Graph (and Functions, whose bodies are Graphs too). A Graph is made of Nodes that read and write
// Values; every Value knows its producer and its uses, so a rewriter walks it in both directions without name look-ups.
// Read maps the file: weights stay in the mapping until somebody asks for them. Write streams them to the new file,
// also those that are put together out of others (Concat, Tensor.View).
//
// A file is data from elsewhere: Read refuses what contradicts itself or reaches out of the model's folder, with an
// error that names the file and the place, and needs little more private memory than the graph takes in the file. Write
// never touches the file it reads from, and leaves either whole files or none.
//
// Whatever the package does not model (unknown fields, device configurations, sparse tensors, training info, …) is
// kept with the protobuf message it came in and written back as it was.
package onnx
