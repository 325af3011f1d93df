package streams

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Inflate multiplies the values of a model's residual stream by a power of two, and makes weights compensate for it. It
// reports whether there is a stream with several sums.
func Inflate(m *onnx.Model, exponent int) (bool, error) {
	c := &chooser{builder: newBuilder(m), ranges: &ranges{ran: map[*onnx.Graph]bool{}}}
	m.Graph.Walk(func(g *onnx.Graph) { c.ranges.ran[g] = true })
	if err := c.choose(); err != nil {
		return false, err
	}
	sums, best := map[int]int{}, none
	for _, n := range nodes(m.Graph) {
		if !n.Is("Add") || n.Input(0).Constant() != nil || n.Input(1).Constant() != nil {
			continue
		}
		terms := c.system.of(c.values[n.Outputs[0]])
		for x, factor := range terms {
			if sums[x]++; len(terms) == 1 && factor == 1 && (best == none || sums[x] > sums[best]) {
				best = x
			}
		}
	}
	if best == none || sums[best] < 2 {
		return false, nil
	}
	c.chosen[best] = exponent
	w := &scaler{graph: m.Graph}
	return true, w.write(c.builder, c.exponent)
}

// Law is one way in which the values of a model may grow together.
type Law struct {
	Inputs, Outputs map[string]int // exponents by name
	// Scale writes the factors of constants and epsilons into the model.
	Scale func() error
}

// Laws lists the independent ways in which inputs and outputs of a model may grow.
func Laws(m *onnx.Model, exponent int) (list []Law) {
	b := emptyBuilder(m.Graph, infer.Analyze(m))
	b.laws()
	free := sum{}
	for x := range b.solved {
		for y := range b.system.of(x) {
			free[y] = 1
		}
	}
	for _, y := range sortedKeys(free) {
		grown := func(x int) int { return b.system.of(x)[y] * exponent }
		law := Law{Inputs: map[string]int{}, Outputs: map[string]int{}, Scale: func() error {
			return (&scaler{graph: m.Graph}).write(b, grown)
		}}
		for _, v := range m.Graph.Inputs {
			if b.isFloat(v) {
				law.Inputs[v.Name] = grown(b.of(v))
			}
		}
		for _, v := range m.Graph.Outputs {
			if b.isFloat(v) {
				law.Outputs[v.Name] = grown(b.of(v))
			}
		}
		list = append(list, law)
	}
	return list
}
