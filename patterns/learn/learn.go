package learn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// A Pattern is a pattern that was written.
type Pattern struct {
	*notation.Pattern
	// Numbers are the numbers of the region that may differ in another model.
	Numbers []Number
	// Nodes is the least number of nodes in a match.
	Nodes int
	ops   []string // of the nodes, operands first
	views []string // that replace ops
}

// Write writes a pattern, without a name, for a match in the graph of view. It returns an error if the notation cannot
// express the region or its replacement.
func Write(set *patterns.Set, view *match.View, m *patterns.Match) (*Pattern, error) {
	switch {
	case m.Replacement == nil:
		return nil, errors.New("the model's opset has no such op")
	case len(m.Functions) > 0:
		return nil, errors.New("its replacement calls a function")
	}
	w := &writer{set: set, View: view, m: m, terms: map[*onnx.Value]*term{}}
	w.name()
	w.attributes()
	if err := w.readTerms(); err != nil {
		return nil, err
	}
	call, err := w.target(m.Replacement.Outputs[0])
	if err != nil {
		return nil, err
	}
	target, ok := call.(*notation.TargetCall)
	if !ok || slices.ContainsFunc(m.Replacement.Outputs, func(v *onnx.Value) bool {
		return v.Producer != m.Replacement.Outputs[0].Producer
	}) {
		return nil, errors.New("its replacement is not one node with all outputs")
	}
	p := &notation.Pattern{Name: unnamed(set), Params: w.params, Results: w.results, Body: w.body(),
		Target: notation.Target{Call: target}}
	if p.Where, err = w.conditions(p); err != nil {
		return nil, err
	}
	p.Anchors = w.anchors()
	written := &Pattern{Pattern: p, Numbers: w.numbers, Nodes: len(w.order)}
	for _, t := range w.order {
		if t.call.Op == t.op { // not a view
			written.ops = append(written.ops, t.op)
		} else {
			written.views = append(written.views, t.call.Op)
		}
	}
	return written, nil
}

// unnamed returns a name that no pattern of the set has.
func unnamed(set *patterns.Set) string {
	name := "Learnt"
	for slices.ContainsFunc(set.Patterns, func(p *patterns.Pattern) bool { return p.Name == name }) {
		name += "_"
	}
	return name
}

// writer writes one pattern.
type writer struct {
	set *patterns.Set
	*match.View
	m *patterns.Match

	params, results []string               // names of the inputs and outputs of the match
	inputs          map[*onnx.Value]string // names of the inputs by their resolved values
	rows            map[string]bool        // the inputs that are arguments of Row in the pattern
	x               *onnx.Value            // sizes are numbers of its channels; may be nil
	fixed           bool                   // the pattern only holds for rows of one size
	rotary          float64                // number of rotated channels
	known           []attribute            // the numbers of the op
	numbers         []Number               // that were generalized
	terms           map[*onnx.Value]*term  // memo of read
	nodes           int                    // number of nodes read
	order           []*term                // the terms of nodes, operands first
	roots           []*term                // the terms of the outputs
	conds           []string               // about numbers
}

// name chooses names for the inputs and outputs of the replacement.
func (w *writer) name() {
	w.inputs, w.rows = map[*onnx.Value]string{}, map[string]bool{}
	for i, v := range w.m.Inputs {
		name := w.fresh(w.m.Replacement.Inputs[i].Name)
		w.params = append(w.params, name)
		w.inputs[w.Resolve(v)] = name
	}
	for i := range w.m.Outputs {
		name := "y"
		if i > 0 {
			name = w.m.Replacement.Outputs[i].Name
		}
		w.results = append(w.results, w.fresh(name))
	}
	if norms[w.m.Op] {
		w.x = w.m.Inputs[0]
	}
}

// norms are the ops whose numbers may depend on the size of the normalized axes.
var norms = map[string]bool{fused.RMSNormName: true, fused.AddRMSNormName: true, "LayerNormalization": true}

// fresh returns an unused name, as close as possible to want.
func (w *writer) fresh(want string) string {
	taken := func(name string) bool {
		return slices.Contains(w.params, name) || slices.Contains(w.results, name) ||
			slices.ContainsFunc(w.numbers, func(n Number) bool { return n.Name == name }) ||
			slices.ContainsFunc(w.order, func(t *term) bool { return t.name == name })
	}
	name := want
	for i := 2; taken(name); i++ {
		name = fmt.Sprintf("%s_%d", want, i)
	}
	return name
}

// anchors returns an op at which users may ask why nothing was found: one that few other blocks have.
func (w *writer) anchors() []string {
	for _, t := range w.order {
		op := t.op
		if t.call.Domain == "" && (strings.HasPrefix(op, "Reduce") || strings.HasPrefix(op, "GlobalAverage") ||
			slices.Contains([]string{"Sigmoid", "Tanh", "Erf", "Softplus", "Softmax"}, op)) {
			return []string{op}
		}
	}
	return nil
}
