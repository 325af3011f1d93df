package rotary

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/patterns/reason"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// half returns the tensor that v is the first or second half of, along the last axis, however it is cut; why not
// otherwise.
func half(g *match.View, v *onnx.Value, second bool) (x *onnx.Value, t *tracer, why *reason.Reason) {
	t = newTracer(g)
	want := t.trace(v, 1)
	if want == nil {
		return nil, t, reason.New("", nil, "a last axis of unknown size")
	}
	for _, b := range t.order {
		c := t.blocks[b]
		if b.Axes != 1 || len(c) != 2*len(want) || !t.g.SameRows(b, match.Block{Value: v, Axes: 1}) {
			continue
		}
		if second {
			c = c[len(want):]
		}
		if slices.Equal(c[:len(want)], want) {
			return b.Value, t, nil
		}
	}
	if n := match.Producer(v); n != nil && len(t.order) > 1 {
		return nil, t, reason.New("", n, "%s of another part", n.OpType)
	}
	return nil, t, reason.New("", match.Producer(v), "%s", g.Describe(v))
}
