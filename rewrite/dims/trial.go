package dims

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A reading says how much each slot grows with each dimension.
type reading struct {
	factors map[slot][]rat
	// product lists the slots that grow with a product of dimensions instead of their sum.
	product map[slot]bool
	chained bool // whether constants were found by chains
}

// with returns a reading in which more slots grow with a dimension.
func (r *reading) with(dim, dims int, set map[slot]rat) *reading {
	made := &reading{maps.Clone(r.factors), maps.Clone(r.product), r.chained}
	if made.factors == nil {
		made.factors, made.product = map[slot][]rat{}, map[slot]bool{}
	}
	for s, f := range set {
		list := slices.Clone(made.factors[s])
		if list == nil {
			list = make([]rat, dims)
			for i := range list {
				list[i] = rat{0, 1}
			}
		}
		list[dim] = f
		made.factors[s] = list
	}
	return made
}

// pairs reports whether the product in a slot includes the product of these two dimensions. Among three or more
// dimensions, as in batch*(past + sequence), only pairs with an integer factor count.
func (r *reading) pairs(s slot, k, i int, original int64) bool {
	f, g, count := r.factors[s][i], r.factors[s][k], 0
	for _, x := range r.factors[s] {
		if x.num != 0 {
			count++
		}
	}
	return r.product[s] && f.num != 0 && g.num != 0 && (count == 2 || f.num*g.num%(f.den*g.den*original) == 0)
}

// errSteps ends trials that take too long.
var errSteps = errors.New("the model is too large for trials at other sizes")

// errFraction ends trials in which a number is not an integer.
var errFraction = errors.New("the size is not divisible")

// mostSteps bounds the evaluator steps of all trials of a model. It is a variable for the tests.
var mostSteps = int(2e10)

// analysis is the search in one model. Its inputs are declared with open dimensions until it ends.
type analysis struct {
	model     *onnx.Model
	dims      []*Dim
	constants []*constant
	byInput   map[*onnx.Node][]*constant
	place     map[*onnx.Node]int // of nodes of the main graph, or of the node there that contains them
	index     map[*onnx.Node]int // of nodes with constants, in order
	rows      map[slot]bool      // numbers that follow a dimension whose rows are independent
	steps     int
	memo      memo
	see       func(n *onnx.Node, s *reference.Scope) // called with the nodes that run; may be nil
	shapes    map[*onnx.Value][]int                  // of values that nodes read, at the sizes of the export
	before    map[*onnx.Node][][]int                 // see extents, at the sizes of the export
	Options
}

func newAnalysis(m *onnx.Model, dims []*Dim, o Options) (*analysis, error) {
	a := &analysis{model: m, dims: dims, byInput: map[*onnx.Node][]*constant{}, place: map[*onnx.Node]int{},
		index: map[*onnx.Node]int{}, rows: map[slot]bool{}, Options: o}
	var err error
	if a.constants, err = constants(m); err != nil {
		return nil, err
	}
	families := map[*onnx.Value]family{}
	for i, c := range a.constants {
		a.index[c.node] = i
		f, ok := families[c.value]
		if !ok && c.tensor.Len() > 0 && !c.tensor.IsLazy() {
			f = familyOf(c.tensor)
			families[c.value] = f
		}
		c.family, c.kind = f, fmt.Sprint(c.node.OpType, c.input, c.tensor.Shape)
		if c.hasSizes() {
			c.kind += fmt.Sprint(c.tensor.I)
		}
		c.form = c.kind + formOf(c.node)
		a.byInput[c.node] = append(a.byInput[c.node], c)
	}
	for i, n := range m.Graph.Nodes {
		n.Walk(func(x *onnx.Node) { a.place[x] = i })
	}
	return a, nil
}

// declare declares the dimensions as sizes, or by their names if sizes is nil.
func (a *analysis) declare(c *edit.Change, sizes []int64) {
	for i, d := range a.dims {
		for _, p := range d.places {
			declared := onnx.Dim{Value: -1, Param: named(a.dims, d, p)}
			if sizes != nil {
				declared = onnx.Dim{Value: sizes[i] + p.rest}
				if other := p.other(a.dims, d); other != nil {
					declared.Value = sizes[i] + sizes[slices.Index(a.dims, other)]
				}
			}
			open(c, p.input, p.axis, declared)
		}
	}
}

// exported returns the sizes at export.
func (a *analysis) exported() []int64 {
	list := make([]int64, len(a.dims))
	for i, d := range a.dims {
		list[i] = d.Size
	}
	return list
}

