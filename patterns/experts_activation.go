package patterns

import (
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/rotary"
)

// activation is what an expert does between its products. Its fields are attributes of mojo.MoE.
type activation struct {
	name                   string
	alpha, limit, upOffset float32
}

// expertPatterns are the gates and activations of builtin/experts.pat, which stand for nothing by themselves.
var expertPatterns = sync.OnceValue(func() *match.Index { return match.BuiltinIndex("views.pat", "experts.pat") })

// activated reads v as the result of an activation: of gate, multiplied with up, or of gate alone, where up is nil. gate is
// nil where v is none.
func (f *finder) activated(v *onnx.Value) (gate, up *onnx.Value, act activation) {
	v = f.view.Resolve(v)
	if v.Producer == nil {
		return nil, nil, act
	}
	for _, p := range expertPatterns().At(v.Producer) {
		s := match.NewAttempt(f.view, p)
		var m *Match
		if !s.At(v, func() bool { m = f.build(s, v); return m != nil && m.Replacement != nil }) {
			continue
		}
		for _, a := range m.Attributes {
			switch a.Name {
			case "activation":
				act.name = a.String
			case "alpha":
				act.alpha = a.Float
			case "limit":
				act.limit = a.Float
			case "up_offset":
				act.upOffset = a.Float
			}
		}
		if gate = m.Inputs[0]; len(m.Inputs) > 1 {
			up = m.Inputs[1]
		}
		return gate, up, act
	}
	return nil, nil, act
}

// maxPacked bounds the outputs of an expert's first product.
const maxPacked = 1 << 17

// packed finds the value whose channels gate and up are, both; nil where there is none. The packing is "halves" or
// "interleaved"; upFirst says that the first half is up.
func packed(g *match.View, gate, up *onnx.Value) (v *onnx.Value, packing string, upFirst bool) {
	t := rotary.NewTracer(g)
	t.Max = maxPacked
	a, b := t.Trace(gate, 1), t.Trace(up, 1)
	n := len(a)
	if n == 0 || len(b) != n {
		return nil, "", false
	}
	holds := func(c, part []rotary.Channel, from, step int) bool {
		for i := range part {
			if c[from+i*step] != part[i] {
				return false
			}
		}
		return true
	}
	for _, x := range t.ByAxes() {
		c := t.Blocks[x]
		switch {
		case x.Axes != 1 || len(c) != 2*n:
		case holds(c, a, 0, 1) && holds(c, b, n, 1):
			return x.Value, "halves", false
		case holds(c, b, 0, 1) && holds(c, a, n, 1):
			return x.Value, "halves", true
		case holds(c, a, 0, 2) && holds(c, b, 1, 2):
			return x.Value, "interleaved", false
		}
	}
	return nil, "", false
}
