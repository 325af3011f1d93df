package dims

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A Report lists the dimensions that were freed, or can be, and the constants that depend on them.
type Report struct {
	Dims      []DimReport        `json:"dims"`
	Constants []ConstantReport   `json:"constants"`
	Check     *prove.CheckReport `json:"check,omitempty"` // absent if nothing changed
}

// A DimReport describes one dimension.
type DimReport struct {
	Name   string   `json:"name"`
	Size   int64    `json:"size,omitempty"` // at export
	Inputs []string `json:"inputs"`         // INPUT.AXIS
	Free   bool     `json:"free"`           // whether it was freed, or can be
	// Reason says why the model is correct at other sizes, or why the dimension cannot be freed.
	Reason string `json:"reason"`
	// Node is the node that keeps the dimension from being freed.
	Node string `json:"node,omitempty"`
}

// A ConstantReport describes a constant that depends on dimensions.
type ConstantReport struct {
	Node     string   `json:"node"`
	Op       string   `json:"op"`
	Constant string   `json:"constant"`
	Was      string   `json:"was"`
	Becomes  string   `json:"becomes"`
	Dims     []string `json:"dims"`
}

// Text returns the report in one line.
func (r *Report) Text() string {
	var names []string
	for _, d := range r.Dims {
		names = append(names, d.Name)
	}
	return fmt.Sprintf("%s follow the inputs: %d constants are computed", strings.Join(names, ", "), len(r.Constants))
}

// Inspect determines for each dimension whether it can be freed, and which constants depend on it. It does not change
// the model.
func Inspect(m *onnx.Model, dims []*Dim, o Options) (*Report, error) {
	r := &Report{Dims: []DimReport{}, Constants: []ConstantReport{}}
	for left := slices.Clone(dims); len(left) > 0; { // together, without those that cannot be freed
		made, err := trial(m, left, o)
		if err == nil {
			r.Dims, r.Constants = append(r.Dims, made.Dims...), made.Constants
			break
		}
		var refused *Refusal
		if !errors.As(err, &refused) {
			return nil, err
		}
		at := slices.IndexFunc(left, func(d *Dim) bool { return d.Name == refused.Dim })
		if at < 0 && len(left) > 1 { // they cannot be freed together
			for _, d := range left {
				alone, err := Inspect(m, []*Dim{d}, o)
				if err != nil {
					return nil, err
				}
				r.Dims, r.Constants = append(r.Dims, alone.Dims...), append(r.Constants, alone.Constants...)
			}
			break
		}
		at = max(at, 0)
		d := left[at]
		r.Dims = append(r.Dims, DimReport{Name: d.Name, Size: d.Size, Inputs: d.inputs(), Reason: refused.Reason,
			Node: refused.Node})
		left = slices.Delete(left, at, at+1)
	}
	slices.SortStableFunc(r.Dims, func(a, b DimReport) int {
		at := func(r DimReport) int { return slices.IndexFunc(dims, func(d *Dim) bool { return d.Name == r.Name }) }
		return at(a) - at(b)
	})
	return r, nil
}

// trial frees dimensions in a copy of a model.
func trial(m *onnx.Model, dims []*Dim, o Options) (*Report, error) {
	c, err := m.Clone()
	if err != nil {
		return nil, err
	}
	return free(&pass.Run{Editor: edit.Editor{Model: c}}, dims, o, false)
}

// Options hold knowledge from outside the model.
type Options struct {
	// Recorded are cases of the model, also at other sizes. They settle questions that the model leaves open.
	Recorded []golden.Case
	// ExtendMasks assumes that masks folded into tables continue as they begin, although a window longer than the table
	// would look the same.
	ExtendMasks bool
}

// Apply makes dimensions of the inputs variable: constants that depend on them are computed. Each of names has the
// syntax of Find. If a dimension cannot be freed, the error is or wraps a *Refusal, and nothing is changed.
func Apply(run *pass.Run, names []string, o Options) (*Report, error) {
	dims, err := FindAll(run.Model, names)
	if err != nil {
		return nil, err
	}
	return free(run, dims, o, true)
}

func (d *Dim) inputs() (list []string) {
	for _, p := range d.places {
		list = append(list, p.String())
	}
	return list
}

