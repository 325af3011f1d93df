// Package crosscheck reads a written model a second time, with a decoder that shares nothing with package onnx
// (github.com/owulveryck/onnx-go), and compares what that one sees with the graph that was meant: the nodes in order,
// their op types and attributes, which value each input reads and each output writes, the graph's inputs and outputs.
// The graphs in attributes and the bodies of functions, which that reader does not know, are given to it one by one.
//
// Topology only: weights are skipped on the way in, so that a model of any size takes the memory of its graph alone.
// The second reader does not see domains, node names, types and opset imports. Where it lacks a kind of attribute
// (sparse tensors, types, tensors of most element types) the attribute is left out on both sides and the Result says
// so.
//
// onnx-go needs gorgonia.org/tensor, whose licence forbids to profit from it directly: see THIRD_PARTY.md before a
// program that links this package is distributed.
package crosscheck
