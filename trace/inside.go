package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// control is a node with bodies (If, Loop or Scan) that both models have.
type control struct {
	nodes  [2]*onnx.Node
	reads  [2][]*onnx.Value   // the computed values outside the nodes that they or their bodies read
	bodies map[string]*bodies // by attribute name
}

// bodies is a branch, or the body of a loop, of both models, as separate models. Their inputs are the body's
// inputs, then the values that it reads from the graphs around it.
type bodies struct {
	*Comparer
	outer [2][]*onnx.Value
}

func (b *bodies) models() [2]*onnx.Model { return [2]*onnx.Model{b.Comparer.a, b.Comparer.b} }

// controlOf returns the node with bodies of which both values of a pair are the same output, nil if there is no such
// node.
func controlOf(p Pair) *control {
	n, m := p.A.Producer, p.B.Producer
	if n == nil || m == nil || p.A.Output != p.B.Output || !m.Is(n.OpType) ||
		!n.Is("If") && !n.Is("Loop") && !n.Is("Scan") {
		return nil
	}
	c := &control{nodes: [2]*onnx.Node{n, m}, bodies: map[string]*bodies{}}
	for i, n := range c.nodes {
		c.reads[i] = computed(n.Reads())
	}
	return c
}

// computed removes the constants.
func computed(values []*onnx.Value) (list []*onnx.Value) {
	for _, v := range values {
		if v.Constant() == nil {
			list = append(list, v)
		}
	}
	return list
}

// inside compares the values in the bodies of a node. It runs the bodies again, separately, on the values that each
// model computed around them. If that fails, it notes the reason in Skipped, unless memory is too small.
func (r *pass) inside(c *control) (err error) {
	switch n := c.nodes[0]; n.OpType {
	case "If":
		err = r.branch(c)
	case "Loop":
		err = r.loop(c)
	case "Scan":
		err = r.scan(c)
	}
	var memory *memoryError
	if err != nil && !errors.As(err, &memory) {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%s %q, case %d: %v", c.nodes[0].OpType, c.nodes[0].Label(), r.number,
			err))
		return nil
	}
	return err
}

// branch runs the branch that both models take.
func (r *pass) branch(c *control) error {
	var names [2]string
	for i, n := range c.nodes {
		var err error
		if names[i], err = branchOf(n, r.lookup(i)); err != nil {
			return err
		}
	}
	if names[0] != names[1] {
		return fmt.Errorf("the first model takes %s and the second %s", names[0], names[1])
	}
	now := &round{keep: len(c.nodes[1].Outputs)}
	if err := r.iterate(c, Step{Node: c.nodes[0].Label(), Graph: names[0]}, now); err != nil {
		return err
	}
	if now.tied {
		r.settle(c, now.made[1])
	}
	return nil
}

// tensor returns a value of the first or the second model, nil if it is not available.
func (r *pass) tensor(side int, v *onnx.Value) *onnx.Tensor {
	if v == nil {
		return nil
	}
	if t := v.Constant(); t != nil {
		return t
	}
	return r.side(side).Value(v)
}

// lookup returns the lookup of one model's tensors.
func (r *pass) lookup(side int) lookup {
	return func(v *onnx.Value) *onnx.Tensor { return r.tensor(side, v) }
}

func truth(t *onnx.Tensor) (bool, error) {
	if t == nil || t.DataType != onnx.Bool || t.Len() != 1 {
		return false, errors.New("its condition is not known")
	}
	b, err := t.Bytes()
	return err == nil && b[0] != 0, err
}

// settle makes the second model use the bodies' results after tied tokens followed the first model's experts.
func (r *pass) settle(c *control, made []*onnx.Tensor) {
	for i, t := range made {
		if v := c.nodes[1].OutputValue(i); v != nil && t != nil {
			r.b.Set(v, t)
		}
	}
}

// round is one run of the bodies: their inputs and results.
type round struct {
	inputs [2][]*onnx.Tensor // inputs of the bodies themselves
	errors []float64         // errors of the inputs
	keep   int               // the number of outputs to keep

	made [2][]*onnx.Tensor
	off  []float64 // errors of the results
	tied bool      // whether tokens of the second model followed the first model's experts
}

// iterate runs a body of both models and compares the values in it.
func (r *pass) iterate(c *control, step Step, now *round) error {
	b, err := r.bodies(c, step.Graph, now)
	if err != nil {
		return err
	}
	in := &pass{Comparer: b.Comparer, number: r.number, errors: map[*onnx.Value]float64{}}
	var inputs [2][]*onnx.Tensor
	var ends [2][]*onnx.Value
	shared := int64(0)
	for i, m := range b.models() {
		var size int64
		inputs[i], size, err = bodyInputs(m, step.Graph, now.inputs[i], b.outer[i], r.lookup(i), now.keep)
		if err != nil {
			return err
		}
		shared += size
		ends[i] = m.Graph.Outputs[:now.keep]
	}
	for k, e := range now.errors {
		in.errors[b.a.Graph.Inputs[k]] = e
	}
	for k, v := range b.outer[0] {
		if e, known := r.errors[v]; known {
			in.errors[b.a.Graph.Inputs[len(now.inputs[0])+k]] = e
		}
	}
	held := r.a.Held() + r.b.Held() - shared
	b.options.MaxMemory = r.options.MaxMemory - held
	if err := in.run(inputs, ends); err != nil {
		return err
	}
	for i := range ends {
		for _, v := range ends[i] {
			t := in.tensor(i, v)
			if t == nil {
				return fmt.Errorf("%s does not return a tensor %q", step.Graph, v.Name)
			}
			now.made[i] = append(now.made[i], t)
		}
	}
	for _, v := range ends[0] {
		now.off = append(now.off, in.errors[v])
	}
	now.tied = r.options.RouterTies && in.ties() > 0
	in.Peak += held
	r.take(in.Comparison, step)
	return nil
}