// free analyzes a copy of the model, changes the model, and proves that it computes the same as before, and as the
// analysis found at other sizes.
func free(run *pass.Run, dims []*Dim, o Options, proven bool) (*Report, error) {
	original, err := run.Model.Clone()
	if err != nil {
		return nil, err
	}
	nodes, values := map[*onnx.Node]*onnx.Node{}, map[*onnx.Value]*onnx.Value{}
	pair(original.Graph, run.Model.Graph, nodes, values)
	own := make([]*Dim, len(dims))
	for i, d := range dims {
		own[i] = &Dim{Name: d.Name, Size: d.Size}
		for _, p := range d.places {
			own[i].places = append(own[i].places, place{input(original, p.input.Name), p.axis, p.rest, p.last})
		}
	}
	a, err := newAnalysis(original, own, o)
	if err != nil {
		return nil, err
	}
	var declared edit.Change
	a.declare(&declared, nil)
	found, err := a.choose()
	if errors.Is(err, errSteps) {
		err = &Refusal{a.names(), "", errSteps.Error()}
	}
	for i, d := range own {
		dims[i].Size = d.Size
	}
	if err != nil {
		return nil, err
	}
	change := edit.Whole(run.Model)
	r, err := a.write(run, change, found, nodes, values)
	if err != nil {
		return nil, errors.Join(err, change.Undo())
	}
	if !proven {
		return r, nil
	}
	prover := run.NewProver()
	for _, claim := range a.claims(run.Model, found) {
		if err := prover.Prove(claim); err != nil {
			return nil, errors.Join(fmt.Errorf("no dimension was freed, because the change is not proven: "+
				"%w", err), change.Undo())
		}
	}
	r.Check = prover.Checked()
	return r, nil
}

// pair maps nodes and values of a graph to those of its copy.
func pair(a, b *onnx.Graph, nodes map[*onnx.Node]*onnx.Node, values map[*onnx.Value]*onnx.Value) {
	for i, v := range a.Inputs {
		values[v] = b.Inputs[i]
	}
	for i, n := range a.Nodes {
		nodes[n] = b.Nodes[i]
		graphs := b.Nodes[i].Subgraphs()
		for k, g := range n.Subgraphs() {
			pair(g, graphs[k], nodes, values)
		}
	}
}

// write changes the model.
func (a *analysis) write(run *pass.Run, change *edit.Change, found *choice, nodes map[*onnx.Node]*onnx.Node,
	values map[*onnx.Value]*onnx.Value) (*Report, error) {
	e := &emitter{analysis: a, editor: &run.Editor, change: change, graph: run.Model.Graph, inputs: values,
		made: map[string]*onnx.Value{}}
	r := &Report{Constants: []ConstantReport{}}
	for _, c := range a.constants {
		v, words, err := e.constant(found.reading, c)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n := nodes[c.node]
		old := n.Inputs[c.input]
		for i, x := range n.Inputs {
			if x == old {
				change.SetInput(n, i, v)
			}
		}
		if old.Producer != nil && len(old.Uses()) == 0 {
			change.Drop(old.Producer)
		}
		change.DropConstants(old)
		r.Constants = append(r.Constants, ConstantReport{Node: c.node.Label(), Op: c.node.OpType,
			Constant: c.value.Name,
			Was:      c.words(found.reading), Becomes: words, Dims: a.namesOf(found.reading, c)})
	}
	a.declareFree(run.Model, change, found)
	if err := change.Finish(); err != nil {
		return nil, err
	}
	for i, d := range a.dims {
		r.Dims = append(r.Dims, DimReport{Name: d.Name, Size: d.Size, Inputs: d.inputs(), Free: true,
			Reason: a.reason(found, i)})
	}
	return r, nil
}

// words describes the elements of a list of sizes, or the shape of a table.
func (c *constant) words(r *reading) string {
	for s := range r.factors {
		if s.node == c.node && s.input == c.input && s.part < 0 {
			return fmt.Sprintf("a table of %v", c.tensor.Shape)
		}
	}
	list := slices.Clone(c.tensor.I)
	if c.inferred >= 0 {
		list[c.inferred] = -1
	}
	return strings.ReplaceAll(fmt.Sprint(list), " ", ", ")
}

// namesOf lists the dimensions that a constant depends on.
func (a *analysis) namesOf(r *reading, c *constant) []string {
	list := []string{}
	for i, d := range a.dims {
		for s, f := range r.factors {
			if s.node == c.node && s.input == c.input && f[i].num != 0 && !slices.Contains(list, d.Name) {
				list = append(list, d.Name)
			}
		}
	}
	return list
}

// reason says why the model is correct at other sizes of a dimension.
func (a *analysis) reason(c *choice, dim int) string {
	e := c.variants[dim].evidence
	var list []string
	if c.variants[dim].rows {
		list = append(list, "rows computed together are equal to rows that the model computes at its size")
	} else if e.causal {
		list = append(list, "rows depend only on earlier rows, and are equal to the first rows at the size at export")
	} else if c.recorded[dim] <= a.dims[dim].Size {
		list = append(list, "only one choice of constants runs at other sizes")
	}
	for _, k := range a.constants {
		if n := c.recorded[dim]; !c.variants[dim].rows && n <= a.dims[dim].Size && c.isMask(a, k, dim) {
			list = append(list, "masks are assumed to continue their pattern")
			break
		}
	}
	if n := c.recorded[dim]; n > 0 {
		list = append(list, fmt.Sprintf("recorded outputs up to %d are reproduced", n))
	}
	if c.window > 0 {
		list = append(list, fmt.Sprintf("masks have the window of %d positions that recorded outputs show", c.window))
	}
	return strings.Join(list, "; ")
}

