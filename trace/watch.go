package trace

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Inputs is the block of the model's inputs.
const Inputs = "inputs"

// Seen is a floating-point value of a running model.
type Seen struct {
	Value  *onnx.Value
	Op     string // the op that computes it, "input" for an input of the model
	Block  Block
	Path   // to a value in a branch or loop
	Tensor *onnx.Tensor
	// Hidden reports that only a Softmax reads it, directly or through sums and moves of elements. Elements far below
	// the others then only mask; their exact values do not matter.
	Hidden bool
}

// WatchOptions controls how a model is watched.
type WatchOptions struct {
	Open      Open
	MaxMemory int64 // bytes of values held at once; 0 for DefaultMemory
	// Progress is called with the number of main-graph values seen and the total. It may be nil.
	Progress func(done, total int)
}

// Watched summarizes a run.
type Watched struct {
	// Skipped names the branches and loops that were not watched, and why.
	Skipped []string `json:"skipped,omitempty"`
	Bytes   int64    `json:"bytes"`
	Peak    int64    `json:"peak_bytes"` // of values held at once
	Pieces  int      `json:"pieces"`
}

// Watcher shows every floating-point value that a model computes from its inputs, in execution order, including the
// bodies of branches and loops. Bodies run again for that, on the values computed around them.
type Watcher struct {
	model   *onnx.Model
	options WatchOptions
	blocks  map[*onnx.Node]Block
	hidden  map[*onnx.Value]bool
	values  []*onnx.Value
	// controls are the nodes with bodies, by the first of their outputs that is watched.
	controls map[*onnx.Value]*onnx.Node
	bodies   map[*onnx.Graph]*watchedBody
	whole    bool // a whole model, not a body
}

// watchedBody is a body as a separate model. Its inputs are the body's inputs, then the outer values that it reads.
type watchedBody struct {
	*Watcher
	outer []*onnx.Value
}

// NewWatcher returns a watcher. Calls of functions that are not fused ops should be inlined first.
func NewWatcher(m *onnx.Model, o WatchOptions) *Watcher {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	return newWatcher(&Watcher{model: m, options: o, blocks: Blocks(m), whole: true}, nil)
}

// newWatcher completes a watcher. hiddenOutputs marks the outputs that are hidden.
func newWatcher(w *Watcher, hiddenOutputs []bool) *Watcher {
	w.controls, w.bodies = map[*onnx.Value]*onnx.Node{}, map[*onnx.Graph]*watchedBody{}
	w.hidden = hiddenValues(w.model.Graph, hiddenOutputs)
	facts, fixed := infer.Analyze(w.model), fixedValues(w.model.Graph)
	floats := func(v *onnx.Value) bool {
		t := facts.DataType(v)
		return t.IsFloat() || t == onnx.Undefined
	}
	if w.whole {
		for _, v := range w.model.Graph.Inputs {
			if v.Const == nil && floats(v) {
				w.values = append(w.values, v)
			}
		}
	}
	for _, n := range w.model.Graph.Nodes {
		control := len(n.Subgraphs()) > 0
		for _, v := range n.Outputs {
			if v == nil || fixed[v] || isSequence(v) || !control && !floats(v) {
				continue
			}
			if control { // of any type: there may be floats inside
				w.controls[v], control = n, false
			}
			w.values = append(w.values, v)
		}
	}
	return w
}

// Run runs the model on inputs and calls look for each value.
func (w *Watcher) Run(inputs []*onnx.Tensor, look func(*Seen) error) (*Watched, error) {
	r := &watching{Watcher: w, Watched: &Watched{}, look: look}
	return r.Watched, r.run(inputs, nil)
}

// watching is one run.
type watching struct {
	*Watcher
	*Watched
	e     *Execution
	path  Path
	sizes map[string]int64
	look  func(*Seen) error
}

