package runson

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A Report describes the changes for a provider.
type Report struct {
	Provider string `json:"provider"` // CPU or CUDA
	Runtime  string `json:"runtime"`  // its version of onnxruntime
	// Before and After are the model's opsets.
	Before  int64      `json:"opset_before"`
	After   int64      `json:"opset_after"`
	Inlined int        `json:"inlined"` // calls of functions replaced by their bodies
	Lowered []*Lowered `json:"lowered"`
	// Check has the worst figures of the proofs; absent if these were assumed.
	Check *prove.CheckReport `json:"check,omitempty"`
}

// Lowered counts changed nodes with the same op and types.
type Lowered struct {
	Op    string   `json:"op"`
	Types []string `json:"types"` // of the inputs
	// Way is the new form: "float32" or other types for the node between Casts, "body" for its definition.
	Way   string `json:"way"`
	Nodes int    `json:"nodes"`
}

// Changed reports whether the model was changed.
func (r *Report) Changed() bool { return r.Before != r.After || r.Inlined+len(r.Lowered) > 0 }

// Text returns the report as lines of text.
func (r *Report) Text() string {
	var b strings.Builder
	if r.Before != r.After {
		fmt.Fprintf(&b, "lowered opset %d to %d for onnxruntime %s\n", r.Before, r.After, r.Runtime)
	}
	count := 0
	for _, l := range r.Lowered {
		count += l.Nodes
	}
	fmt.Fprintf(&b, "%s that %s in onnxruntime %s has no kernel for were lowered", english.Counted(count, "node"),
		r.Provider, r.Runtime)
	for i, l := range r.Lowered {
		fmt.Fprintf(&b, "%s%d %s of %s to %s", map[bool]string{true: ": ", false: ", "}[i == 0], l.Nodes, l.Op,
			strings.Join(l.Types, ", "), l.Way)
	}
	return b.String()
}

// lowering is one change of a model for a place.
type lowering struct {
	*pass.Run
	place  *Place
	report *Report
	prover *prove.Prover
	facts  *infer.Facts
	opset  int64
}

func newLowering(run *pass.Run, place *Place, r *Report) *lowering {
	l := &lowering{Run: run, place: place, report: r, prover: run.NewProver()}
	l.look()
	return l
}

// look analyzes the model again.
func (l *lowering) look() { l.facts, l.opset = infer.Analyze(l.Model), l.Model.Opset("") }