// sizes returns the sizes at export with the size of dim replaced.
func (a *analysis) sizes(dim int, n int64) []int64 {
	list := a.exported()
	list[dim] = n
	return list
}

// inputs returns random inputs.
func (a *analysis) inputs(seed uint64, sizes []int64) (map[string]*reference.Tensor, error) {
	var c edit.Change
	a.declare(&c, sizes)
	defer a.declare(&c, nil)
	made, err := golden.RandomInputs(a.model, seed, nil)
	if err != nil {
		return nil, err
	}
	in, err := converted(made)
	r := rand.New(rand.NewPCG(seed, 3))
	for _, v := range a.model.Graph.Inputs {
		if x := in[v.Name]; x != nil {
			in[v.Name] = holes(r, x)
		}
	}
	return in, err
}

// holes puts zeros into masks, because equal integers would hide the positions that a model reads. The first element of
// each row stays.
func holes(r *rand.Rand, x *reference.Tensor) *reference.Tensor {
	if x.Rank() < 2 || len(x.I) < 2 || x.I[0] == 0 || slices.Min(x.I) != slices.Max(x.I) {
		return x
	}
	y := &reference.Tensor{DataType: x.DataType, Shape: x.Shape, I: slices.Clone(x.I)}
	for i := range y.I {
		if i%x.Shape[x.Rank()-1] > 0 && r.IntN(3) == 0 {
			y.I[i] = 0
		}
	}
	return y
}

func converted(list []*onnx.Tensor) (map[string]*reference.Tensor, error) {
	in := map[string]*reference.Tensor{}
	for _, x := range list {
		t, err := reference.FromONNX(x)
		if err != nil {
			return nil, err
		}
		in[x.Name] = t
	}
	return in, nil
}

// number returns the value of a slot at these sizes.
func (a *analysis) number(r *reading, c *constant, s slot, sizes []int64) (int64, error) {
	original := c.original(s)
	num, den := original, int64(1)
	add := func(n, d int64) { num, den = num*d+n*den, den*d }
	for i, f := range r.factors[s] {
		add(f.num*(sizes[i]-a.dims[i].Size), f.den)
		if r.product[s] && original != 0 {
			for k, g := range r.factors[s][:i] {
				if r.pairs(s, k, i, original) {
					add(f.num*g.num*(sizes[i]-a.dims[i].Size)*(sizes[k]-a.dims[k].Size), f.den*g.den*original)
				}
			}
		}
	}
	if num%den != 0 || s.part != diagonal && original >= 0 && num/den < 0 {
		return 0, fmt.Errorf("%w: %d becomes %d/%d", errFraction, original, num, den)
	}
	return num / den, nil
}

// changed returns the elements of a constant at these sizes, or nil if the reading does not change them.
func (a *analysis) changed(r *reading, c *constant, sizes []int64) (*reference.Tensor, error) {
	var t *reference.Tensor
	shape, diag, longer := slices.Clone(c.tensor.Shape), c.original(slot{c.node, c.input, diagonal}), false
	parts := make([]int, 0, 8)
	for axis := range shape {
		parts = append(parts, lengthOf(axis))
	}
	if c.hasSizes() {
		for i := range c.tensor.I {
			parts = append(parts, i)
		}
	}
	for _, part := range append(parts, diagonal) {
		s := slot{c.node, c.input, part}
		if r.factors[s] == nil {
			continue
		}
		n, err := a.number(r, c, s, sizes)
		if err != nil {
			return nil, err
		}
		if axis, ok := s.axis(); ok {
			shape[axis], longer = int(n), true
		} else if part == diagonal {
			diag, longer = n, true
		} else {
			if t == nil {
				t = &reference.Tensor{DataType: c.tensor.DataType, Shape: c.tensor.Shape, I: slices.Clone(c.tensor.I)}
			}
			t.I[part] = n
		}
	}
	if t == nil && c.inferred >= 0 {
		t = c.tensor
	}
	if !longer {
		return t, nil
	}
	if t != nil {
		return nil, errors.New("a constant is both a table and a list of sizes")
	}
	return c.family.extended(c.tensor, shape, diag)
}

// outcome is the result of a run of the model.
type outcome struct {
	outputs []*reference.Tensor
	at      int // position of the node that failed, or the number of nodes
	node    *onnx.Node
	err     error
	// elements is the number of elements of a failed Reshape's input.
	elements int64
	operands [][]int // see extents
	apart    int     // see apart
}

