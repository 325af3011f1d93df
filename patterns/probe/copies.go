package probe

import (
	"bytes"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// copyStart is the number of leading bytes by which constants are grouped before they are compared.
const copyStart = 64

// storedWeights holds the constants given to storedOnce, grouped by type, shape and leading bytes.
type storedWeights map[string][]*onnx.Value

// storedOnce returns the first constant that v is a copy of, or v: exporters may store a weight once for each use. It
// only merges stacked weights of all experts; two experts with equal separate weights stay two.
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
		if w == v { // its bytes need not be read again
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
