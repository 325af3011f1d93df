package audit

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// copies are the tensors that cross from one provider to another in a run.
type copies struct {
	Tensors int   `json:"tensors"`
	Bytes   int64 `json:"bytes"`
	// Unknown counts the tensors whose size does not follow from the inputs' shapes.
	Unknown int `json:"unknown"`
}

// countCopies counts each tensor once for each provider that reads it and did not compute it. Weights are copied when
// the model is opened, and the program decides where the model's inputs are, so neither is counted.
func countCopies(m *onnx.Model, facts *infer.Facts, p *placement) copies {
	var c copies
	type crossing struct {
		v  *onnx.Value
		to string
	}
	seen := map[crossing]bool{}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			to := p.of(n)
			edit.EachRead(n, func(v *onnx.Value) {
				from, x := p.origin(v), crossing{v, to}
				if to == "" || from == "" || from == to || seen[x] {
					return
				}
				seen[x] = true
				c.Tensors++
				if n, ok := tensorBytes(v, facts); ok {
					c.Bytes += n
				} else {
					c.Unknown++
				}
			})
		}
	})
	return c
}

// origin returns the provider that computes a value. If onnxruntime removed the producer, such as the second of two
// casts, it looks at the producer's first input.
func (p *placement) origin(v *onnx.Value) string {
	for v != nil && v.Producer != nil {
		if on := p.of(v.Producer); on != "" {
			return on
		}
		v = v.Producer.Input(0)
	}
	return ""
}

// tensorBytes returns the size of a tensor; ok is false if the size is unknown.
func tensorBytes(v *onnx.Value, facts *infer.Facts) (n int64, ok bool) {
	shape, ok := facts.Shape(v, 0)
	n = int64(facts.DataType(v).Bits())
	if !ok || n == 0 {
		return 0, false
	}
	for axis, d := range shape {
		if same, ok := facts.Dim(v, axis); !ok || same != d { // the size follows from assumed numbers
			return 0, false
		}
		n *= d
	}
	return (n + 7) / 8, true
}