// run runs the model with a reading.
func (a *analysis) run(r *reading, sizes []int64, in map[string]*reference.Tensor) outcome {
	return a.runWith(r, sizes, in, reference.Options{Exact: true}, nil)
}

// runWith also replaces the elements of other constants.
func (a *analysis) runWith(r *reading, sizes []int64, in map[string]*reference.Tensor, o reference.Options,
	replaced map[*constant]*reference.Tensor) outcome {
	var last, pending *onnx.Node
	var operands []*reference.Tensor // of pending
	elements := 0
	var scope *reference.Scope // of last, once its constants are bound
	bound := map[*onnx.Value]bool{}
	o.Override = func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
		if pending != nil && n.Graph == a.model.Graph { // before constants change
			a.memo.keep(pending, operands, s)
			pending = nil
		}
		last, elements, scope = n, 0, nil
		if n.Is("Reshape") {
			if x, err := s.Value(n.Input(0)); err == nil {
				elements = x.Len()
			}
		}
		for _, c := range a.byInput[n] {
			t, err := a.changed(r, c, sizes)
			if err != nil {
				return nil, err
			}
			if other := replaced[c]; other != nil {
				t = other
			}
			if t != nil {
				if bound[c.value] = true; o.Exact {
					t = a.memo.intern(c, t)
				}
				s.Bind(c.value, t)
			} else if bound[c.value] {
				s.Bind(c.value, c.tensor)
			}
		}
		scope = s
		if err := a.masked(n, s); err != nil {
			return nil, err
		}
		if a.see != nil {
			a.see(n, s)
		}
		if !o.Exact || n.Graph != a.model.Graph {
			return nil, nil
		}
		var alone bool
		if operands, alone = a.memo.operands(n, s, bound); !alone {
			return nil, nil
		}
		out := a.memo.find(n, operands)
		if out == nil {
			pending = n
		}
		return out, nil
	}
	o.Spend = func(steps int) error {
		if a.steps += steps; a.steps > mostSteps {
			return errSteps
		}
		return nil
	}
	e, err := reference.New(a.model, o)
	if err != nil {
		return outcome{err: err}
	}
	if o.Exact {
		own := map[string]*reference.Tensor{}
		for name, t := range in {
			own[name] = a.memo.intern(name, t)
		}
		in = own
	}
	got, err := e.Run(in)
	if err != nil {
		if last == nil {
			return outcome{err: err}
		}
		x := outcome{at: a.place[last], node: last, err: err, elements: int64(elements)}
		if scope != nil {
			x.operands = extents(last, scope)
			x.apart = apart(x.operands)
		}
		return x
	}
	x := outcome{at: len(a.model.Graph.Nodes)}
	for _, v := range a.model.Graph.Outputs {
		x.outputs = append(x.outputs, got[v.Name])
	}
	return x
}

// learn keeps the shapes at the sizes of the export.
func (a *analysis) learn() error {
	in, err := a.inputs(1, a.exported())
	if err != nil {
		return err
	}
	a.shapes = map[*onnx.Value][]int{}
	before := map[*onnx.Node][][]int{}
	a.see = func(n *onnx.Node, s *reference.Scope) {
		for _, v := range n.Inputs {
			if v != nil && v.Producer != nil {
				if x, err := s.Value(v); err == nil {
					a.shapes[v] = x.Shape
				}
			}
		}
		before[n] = extents(n, s)
	}
	defer func() { a.see, a.before = nil, before }()
	return a.run(&reading{}, a.exported(), in).err
}

// masked returns an error if the mask of an Attention has fewer columns than keys, and has as many at export. The op
// hides the other keys, but a mask of the old size must follow.
func (a *analysis) masked(n *onnx.Node, s *reference.Scope) error {
	if !n.Is("Attention") || a.before == nil {
		return nil
	}
	was, is := a.before[n], scores(n, s)
	if len(was) == 2 && len(is) == 2 && was[0][0] == was[1][0] && is[0][0] != is[1][0] {
		return fmt.Errorf("its mask has %d columns for %d keys", is[0][0], is[1][0])
	}
	return nil
}

