package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// inside shows the values in the bodies of a node, which run on the values computed around them.
func (r *watching) inside(n *onnx.Node) error {
	switch n.OpType {
	case "If":
		name, err := branchOf(n, r.tensor)
		if err != nil {
			return err
		}
		_, err = r.body(n, Step{Node: n.Label(), Graph: name}, nil, 0)
		return err
	case "Loop":
		return r.loop(n)
	case "Scan":
		return r.scan(n)
	}
	return errors.New("it is not an If, Loop or Scan")
}

// tensor returns a held value or a constant, nil for others.
func (r *watching) tensor(v *onnx.Value) *onnx.Tensor {
	if v == nil {
		return nil
	}
	if t := v.Constant(); t != nil {
		return t
	}
	return r.e.Value(v)
}

func (r *watching) loop(n *onnx.Node) error {
	limit, on, state, err := loopStart(n, r.tensor)
	if err != nil {
		return err
	}
	for i := 0; on && int64(i) < limit; i++ {
		given, err := iterationInputs(i)
		if err != nil {
			return err
		}
		made, err := r.body(n, Step{Node: n.Label(), Graph: "body", Iteration: &i}, append(given, state...),
			1+len(state))
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
	state, rounds, err := scanStart(n, r.tensor)
	if err != nil {
		return err
	}
	states := len(state)
	for at, scanned := range rounds {
		state, err = r.body(n, Step{Node: n.Label(), Graph: "body", Iteration: &at}, slices.Concat(state, scanned),
			states)
		if err != nil {
			return fmt.Errorf("iteration %d: %w", at, err)
		}
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
	inputs, shared, err := bodyInputs(b.model, step.Graph, given, b.outer, r.tensor, keep)
	if err != nil {
		return nil, err
	}
	held := r.e.Held() - shared
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
	made := lookup(in.tensor).all(graph.Outputs[:keep])
	if i := slices.Index(made, nil); i >= 0 {
		return nil, fmt.Errorf("%s does not return a tensor %q", step.Graph, graph.Outputs[i].Name)
	}
	return made, nil
}

// bodyOf returns a body as a model. It makes the model when the body first runs.
func (r *watching) bodyOf(n *onnx.Node, name string, given []*onnx.Tensor) (*watchedBody, error) {
	if a := n.Attr(name); a != nil && r.bodies[a.Graph] != nil {
		return r.bodies[a.Graph], nil
	}
	m, outer, err := bodyModel(r.model, n, name, given, r.tensor)
	if err != nil {
		return nil, err
	}
	blocks, layers := within(r.blocks[n], m)
	if layers {
		r.blocks[n] = Block{-1, Head} // its results are the model's results
	}
	g := n.Attr(name).Graph
	hidden := make([]bool, len(g.Outputs))
	for i := range hidden {
		hidden[i] = n.Is("If") && n.OutputValue(i) != nil && r.hidden[n.OutputValue(i)]
	}
	o := r.options
	o.Progress = nil
	b := &watchedBody{newWatcher(&Watcher{model: m, options: o, blocks: blocks}, hidden), outer}
	r.bodies[g] = b
	return b, nil
}
