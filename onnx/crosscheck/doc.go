// Package crosscheck reads a written model again with a decoder that shares no code with package onnx
// (github.com/owulveryck/onnx-go), and compares the result with the intended graph: the nodes in order, their op types
// and attributes, the inputs and outputs of each node, and the graph's inputs and outputs. That reader does not support
// graphs in attributes and function bodies, so it decodes them one by one.
//
// The comparison covers only topology. Weights are skipped while reading, so that a model of any size needs only the
// memory of its graph. The second reader ignores domains, node names, types and opset imports. If it does not support a
// kind of attribute (sparse tensors, types, tensors of most element types), both sides leave the attribute out and the
// Result lists it.
//
// onnx-go needs gorgonia.org/tensor, whose license forbids profiting from it directly: see THIRD_PARTY.md before
// distributing a program that links this package.
package crosscheck