// run runs a model. The values of ends are available afterwards.
func (r *watching) run(inputs []*onnx.Tensor, ends []*onnx.Value) (err error) {
	if r.sizes, err = sizes(r.model, inputs); err != nil {
		return err
	}
	watched, uses := slices.Concat(r.targets(r.values), ends), map[*onnx.Value]int{}
	for _, v := range watched {
		uses[v]++
	}
	if r.e, err = Start(r.model, r.options.Open, inputs, watched); err != nil {
		return err
	}
	for done := 0; done < len(r.values); {
		values := r.values[done : done+r.next(r.values[done:])]
		targets := r.targets(values)
		if needs := r.needs(values); needs > r.options.MaxMemory {
			return &memoryError{values[0].Name, needs, r.options.MaxMemory}
		}
		if err := r.e.Advance(targets...); err != nil {
			return err
		}
		r.Pieces++
		for _, v := range values {
			if err := r.see(v); err != nil {
				return err
			}
		}
		for _, v := range targets {
			if uses[v]--; uses[v] == 0 {
				r.e.Drop(v)
			}
		}
		if done += len(values); r.options.Progress != nil {
			r.options.Progress(done, len(r.values))
		}
	}
	err = r.e.Advance(ends...)
	r.Peak = max(r.Peak, r.e.Peak())
	return err
}

// targets lists the values to compute for values, including those that nodes with bodies read.
func (r *watching) targets(values []*onnx.Value) (list []*onnx.Value) {
	for _, v := range values {
		list = append(list, v)
		if n := r.controls[v]; n != nil {
			list = append(list, computed(n.Reads())...)
		}
	}
	return list
}

// needs returns the bytes of values held at once while these are computed. The runner holds a copy of each result.
func (r *watching) needs(values []*onnx.Value) int64 {
	return r.e.Held() + 2*r.e.fresh(r.targets(values), r.sizes)
}

// next returns how many of the values come next: as many as fit in memory. The outputs of a node with bodies come by
// themselves.
func (r *watching) next(values []*onnx.Value) int {
	if r.controls[values[0]] != nil {
		return 1
	}
	most := 1 + slices.IndexFunc(values[1:], func(v *onnx.Value) bool { return r.controls[v] != nil })
	if most == 0 {
		most = len(values)
	}
	return max(1, sort.Search(most, func(n int) bool { return r.needs(values[:n+1]) > r.options.MaxMemory }))
}

// see shows a value, after the values in the bodies of its node.
func (r *watching) see(v *onnx.Value) error {
	if n := r.controls[v]; n != nil {
		var memory *memoryError
		var looked *lookError
		err := r.inside(n)
		if errors.As(err, &memory) || errors.As(err, &looked) {
			return err
		}
		if err != nil {
			r.Skipped = append(r.Skipped, fmt.Sprintf("%s %q: %v", n.OpType, n.Label(), err))
		}
	}
	t := r.e.Value(v)
	if t == nil {
		return fmt.Errorf("%q of %s was not computed", v.Name, r.model.Path)
	}
	if !t.DataType.IsFloat() {
		return nil
	}
	r.Bytes += t.Size()
	seen := &Seen{Value: v, Op: opOf(v), Block: Block{-1, Inputs}, Path: r.path, Tensor: t, Hidden: r.hidden[v]}
	if v.Producer != nil {
		seen.Block = r.blocks[v.Producer]
	}
	if err := r.look(seen); err != nil {
		return &lookError{fmt.Errorf("%q: %w", v.Name, err)}
	}
	return nil
}

// lookError is an error of the caller's look. It ends the run.
type lookError struct{ error }

// Unwrap returns the error of look.
func (e *lookError) Unwrap() error { return e.error }

// Add adds the summary of another run.
func (w *Watched) Add(o *Watched) {
	for _, text := range o.Skipped {
		if !slices.Contains(w.Skipped, text) {
			w.Skipped = append(w.Skipped, text)
		}
	}
	w.Bytes, w.Pieces, w.Peak = w.Bytes+o.Bytes, w.Pieces+o.Pieces, max(w.Peak, o.Peak)
}
