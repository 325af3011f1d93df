package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// inside shows the values in the bodies of a node, which run on what was computed around them.
func (r *watching) inside(n *onnx.Node) error {
	switch n.OpType {
	case "If":
		holds, err := truth(r.tensor(n.Input(0)))
		if err != nil {
			return err
		}
		name := map[bool]string{true: "then_branch", false: "else_branch"}[holds]
		_, err = r.body(n, Step{Node: n.Label(), Graph: name}, nil, 0)
		return err
	case "Loop":
		return r.loop(n)
	case "Scan":
		return r.scan(n)
	}
	return errors.New("it is no If, Loop or Scan")
}

// tensor is a value that is there or constant, nil for others.
func (r *watching) tensor(v *onnx.Value) *onnx.Tensor {
	if v == nil {
		return nil
	}
	if t := v.Constant(); t != nil {
		return t
	}
	return r.e.Value(v)
}

func (r *watching) tensors(values []*onnx.Value) (list []*onnx.Tensor) {
	for _, v := range values {
		list = append(list, r.tensor(v))
	}
	return list
}

func (r *watching) loop(n *onnx.Node) (err error) {
	limit, on := int64(math.MaxInt64), true
	if n.Input(0) != nil {
		list, err := numbers(r.tensor(n.Input(0)))
		if err != nil || len(list) != 1 {
			return errors.New("its number of iterations is not known")
		}
		limit = list[0]
	}
	if n.Input(1) != nil {
		if on, err = truth(r.tensor(n.Input(1))); err != nil {
			return err
		}
	}
	state := r.tensors(n.Inputs[min(2, len(n.Inputs)):])
	going, err := onnx.NewTensor("", onnx.Bool, []int64{}, []byte{1})
	if err != nil {
		return err
	}
	for i := 0; on && int64(i) < limit; i++ {
		number := onnx.NewInt64s("", []int64{int64(i)})
		number.Dims = []int64{}
		made, err := r.body(n, Step{Node: n.Label(), Graph: "body", Iteration: &i},
			append([]*onnx.Tensor{number, going}, state...), 1+len(state))
		if err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
		if on, err = truth(made[0]); err != nil {
			return err
		}
		state = made[1:]
	}
	return nil
}

func (r *watching) scan(n *onnx.Node) error {
	states := len(n.Inputs) - int(n.AttrInt("num_scan_inputs", 0))
	if states < 0 || states >= len(n.Inputs) {
		return fmt.Errorf("num_scan_inputs does not fit %d inputs", len(n.Inputs))
	}
	state := r.tensors(n.Inputs[:states])
	var rounds [][]*onnx.Tensor // what each round scans
	for k, v := range n.Inputs[states:] {
		along, err := places(r.tensor(v), attrAt(n, "scan_input_axes", k), attrAt(n, "scan_input_directions", k) == 1)
		if err != nil {
			return err
		}
		if k == 0 {
			rounds = make([][]*onnx.Tensor, len(along))
		}
		if len(along) != len(rounds) {
			return errors.New("its inputs have different numbers of places")
		}
		for at, t := range along {
			rounds[at] = append(rounds[at], t)
		}
	}
	for at, scanned := range rounds {
		made, err := r.body(n, Step{Node: n.Label(), Graph: "body", Iteration: &at}, slices.Concat(state, scanned),
			states)
		if err != nil {
			return fmt.Errorf("iteration %d: %w", at, err)
		}
		state = made
	}
	return nil
}

// body runs a body once, shows the values in it, and returns the first of its outputs.
func (r *watching) body(n *onnx.Node, step Step, given []*onnx.Tensor, keep int) ([]*onnx.Tensor, error) {
	b, err := r.bodyOf(n, step.Graph, given)
	if err != nil {
		return nil, err
	}
	graph := b.model.Graph
	if len(graph.Outputs) < keep {
		return nil, fmt.Errorf("%s has %d outputs, expected %d", step.Graph, len(graph.Outputs), keep)
	}
	var inputs []*onnx.Tensor
	held := r.e.Held()
	for k, t := range given {
		inputs = append(inputs, t.Tied(graph.Inputs[k].Name))
	}
	for k, v := range b.outer {
		t := r.tensor(v)
		held -= t.Size() // both runs have it
		inputs = append(inputs, t.Tied(graph.Inputs[len(given)+k].Name))
	}
	b.options.MaxMemory = r.options.MaxMemory - held
	in := &watching{Watcher: b.Watcher, Watched: &Watched{}, path: append(slices.Clone(r.path), step), look: r.look}
	err = in.run(inputs, graph.Outputs[:keep])
	for _, text := range in.Skipped {
		r.Skipped = append(r.Skipped, text+" ("+step.String()+")")
	}
	r.Bytes, r.Pieces, r.Peak = r.Bytes+in.Bytes, r.Pieces+in.Pieces, max(r.Peak, held+in.Peak)
	if err != nil {
		return nil, err
	}
	made := in.tensors(graph.Outputs[:keep])
	if i := slices.Index(made, nil); i >= 0 {
		return nil, fmt.Errorf("%s gives no tensor %q", step.Graph, graph.Outputs[i].Name)
	}
	return made, nil
}

// bodyOf returns a body as a model, which is made when it runs for the first time.
func (r *watching) bodyOf(n *onnx.Node, name string, given []*onnx.Tensor) (*watchedBody, error) {
	a := n.Attr(name)
	if a == nil || a.Graph == nil {
		return nil, fmt.Errorf("it has no %s", name)
	}
	g := a.Graph
	if b := r.bodies[g]; b != nil {
		return b, nil
	}
	if len(g.Inputs) != len(given) {
		return nil, fmt.Errorf("%s has %d inputs, and there are %d values for it", name, len(g.Inputs), len(given))
	}
	b := &watchedBody{outer: computed(g.Reads())}
	var ports []onnx.Port
	for k, v := range g.Inputs {
		if given[k] == nil {
			return nil, fmt.Errorf("the input %q of %s is no tensor", v.Name, name)
		}
		ports = append(ports, onnx.Port{Value: v, Type: rankOf(given[k])})
	}
	for _, v := range b.outer {
		t := r.tensor(v)
		if t == nil {
			return nil, fmt.Errorf("%q, which %s reads, is no tensor", v.Name, name)
		}
		ports = append(ports, onnx.Port{Value: v, Type: typeOf(t)})
	}
	m, err := r.model.Part(g.Nodes, ports, g.Outputs)
	if err != nil {
		return nil, err
	}
	blocks, layers := within(r.blocks[n], m)
	if layers {
		r.blocks[n] = Block{-1, Head} // it gives what the model gives
	}
	hidden := make([]bool, len(g.Outputs))
	for i := range hidden {
		hidden[i] = n.Is("If") && n.OutputValue(i) != nil && r.hidden[n.OutputValue(i)]
	}
	o := r.options
	o.Progress = nil
	b.Watcher = newWatcher(&Watcher{model: m, options: o, blocks: blocks}, hidden)
	r.bodies[g] = b
	return b, nil
}
