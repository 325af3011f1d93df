package convert

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// before evaluates the ops after the product on random rows. It returns a function that evaluates them, including the
// added Slice, on the last rows after the cut; both results must be equal bit for bit. The product itself is not
// evaluated, because it works row by row.
func (c *logitsCut) before(p *logitsPath) (func(added []*onnx.Node) error, error) {
	x, y := p.product.Input(0), p.product.OutputValue(0)
	in, ok1 := c.facts.Shape(x, 0)
	rows, ok2 := c.facts.Shape(y, 0)
	out, ok3 := c.facts.Shape(p.graph.Outputs[p.output], 0)
	if !ok1 || !ok2 || !ok3 {
		return nil, errors.New("the shapes of the logits are not known, so the graph without them cannot be checked")
	}
	batch, positions := int(out[0]), int(out[1])
	given := made(y, rows, c.facts.DataType(y))
	e := reference.NewForOpset(c.model.Opset(""), c.model.Functions, reference.Options{})
	env := map[*onnx.Value]*reference.Tensor{y: given}
	if p.split >= 0 {
		n := p.nodes[p.split]
		shape, ok := c.facts.Known(n.Input(1), 0)
		if !ok {
			return nil, errors.New("the shape of the logits is not known")
		}
		env[n.Input(1)] = shape
	}
	want, err := c.evaluate(e, p, p.nodes, env, y)
	if err != nil {
		return nil, err
	}
	return func(added []*onnx.Node) error {
		y := p.product.OutputValue(0) // a new value if an output for all positions took its name
		got, err := c.evaluate(e, p, p.nodes, map[*onnx.Value]*reference.Tensor{y: lastRows(given, batch, positions)},
			y)
		if err != nil {
			return err
		}
		if err := sameRows(got, lastRows(want, batch, positions)); err != nil {
			return fmt.Errorf("the logits of the last position changed: %w", err)
		}
		first := added[len(added)-1].Input(0)
		for _, n := range added {
			if n.Is("Slice") && n.Input(3) != nil {
				first = n.Input(0)
			}
		}
		states := made(x, in, c.facts.DataType(x))
		env := map[*onnx.Value]*reference.Tensor{x: states}
		if first != x {
			env[first] = &reference.Tensor{DataType: states.DataType,
				Shape: []int{batch, positions, states.Shape[len(states.Shape)-1]}, F: states.F}
		}
		if v := added[0].Input(0); len(added) > 2 {
			env[v], _ = c.facts.Known(v, 0)
		}
		cut := p.product.Input(0)
		if _, err := e.EvalFor(added, env, []*onnx.Value{cut}); err != nil {
			return fmt.Errorf("the last rows of %q: %w", x.Name, err)
		}
		return sameRows(env[cut], lastRows(states, batch, positions))
	}, nil
}

// evaluate runs the nodes with the constants that they need. Random numbers replace constants whose elements are
// missing.
func (c *logitsCut) evaluate(e *reference.Evaluator, p *logitsPath, nodes []*onnx.Node,
	env map[*onnx.Value]*reference.Tensor, start *onnx.Value) (*reference.Tensor, error) {
	if len(nodes) == 0 {
		return env[start], nil
	}
	var list []*onnx.Node
	seen := map[*onnx.Node]bool{}
	var need func(v *onnx.Value)
	need = func(v *onnx.Value) {
		if v == nil || env[v] != nil {
			return
		}
		if t := v.Const; t != nil {
			if _, err := t.Bytes(); errors.Is(err, onnx.ErrMissingData) {
				env[v] = made(v, t.Dims, t.DataType)
			}
			return
		}
		n := v.Producer
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, x := range n.Inputs {
			need(x)
		}
		list = append(list, n)
	}
	result := nodes[len(nodes)-1].OutputValue(0)
	need(result)
	if _, err := e.EvalFor(list, env, []*onnx.Value{result}); err != nil {
		return nil, fmt.Errorf("the ops after the product of the logits cannot be evaluated: %w", err)
	}
	return env[result], nil
}

// made returns a tensor of random numbers, always the same for the same value.
func made(v *onnx.Value, shape []int64, t onnx.DataType) *reference.Tensor {
	if t == onnx.Undefined {
		t = onnx.Float
	}
	r := &reference.Tensor{DataType: t}
	n := 1
	for _, d := range shape {
		r.Shape = append(r.Shape, int(d))
		n *= int(d)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(v.Name))))
	r.F = make([]float64, n)
	for i := range r.F {
		r.F[i] = float64(random.IntN(513)-256) / 64 // exact in every float type
	}
	return r
}

// lastRows returns the last row of each batch entry. The tensor has one row per position, in two or three axes.
func lastRows(t *reference.Tensor, batch, positions int) *reference.Tensor {
	width := t.Shape[len(t.Shape)-1]
	r := &reference.Tensor{DataType: t.DataType, Shape: slices.Clone(t.Shape)}
	if len(r.Shape) == 3 {
		r.Shape[1] = 1
	} else {
		r.Shape[0] = batch
	}
	for b := range batch {
		at := (b*positions + positions - 1) * width
		r.F = append(r.F, t.F[at:at+width]...)
	}
	return r
}

func sameRows(got, want *reference.Tensor) error {
	if got == nil || !slices.Equal(got.Shape, want.Shape) {
		return fmt.Errorf("they are %v, not %v", got, want)
	}
	for i, x := range want.F {
		if y := got.F[i]; x != y && (x == x || y == y) {
			return fmt.Errorf("element %d is %g, not %g", i, y, x)
		}
	}
	return nil
}
