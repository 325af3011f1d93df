package probe

import (
	"bytes"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// copyStart is the number of bytes by which constants are told apart before they are compared.
const copyStart = 64

// storedWeights are the constants that storedOnce was asked for: those of one type, shape and beginning.
type storedWeights map[string][]*onnx.Value

// storedOnce returns the constant that v is a copy of, the first that it was asked for, or v: exporters store what
// is used in several places as often. This is for the weights of all experts in one; two experts with equal weights
// of their own stay two.
func storedOnce(g *match.View, v *onnx.Value) *onnx.Value {
	t := v.Constant()
	if t == nil || len(t.Dims) < 3 || t.DataType == onnx.String {
		return v
	}
	b, err := t.Bytes()
	if err != nil || len(b) < copyStart {
		return v
	}
	key := fmt.Sprint(t.DataType, t.Dims, b[:copyStart])
	stored := match.Memo[storedWeights](g)
	for _, w := range (*stored)[key] {
		if w == v {
			return w
		}
		if c, err := w.Constant().Bytes(); err == nil && bytes.Equal(b, c) {
			return w
		}
	}
	if *stored == nil {
		*stored = storedWeights{}
	}
	(*stored)[key] = append((*stored)[key], v)
	return v
}
