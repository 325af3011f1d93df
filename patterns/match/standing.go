package match

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Standing returns what stands in one list of values at the place where a value stands in another, nil for those that
// do not: layers of one form have such lists.
func Standing(was, is []*onnx.Value) func(*onnx.Value) *onnx.Value {
	return func(v *onnx.Value) *onnx.Value {
		if i := slices.Index(was, v); i >= 0 && v != nil {
			return is[i]
		}
		return nil
	}
}
