package trace

import (
	"fmt"
	"slices"
	"sort"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// DefaultMemory is the default of Options.MaxMemory, in bytes.
const DefaultMemory = 1 << 30

// Options controls how two models are compared.
type Options struct {
	OpenA, OpenB Open
	Tolerances   golden.Tolerances
	MaxMemory    int64 // bytes of values held at once; 0 for DefaultMemory
	// RouterTies makes the second model continue with the first model's experts when it chose others in a tie.
	RouterTies bool
	// Progress is called with the number of compared values and the total. It may be nil.
	Progress func(done, total int)
}

// Comparer compares the values of two models. It aligns them once for all runs.
type Comparer struct {
	a, b    *onnx.Model
	pairs   []Pair                      // the pairs to compare
	partner map[*onnx.Value]*onnx.Value // of all pairs
	blocks  map[*onnx.Node]Block
	choices map[*onnx.Value]bool // of the first model: indices of chosen experts
	// controls are the nodes with bodies that both models have, by the first of their outputs that is compared.
	controls map[*onnx.Value]*control
	half     onnx.DataType // the half-precision type of either model
	options  Options
	within   *Block // the block of the node whose body is compared; nil for whole models
}

// NewComparer aligns two models. Calls of functions that are not fused ops should be inlined first.
func NewComparer(a, b *onnx.Model, o Options) *Comparer {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	return newComparer(&Comparer{a: a, b: b, blocks: Blocks(a), options: o})
}

func newComparer(c *Comparer, known ...Pair) *Comparer {
	a, b := c.a, c.b
	c.choices, c.controls = map[*onnx.Value]bool{}, map[*onnx.Value]*control{}
	if c.half = golden.Half(a); c.half == onnx.Undefined {
		c.half = golden.Half(b)
	}
	facts := infer.Analyze(a)
	routers, fixed := map[*onnx.Node]bool{}, fixedValues(a.Graph)
	controls := map[*onnx.Node]bool{}
	c.partner = map[*onnx.Value]*onnx.Value{}
	for _, v := range a.Graph.Inputs {
		c.partner[v] = valueOf(b.Graph.Inputs, v.Name)
	}
	for _, p := range known {
		c.partner[p.A] = p.B
	}
	for _, p := range Align(a, b, known...) {
		c.partner[p.A] = p.B
		if n := chooser(p.A); n != nil && chooser(p.B) != nil && !routers[n] {
			c.choices[p.A], routers[n] = true, true
		}
		t := facts.DataType(p.A)
		if fixed[p.A] {
			continue
		}
		if !t.IsFloat() && t != onnx.Undefined && !c.isOutput(p.A) && !c.choices[p.A] {
			continue
		}
		c.pairs = append(c.pairs, p)
		if n := controlOf(p); n != nil && !controls[n.nodes[0]] {
			c.controls[p.A], controls[n.nodes[0]] = n, true
		}
	}
	c.pairs = c.routersTogether(c.pairs)
	return c
}

// isOutput reports whether a value of the first model is an output of the whole model, not of a body.
func (c *Comparer) isOutput(v *onnx.Value) bool { return v.IsOutput() && c.within == nil }

// Run runs both models side by side on the inputs of one case, and compares values as they are computed.
func (c *Comparer) Run(inputs, other []*onnx.Tensor, number int) (*Comparison, error) {
	r := &pass{Comparer: c, number: number, errors: map[*onnx.Value]float64{}}
	return r.Comparison, r.run([2][]*onnx.Tensor{inputs, other}, [2][]*onnx.Value{})
}

// run runs both models on inputs. The values of ends are available afterwards.
func (r *pass) run(inputs [2][]*onnx.Tensor, ends [2][]*onnx.Value) (err error) {
	c := r.Comparer
	r.Comparison, r.uses = &Comparison{}, map[*onnx.Value]int{}
	var watched [2][]*onnx.Value
	watched[0], watched[1] = r.targets(c.pairs)
	for i, m := range []*onnx.Model{c.a, c.b} {
		if r.sizes[i], err = sizes(m, inputs[i]); err != nil {
			return err
		}
		watched[i] = append(watched[i], ends[i]...)
		for _, v := range watched[i] {
			r.uses[v]++
		}
	}
	if r.a, err = Start(c.a, c.options.OpenA, inputs[0], watched[0]); err != nil {
		return err
	}
	if r.b, err = Start(c.b, c.options.OpenB, inputs[1], watched[1]); err != nil {
		return err
	}
	for done := 0; done < len(c.pairs); {
		left := c.pairs[done:]
		n := r.next(left)
		if needs := r.needs(left[:n]); needs > c.options.MaxMemory {
			return &memoryError{left[0].A.Name, needs, c.options.MaxMemory}
		}
		if err := r.compare(c.pairs[done : done+n]); err != nil {
			return err
		}
		if done += n; c.options.Progress != nil {
			c.options.Progress(done, len(c.pairs))
		}
	}
	if err := r.a.Advance(ends[0]...); err != nil {
		return err
	}
	return r.b.Advance(ends[1]...)
}

// memoryError reports that comparing a value needs too much memory.
type memoryError struct {
	value       string
	needs, most int64
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("%q takes %d bytes of values at once, more than the limit of %d", e.value, e.needs,
		max(e.most, 0))
}

// sizes returns the size in bytes of each value of a model, if the shapes of the inputs determine it.
func sizes(m *onnx.Model, inputs []*onnx.Tensor) (map[string]int64, error) {
	var ports []onnx.Port
	for _, t := range inputs {
		if v := valueOf(m.Graph.Inputs, t.Name); v != nil {
			ports = append(ports, onnx.Port{Value: v, Type: typeOf(t)})
		}
	}
	whole, err := m.Part(m.Graph.Nodes, ports, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	facts := infer.Analyze(whole)
	sizes := map[string]int64{}
	for _, n := range whole.Graph.Nodes {
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			if shape, ok := facts.Shape(v, 0); ok {
				t := onnx.Tensor{DataType: facts.DataType(v), Dims: shape}
				sizes[v.Name] = max(t.Size(), 0)
			}
		}
	}
	return sizes, nil
}

// pass is one run of both models.
type pass struct {
	*Comparer
	*Comparison
	number int
	a, b   *Execution
	sizes  [2]map[string]int64 // of values, in bytes
	uses   map[*onnx.Value]int // remaining reads of each value
	errors map[*onnx.Value]float64
}

// side returns the run of the first or the second model.
func (r *pass) side(i int) *Execution { return []*Execution{r.a, r.b}[i] }

// next returns how many of the pairs to compare next: as many as fit in memory. The pairs of one router come as a
// group, and so do the outputs of a node with bodies.
func (r *pass) next(pairs []Pair) int {
	switch {
	case r.choices[pairs[0].A]:
		return r.together(pairs)
	case r.controls[pairs[0].A] != nil:
		return 1
	}
	most := 1 + slices.IndexFunc(pairs[1:], func(p Pair) bool { return r.choices[p.A] || r.controls[p.A] != nil })
	if most == 0 {
		most = len(pairs)
	}
	if r.needs(pairs[:most]) <= r.options.MaxMemory {
		return most
	}
	return max(1, sort.Search(most, func(n int) bool { return r.needs(pairs[:n+1]) > r.options.MaxMemory }))
}

// needs returns the bytes of values held at once while these pairs are computed and compared.
func (r *pass) needs(pairs []Pair) int64 {
	to, other := r.targets(pairs)
	held := r.a.Held() + r.b.Held()
	a, b := r.a.fresh(to, r.sizes[0]), r.b.fresh(other, r.sizes[1])
	return held + max(2*a, a+2*b) // the runner holds a copy of a piece's outputs
}

// targets lists the values to compute for the pairs.
func (r *pass) targets(pairs []Pair) (a, b []*onnx.Value) {
	for _, p := range pairs {
		a, b = append(a, p.A), append(b, p.B)
		a = append(a, r.scoresOf(p.A)...)
		if n := r.controls[p.A]; n != nil {
			a, b = append(a, n.reads[0]...), append(b, n.reads[1]...)
		}
	}
	return a, b
}

func (r *pass) compare(pairs []Pair) error {
	to, other := r.targets(pairs)
	if err := r.a.Advance(to...); err != nil {
		return err
	}
	r.peak()
	if err := r.b.Advance(other...); err != nil {
		return err
	}
	r.peak()
	r.Pieces++
	if err := r.route(pairs); err != nil {
		return err
	}
	for _, p := range pairs {
		if n := r.controls[p.A]; n != nil {
			if err := r.inside(n); err != nil {
				return err
			}
		}
		if err := r.row(p); err != nil {
			return err
		}
	}
	for i, values := range [][]*onnx.Value{to, other} {
		for _, v := range values {
			if r.uses[v]--; r.uses[v] == 0 {
				r.side(i).Drop(v)
			}
		}
	}
	return nil
}

func (r *pass) peak() {
	r.Peak = max(r.Peak, r.a.Peak()+r.b.Held(), r.b.Peak()+r.a.Held())
}

func (r *pass) row(p Pair) error {
	want, got := r.a.Value(p.A), r.b.Value(p.B)
	if want == nil || got == nil {
		return fmt.Errorf("%q of %s and %q of %s were not computed", p.A.Name, r.Comparer.a.Path, p.B.Name,
			r.Comparer.b.Path)
	}
	r.Bytes += want.Size() + got.Size()
	tolerance := r.options.Tolerances.Inner(want.Name, coarser(got, want), r.half)
	if r.isOutput(p.A) && (r.half == onnx.Undefined || want.DataType != onnx.Float) {
		tolerance = r.options.Tolerances.For(want.Name, coarser(got, want))
	}
	stats, err := golden.Compare(got, want, tolerance)
	if err != nil {
		r.Unlike = append(r.Unlike, err.Error())
		return nil
	}
	block := r.blocks[p.A.Producer]
	row := Row{Value: p.A.Name, Block: block.String(), Place: block, Op: opOf(p.A), OpB: opOf(p.B), By: p.By,
		Case: r.number, Stats: stats}
	if p.B.Name != p.A.Name {
		row.Other = p.B.Name
	}
	if row.Error = float64(stats.MaxAbs); stats.MaxWant > 0 {
		row.Error /= float64(stats.MaxWant)
	}
	if !stats.Passed && r.first == nil {
		row.Before = r.before(p.A)
		first := row
		r.first = &first
	}
	r.errors[p.A] = row.Error
	r.Rows = append(r.Rows, row)
	if r.isOutput(p.A) {
		r.Outputs = append(r.Outputs, stats)
	}
	return nil
}

// before returns the greatest error of the nearest compared values that v is computed from, nil if there are none.
func (r *pass) before(v *onnx.Value) *float64 {
	var greatest *float64
	known := func(v *onnx.Value) bool {
		e, known := r.errors[v]
		if known && (greatest == nil || e > *greatest) {
			greatest = &e
		}
		return known
	}
	for range onnx.Upstream(known, v) {
	}
	return greatest
}

// coarser returns the less precise type of a pair.
func coarser(a, b *onnx.Tensor) onnx.DataType {
	for _, t := range []onnx.DataType{onnx.BFloat16, onnx.Float16, onnx.Float} {
		if a.DataType == t || b.DataType == t {
			return t
		}
	}
	return a.DataType
}

func opOf(v *onnx.Value) string {
	n := v.Producer
	if n == nil {
		return "input"
	}
	return onnx.OpName(n.Domain, n.OpType)
}