// resolve replaces -1 in the shapes of Reshape by the size at export. Otherwise -1 would absorb a wrong size baked in
// next to it.
func (a *analysis) resolve() error {
	in, err := a.inputs(1, a.exported())
	if err != nil {
		return err
	}
	o := reference.Options{Exact: true, Override: func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
		for _, c := range a.byInput[n] {
			at := slices.Index(c.tensor.I, -1)
			if !n.Is("Reshape") || c.input != 1 || at < 0 || n.Graph != a.model.Graph {
				continue
			}
			out, err := s.Op(n)
			if err != nil || len(out) == 0 || len(out[0].Shape) != c.tensor.Len() {
				return out, err
			}
			c.tensor = &reference.Tensor{DataType: c.tensor.DataType, Shape: c.tensor.Shape,
				I: slices.Clone(c.tensor.I)}
			c.tensor.I[at], c.inferred = int64(out[0].Shape[at]), at
			return out, nil
		}
		return nil, nil
	}}
	e, err := reference.New(a.model, o)
	if err == nil {
		_, err = e.Run(in)
	}
	return err
}

// A memo keeps what nodes of the main graph computed in earlier trials. Most trials differ from another one in a single
// constant, so all nodes before it, and those that it does not reach, read the very tensors that they read before.
type memo struct {
	known map[any][]*reference.Tensor // tensors of inputs and changed constants
	made  map[*onnx.Node][]call
	held  int // elements
}

// A call is an evaluation of a node.
type call struct {
	in, out []*reference.Tensor // nil in in for a constant that is as in the model
}

const (
	mostCalls = 24      // of a node, and of the tensors of an input or constant
	mostHeld  = 1 << 24 // elements in all
)

// intern returns the tensor that was seen before with the same elements, or else t.
func (m *memo) intern(of any, t *reference.Tensor) *reference.Tensor {
	for _, x := range m.known[of] {
		if alike(x, t) {
			return x
		}
	}
	if t.Len() != len(t.I)+len(t.F) { // strings, sequences or lazy
		return t
	}
	m.hold(t.Len())
	m.known[of] = recent(append(m.known[of], t))
	return t
}

// alike reports whether two tensors have the same bits.
func alike(x, t *reference.Tensor) bool {
	return x == t || x != nil && t != nil && x.DataType == t.DataType && slices.Equal(x.Shape, t.Shape) &&
		slices.Equal(x.I, t.I) && slices.EqualFunc(x.F, t.F, func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b)
	})
}

// hold counts elements, and forgets everything if they are too many.
func (m *memo) hold(n int) {
	if m.held += n; m.made == nil || m.held > mostHeld {
		*m = memo{known: map[any][]*reference.Tensor{}, made: map[*onnx.Node][]call{}, held: n}
	}
}

// recent keeps the last elements of a list.
func recent[T any](list []T) []T { return list[max(0, len(list)-mostCalls):] }

// operands returns what a node reads, and whether its outputs follow from that alone.
func (m *memo) operands(n *onnx.Node, s *reference.Scope, bound map[*onnx.Value]bool) ([]*reference.Tensor, bool) {
	if len(n.Inputs) == 0 || len(n.Subgraphs()) > 0 || random[n.OpType] {
		return nil, false
	}
	in := make([]*reference.Tensor, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil && (v.Constant() == nil || v.IsInput || bound[v]) {
			in[i] = s.Bound(v)
		}
	}
	return in, true
}

// random are the ops that compute something else each time.
var random = onnx.Words("Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Dropout")

// find returns the outputs of an earlier call with these operands, or nil.
func (m *memo) find(n *onnx.Node, in []*reference.Tensor) []*reference.Tensor {
	for _, c := range m.made[n] {
		if slices.Equal(c.in, in) {
			return c.out
		}
	}
	return nil
}

// keep records the outputs of a node, unless one is already released. If they are the same as those of an earlier call,
// as when a comparison does not notice a change, the nodes behind read the earlier ones, so they need not run again.
func (m *memo) keep(n *onnx.Node, in []*reference.Tensor, s *reference.Scope) {
	out, held := make([]*reference.Tensor, len(n.Outputs)), 0
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		t := s.Bound(v)
		if t == nil || t.Len() != len(t.I)+len(t.F) {
			return
		}
		out[i], held = t, held+t.Len()
	}
	for _, c := range m.made[n] {
		if slices.EqualFunc(c.out, out, alike) {
			for i, v := range n.Outputs {
				if v != nil {
					s.Bind(v, c.out[i])
				}
			}
			out, held = c.out, 0
			break
		}
	}
	m.hold(held)
	m.made[n] = recent(append(m.made[n], call{in, out}))
}
