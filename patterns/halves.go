package patterns

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// half returns the tensor that v is the first or second half of, along the last axis, however it is cut; why not otherwise.
func (g *graphView) half(v *onnx.Value, second bool) (x *onnx.Value, t *tracer, why string) {
	t = newTracer(g)
	want := t.trace(v, 1)
	if want == nil {
		return nil, t, "a last axis of unknown size"
	}
	for _, b := range t.order {
		c := t.blocks[b]
		if b.axes != 1 || len(c) != 2*len(want) || !t.sameRows(b, block{v, 1}) {
			continue
		}
		if second {
			c = c[len(want):]
		}
		if slices.Equal(c[:len(want)], want) {
			return b.v, t, ""
		}
	}
	if n := producer(v); n != nil && len(t.order) > 1 {
		return nil, t, n.OpType + " of another part"
	}
	return nil, t, g.describe(v)
}
