// Package reference evaluates ONNX graphs in pure Go.
//
// It is the yardstick of the toolkit, made for being right and easy to check rather than for speed: floats are held as
// float64 and rounded to their declared type after each op, sums are accumulated in float64, integers wrap to their
// width. Sources of the semantics are the operator documents of the ONNX standard (docs/Operators.md) in the version
// that the model imports; see Supported for the list.
package reference
