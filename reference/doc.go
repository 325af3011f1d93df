// Package reference evaluates ONNX graphs in pure Go.
//
// It is the yardstick of the toolkit, built to be correct and easy to check instead of fast. Floats are held as float64
// and rounded to their declared type after each op, sums are accumulated in float64, and integers wrap to their width.
// The semantics follow the operator documents of the ONNX standard (docs/Operators.md) in the version that the model
// imports; Supported reports which ops exist. This package runs graphs. The ops are in the packages below internal/ops.
package reference
