// Package fused is the catalogue of the fused ops (domain "mojo"). Each folder has an op, or ops that share code, with
// all that belongs to them. Package op has what they are declared with; this package has it too, by other names.
//
// Every op is defined once, in standard ONNX ops, by a generator. From the attributes, types and shapes at one place of
// use and the model's opset, it builds the FunctionProto that a patched model contains. That function defines the op:
// rewrites and kernels are checked against it, and it runs if no kernel is registered.
//
// The body imports exactly the opset of its model, because a runtime inlines it at the model's opset whatever the
// function imports. Enumerated attributes (such as an activation) select an overload. Numbers are read from the node by
// attribute reference. Bodies compute in float32 and round where the formula rounds, so that they load on runtimes
// without bfloat16 or float16 arithmetic.
package fused

//go:generate go run ./internal/generate ..