// Prepare converts the model to an opset that the place supports, before the search for sites: the newest one, up to
// its own, in which every node has a kernel or can get one. Nodes with newer ops are replaced by their definitions. An
// error names the nodes that prevent each opset.
func Prepare(run *pass.Run, place *Place) (*Report, error) {
	r := &Report{Provider: place.Device, Runtime: place.Version.Name, Before: run.Model.Opset(""),
		Lowered: []*Lowered{}}
	l := newLowering(run, place, r)
	if err := l.inline(); err != nil {
		return nil, err
	}
	to, ways, err := l.opsetFor()
	if err != nil {
		return nil, err
	}
	err = l.each(func(n *onnx.Node) error {
		if w := ways[n]; w != nil && w.body != nil {
			return l.lower(n, w)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := convert.Lower(l.Model, to); err != nil {
		return nil, err
	}
	r.After = to
	return r, nil
}

// Apply lowers the nodes without a kernel at the place, after sites were replaced. An error names the nodes that cannot
// be lowered.
func Apply(run *pass.Run, place *Place, r *Report) error {
	l := newLowering(run, place, r)
	ways, refused := l.ways(l.opset)
	if refused != nil {
		return l.refuse(refused)
	}
	err := l.each(func(n *onnx.Node) error {
		if w := ways[n]; w != nil {
			return l.lower(n, w)
		}
		return nil
	})
	r.Check = l.prover.Checked()
	return err
}

// each calls f for the nodes of the main graph and its subgraphs, except calls of functions.
func (l *lowering) each(f func(*onnx.Node) error) error {
	var graphs []*onnx.Graph
	l.Model.Graph.Walk(func(g *onnx.Graph) { graphs = append(graphs, g) })
	for _, g := range graphs {
		for _, n := range slices.Clone(g.Nodes) {
			if l.Model.Function(n.Domain, n.OpType, n.Overload) != nil {
				continue
			}
			if err := f(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// inline replaces calls of functions by their bodies, unless every node in the bodies has a kernel too.
func (l *lowering) inline() error {
	keep := func(f *onnx.Function) bool { return f.Domain == fused.Domain }
	if !slices.ContainsFunc(l.Model.Functions, func(f *onnx.Function) bool { return !keep(f) }) {
		return nil
	}
	c, err := l.Model.Clone()
	if err != nil {
		return err
	}
	if _, err := new(edit.Change).InlineFunctions(c, keep); err != nil {
		return err
	}
	whole := &lowering{Run: &pass.Run{Editor: edit.Editor{Model: c}}, place: l.place}
	whole.look()
	if ways, refused := whole.ways(whole.opset); len(ways) == 0 && refused == nil &&
		whole.opset <= l.place.Version.Opset {
		return nil
	}
	l.report.Inlined, err = new(edit.Change).InlineFunctions(l.Model, keep)
	l.look()
	return err
}

// opsetFor returns the opset, and the ways of the nodes in it.
func (l *lowering) opsetFor() (int64, map[*onnx.Node]*way, error) {
	newest := min(l.opset, l.place.Version.Opset)
	var first error
	for to := newest; to == newest || to >= convert.OldestLowered; to-- {
		ways, refused := l.ways(to)
		if refused == nil {
			return to, ways, nil
		}
		first = cmp.Or(first, refused)
	}
	return 0, nil, l.refuse(first)
}

// A RefusedError reports that a model has nodes without a kernel at a place, which cannot be lowered.
type RefusedError struct {
	Place *Place
	Nodes error // the nodes and the reasons
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the model cannot run on %s:\n%v", e.Place, e.Nodes)
}

// Unwrap returns the reasons.
func (e *RefusedError) Unwrap() error { return e.Nodes }

func (l *lowering) refuse(nodes error) error { return &RefusedError{l.place, nodes} }

// ways returns how nodes change in an opset. The error names one node of each kind that cannot be lowered.
func (l *lowering) ways(to int64) (map[*onnx.Node]*way, error) {
	ways := map[*onnx.Node]*way{}
	var errs []error
	seen := map[string]bool{}
	l.each(func(n *onnx.Node) error {
		types := l.types(n)
		opset := to
		if !onnx.IsStandardDomain(n.Domain) {
			opset = l.Model.Opset(n.Domain)
		}
		var w *way
		err := convert.Lowers(n, l.opset, to)
		if to == l.opset {
			err = nil
		}
		if err == nil {
			err = l.place.knows(n, opset)
		}
		if err == nil {
			w, err = l.place.find(n, opset, types)
		} else if w = l.place.body(n, opset, types); w != nil {
			err = nil
		}
		if w != nil {
			ways[n] = w
		}
		if key := fmt.Sprint(n.Domain, n.OpType, types, err); err != nil && !seen[key] {
			seen[key] = true
			errs = append(errs, fmt.Errorf("node %q (%s): %w", n.Label(), onnx.OpName(n.Domain, n.OpType), err))
		}
		return nil
	})
	return ways, errors.Join(errs...)
}

// types returns the types of a node's inputs, with Undefined for absent and unknown ones.
func (l *lowering) types(n *onnx.Node) []onnx.DataType {
	types := make([]onnx.DataType, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil {
			types[i] = l.facts.DataType(v)
		}
	}
	return types
}

// count records a changed node in the report.
func (r *Report) count(op string, types []onnx.DataType, way string) {
	names := []string{}
	for _, t := range types {
		names = append(names, t.String())
	}
	for _, x := range r.Lowered {
		if x.Op == op && x.Way == way && slices.Equal(x.Types, names) {
			x.Nodes++
			return
		}
	}
	r.Lowered = append(r.Lowered, &Lowered{Op: op, Types: names, Way: way, Nodes: 1})
}