// bodies returns a body of both models as models. It makes them when the body first runs.
func (r *pass) bodies(c *control, name string, now *round) (*bodies, error) {
	if b := c.bodies[name]; b != nil {
		return b, nil
	}
	b := &bodies{}
	var models [2]*onnx.Model
	var graphs [2]*onnx.Graph
	for i, m := range []*onnx.Model{r.Comparer.a, r.Comparer.b} {
		var err error
		models[i], b.outer[i], err = bodyModel(m, c.nodes[i], name, now.inputs[i], r.lookup(i))
		if err != nil {
			return nil, err
		}
		graphs[i] = models[i].Graph
	}
	if len(graphs[0].Outputs) != len(graphs[1].Outputs) {
		return nil, fmt.Errorf("%s has %d outputs in one model and %d in the other", name, len(graphs[0].Outputs),
			len(graphs[1].Outputs))
	}
	var known []Pair
	for k := range min(len(now.inputs[0]), len(now.inputs[1])) {
		known = append(known, Pair{A: graphs[0].Inputs[k], B: graphs[1].Inputs[k]})
	}
	for k, v := range b.outer[0] {
		if l := slices.Index(b.outer[1], r.partner[v]); l >= 0 {
			known = append(known, Pair{A: graphs[0].Inputs[len(now.inputs[0])+k],
				B: graphs[1].Inputs[len(now.inputs[1])+l]})
		}
	}
	for k, v := range graphs[0].Outputs {
		known = append(known, Pair{A: v, B: graphs[1].Outputs[k]})
	}
	at := r.blocks[c.nodes[0]]
	blocks, layers := within(at, models[0])
	if layers {
		r.blocks[c.nodes[0]] = Block{-1, Head} // its results are the model's results
	}
	o := r.options
	o.Progress = nil
	b.Comparer = newComparer(&Comparer{a: models[0], b: models[1], blocks: blocks, options: o, within: &at}, known...)
	c.bodies[name] = b
	return b, nil
}

// within returns the blocks of a body's nodes: their own if the body contains whole layers, else the enclosing block.
func within(at Block, m *onnx.Model) (blocks map[*onnx.Node]Block, layers bool) {
	blocks = Blocks(m)
	for _, b := range blocks {
		if b.Layer >= 0 && at.Layer < 0 {
			return blocks, true
		}
	}
	for n := range blocks {
		blocks[n] = at
	}
	return blocks, false
}

// take adds the results of a run of bodies. A value in a loop has one row for all iterations.
func (r *pass) take(o *Comparison, step Step) {
	for _, row := range o.Rows {
		row.Path = append(Path{step}, row.Path...)
		if step.Iteration == nil {
			r.Rows = append(r.Rows, row)
			continue
		}
		row.Iterations = max(row.Iterations, 1)
		if !row.Stats.Passed {
			row.FirstOut = step.Iteration
		}
		i := slices.IndexFunc(r.Rows, func(x Row) bool { return x.Iterations > 0 && x.Value == row.Value })
		if i < 0 {
			r.Rows = append(r.Rows, row)
			continue
		}
		old := r.Rows[i]
		worst := old
		if old.Stats.Passed != row.Stats.Passed && !row.Stats.Passed || old.Stats.Passed == row.Stats.Passed &&
			row.Worse(&old) {
			worst = row
		}
		worst.Iterations, worst.FirstOut = old.Iterations+row.Iterations, cmp.Or(old.FirstOut, row.FirstOut)
		r.Rows[i] = worst
	}
	for _, choice := range o.Routers {
		choice.Path = append(Path{step}, choice.Path...)
		r.Routers = append(r.Routers, choice)
	}
	for _, near := range o.Near {
		near.Path = append(Path{step}, near.Path...)
		r.Near = append(r.Near, near)
	}
	for _, text := range o.Unlike {
		r.Unlike = append(r.Unlike, text+" ("+step.String()+")")
	}
	for _, text := range o.Skipped {
		r.Skipped = append(r.Skipped, text+" ("+step.String()+")")
	}
	if r.first == nil && o.first != nil {
		first := *o.first
		first.Path = append(Path{step}, first.Path...)
		r.first = &first
	}
	r.Bytes, r.Pieces, r.Peak = r.Bytes+o.Bytes, r.Pieces+o.Pieces, max(r.Peak, o.Peak)
}