// declareFree declares the inputs and outputs with the names of the dimensions. It drops the shapes in between.
func (a *analysis) declareFree(m *onnx.Model, change *edit.Change, found *choice) {
	for _, d := range a.dims {
		for _, p := range d.places {
			open(change, input(m, p.input.Name), p.axis, onnx.Dim{Value: -1, Param: named(a.dims, d, p)})
		}
	}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v == nil || v.OutputUses() > 0 && g == m.Graph {
					continue
				}
				if t, ok := v.Type(); ok && t.HasShape {
					change.SetType(v, onnx.Type{DataType: t.DataType})
				}
			}
		}
		for _, v := range g.Inputs {
			if t, ok := v.Type(); ok && g != m.Graph && len(t.Dims) > 0 {
				change.SetType(v, onnx.Type{DataType: t.DataType})
			}
		}
	})
	for o, v := range m.Graph.Outputs {
		t, ok := v.Type()
		if !ok {
			continue
		}
		change.SetType(v, a.outputType(t, found, o))
	}
}

// outputType returns the declared type of an output, which names the dimensions that depend on the freed ones.
func (a *analysis) outputType(t onnx.Type, found *choice, output int) onnx.Type {
	shape := found.variants[0].evidence.original[output].Shape
	t.HasShape, t.Dims = true, make([]onnx.Dim, len(shape))
	for axis, n := range shape {
		p := &sum{constant: int64(n), by: 1, one: make([]int64, len(a.dims))}
		open := false
		for i, v := range found.variants {
			e := v.evidence
			longer := e.try(v.reading, e.size)
			by := int64(longer.outputs[output].Shape[axis] - n)
			grown := e.size - a.dims[i].Size
			if by != 0 && by%grown == 0 {
				p.one[i] = by / grown
				p.constant -= p.one[i] * a.dims[i].Size
			}
			open = open || by != 0
		}
		count := len(slices.DeleteFunc(slices.Clone(p.one), func(x int64) bool { return x == 0 }))
		switch {
		case !open:
			t.Dims[axis] = onnx.Dim{Value: int64(n)}
		case count == 1 || count > 1 && p.constant == 0 && !slices.ContainsFunc(p.one,
			func(x int64) bool { return x > 1 }):
			t.Dims[axis] = onnx.Dim{Value: -1, Param: a.text(p)}
		default:
			t.Dims[axis] = onnx.Dim{Value: -1}
		}
	}
	return t
}

// claims returns the claims that the changed model computes the same as the original at its sizes, and as the analysis
// found at others.
func (a *analysis) claims(m *onnx.Model, found *choice) []*prove.Claim {
	after := prove.Model(m)
	names := onnx.Names(a.model.Graph.Outputs)
	trials := func(sizes [][]int64) func(yield func(prove.Trial, error) bool) {
		return func(yield func(prove.Trial, error) bool) {
			for i, n := range sizes {
				in, err := a.inputs(uint64(i)+11, n)
				if err == nil && a.run(found.reading, n, in).err != nil {
					continue // not a size of the model
				}
				if !yield(prove.Trial{Name: a.sizesText(n), Inputs: a.listed(in)}, err) {
					return
				}
			}
		}
	}
	at := func(r *reading) prove.Computation {
		return func(o reference.Options, list []*reference.Tensor) ([]*reference.Tensor, error) {
			in := map[string]*reference.Tensor{}
			for i, v := range a.model.Graph.Inputs {
				in[v.Name] = list[i]
			}
			x := a.runWith(r, a.sizeOf(in), in, o, nil)
			return x.outputs, x.err
		}
	}
	same := a.exported()
	others := a.jointSizes()
	for i, d := range a.dims {
		for _, n := range tests(d.Size) {
			others = append(others, a.sizes(i, n))
		}
	}
	return []*prove.Claim{
		{What: "the freed model at " + a.sizesText(same), Outputs: names, Exact: prove.BitForBit,
			Typed:  prove.BitForBit,
			Before: prove.Model(a.model), After: after, Trials: trials([][]int64{same, same, same})},
		{What: "the freed model at other sizes", Outputs: names, Exact: prove.Structural, Typed: prove.BitForBit,
			Before: at(found.reading), After: after, Trials: trials(others)},
	}
}
