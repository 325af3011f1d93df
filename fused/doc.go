// Package fused is the catalogue of the fused ops (domain "mojo").
//
// Every op is defined once, in standard ONNX ops, by a generator: given the attributes, the types and shapes at one
// place of use and the model's opset, it gives the FunctionProto that travels inside a patched model. That function is
// the op's meaning: the yardstick of every rewrite, the reference of every kernel, and what runs where no kernel is
// registered.
//
// The body imports exactly the opset of the model it is made for, because a runtime inlines it at the model's opset
// whatever the function says. Enumerated attributes (an activation, where a scale is applied) select an overload;
// numbers are read from the node by attribute reference. Bodies compute in float32 and round where the contract rounds,
// so that they load on runtimes that have no bfloat16 or float16 arithmetic.
package fused

//go:generate go run ./internal/generate ..
