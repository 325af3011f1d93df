package patterns

import (
	"bytes"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// copyStart is the number of bytes by which constants are told apart before they are compared.
const copyStart = 64

// storedOnce returns the constant that v is a copy of, the first that it was asked for, or v: exporters store what is used in several
// places as often. This is for the weights of all experts in one; two experts with equal weights of their own stay two.
func (g *graphView) storedOnce(v *onnx.Value) *onnx.Value {
	t := v.Constant()
	if t == nil || len(t.Dims) < 3 || t.DataType == onnx.String {
		return v
	}
	b, err := t.Bytes()
	if err != nil || len(b) < copyStart {
		return v
	}
	key := fmt.Sprint(t.DataType, t.Dims, b[:copyStart])
	for _, w := range g.weights[key] {
		if w == v {
			return w
		}
		if c, err := w.Constant().Bytes(); err == nil && bytes.Equal(b, c) {
			return w
		}
	}
	if g.weights == nil {
		g.weights = map[string][]*onnx.Value{}
	}
	g.weights[key] = append(g.weights[key], v)
	return v
}
