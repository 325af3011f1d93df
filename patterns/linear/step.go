package linear

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// maxCone bounds the nodes between a state and the row read from the next state.
const maxCone = 24

// step is one token of linear attention: a state that decays, an update added to it, and a row read from the sum.
type step struct {
	g               *match.View
	budget          *match.Budget
	add             *onnx.Node
	outer           *onnx.Node        // the product of a key and an update, which is added
	state           *onnx.Value       // [batch, heads, key, value]
	decay           *onnx.Value       // the factor of the state; nil if there is none
	rates           []float64         // the logarithms of a constant decay, for each head or each channel of its keys
	factor          *reference.Tensor // decay, if it is constant
	row             *onnx.Value
	heads, key, val int64
	nodes           []*onnx.Node                // between the state and the row
	given           []*onnx.Value               // inputs of nodes that do not depend on a state
	base            map[*onnx.Value]*onnx.Value // the value that each given value is a view of
	q, k, v, beta   *onnx.Value                 // values of base
}

// Steps finds decode steps of linear attention. It recognizes them by the results of the nodes between two states.
func Steps(g *match.View, others site.Others) (sites []*site.Site, _ []*match.Miss) {
	known := probe.Readings[places]{}
	for _, n := range g.Graph.Nodes {
		if !n.Is("Add") || others.Have(n) {
			continue
		}
		for i := range 2 {
			s := &step{g: g, budget: g.Budget(fused.LinearAttentionName, limits), add: n,
				base: map[*onnx.Value]*onnx.Value{}}
			if !s.begins(n.Input(i), n.Input(1-i)) {
				continue
			}
			s.budget.Begin(n)
			found := s.cone() && !slices.ContainsFunc(s.nodes, others.Have) && s.assigned(known)
			if found {
				s.budget.Found()
				sites = append(sites, s.site())
			}
			s.budget.End()
			if found {
				break
			}
		}
	}
	return sites, nil
}

// begins reads the decayed state and the added product of a column and a row.
func (s *step) begins(decayed, outer *onnx.Value) bool {
	if decayed == nil || outer == nil || s.add.OutputValue(0) == nil {
		return false
	}
	rank, ok := s.g.Facts.Rank(s.add.OutputValue(0))
	n := outer.Producer
	if !ok || rank != 4 || n == nil || n.Graph != s.g.Graph || !isSingle(s.g.Facts.DataType(outer)) {
		return false
	}
	for i, size := range []*int64{&s.heads, &s.key, &s.val} {
		if *size, ok = s.g.Facts.Dim(s.add.OutputValue(0), i+1); !ok || *size < 1 {
			return false
		}
	}
	if !s.isOuter(n) {
		return false
	}
	s.state, s.outer = decayed, n
	if n := decayed.Producer; n != nil && n.Is("Mul") {
		for i := range 2 {
			state, factor := n.Input(i), n.Input(1-i)
			if state == nil || factor == nil || !s.stateLike(state) {
				continue
			}
			if s.rates = s.constant(factor); s.rates != nil || s.factorLike(factor) {
				s.state, s.decay = state, factor
				break
			}
		}
	}
	return s.stateLike(s.state)
}

func (s *step) stateLike(v *onnx.Value) bool { return s.g.Facts.SameShape(v, s.add.OutputValue(0)) }

// factorLike reports whether a value has one number for each head, or for each channel of a head's keys.
func (s *step) factorLike(v *onnx.Value) bool {
	last, ok := s.g.Facts.Dim(v, -1)
	rank, ranked := s.g.Facts.Rank(v)
	return ok && ranked && rank == 4 && last == 1
}

// constant returns the logarithms of a factor that does not depend on the inputs, or nil. The graph's types round it.
func (s *step) constant(v *onnx.Value) []float64 {
	if n := s.elements(v); s.g.IsData(v) || n == 0 || n > s.heads*s.key {
		return nil
	}
	lab := probe.NewLab(s.g, maxCone, s.budget)
	got, err := lab.Rounded().Run(probe.Values{}, knownSizes(lab), v)
	if err != nil {
		return nil
	}
	t := got[0]
	s.factor = t
	sizes := append([]int{1, 1, 1, 1}[:max(0, 4-t.Rank())], t.Shape...) // [1, heads or 1, key or 1, 1]
	if len(sizes) != 4 || sizes[0] != 1 || sizes[3] != 1 || sizes[1] != 1 && sizes[1] != int(s.heads) {
		return nil
	}
	list := make([]float64, 0, int(s.heads)*sizes[2])
	for h := range int(s.heads) {
		for c := range sizes[2] {
			list = append(list, math.Log(t.F[h%sizes[1]*sizes[2]+c]))
		}
	}
	if slices.ContainsFunc(list, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
		return nil
	}
	return list
}

// isOuter reports whether a product multiplies a column by a row.
func (s *step) isOuter(n *onnx.Node) bool {
	if !n.Is("Mul") && !n.Is("MatMul") {
		return false
	}
	one := func(v *onnx.Value, axis int) bool {
		d, ok := s.g.Facts.Dim(v, axis)
		return ok && d == 1
	}
	a, b := n.Input(0), n.Input(1)
	if a == nil || b == nil {
		return false
	}
	return one(a, -1) && one(b, -2) || n.Is("Mul") && one(a, -2) && one(b, -1)
}

// cone collects the nodes from the state to the next state and to the row read from it, and their other inputs.
func (s *step) cone() bool {
	next := s.add.OutputValue(0)
	within := map[*onnx.Value]bool{s.state: true}
	from := 0
	if s.state.Producer != nil && s.state.Graph == s.g.Graph {
		from = s.g.Position(s.state.Producer) + 1
	}
	from = min(from, s.g.Position(s.outer))
	var all []*onnx.Node
	for _, n := range s.g.Graph.Nodes[from:] {
		if !s.budget.Spend(8) || s.row != nil {
			break
		}
		if n != s.outer && !slices.ContainsFunc(n.Reads(), func(v *onnx.Value) bool { return within[v] }) {
			continue
		}
		if len(n.Subgraphs()) > 0 || len(n.Outputs) != 1 || n.OutputValue(0) == nil {
			continue
		}
		if isSize(n) && n.Input(0) == s.state {
			continue // exporters read the number of sequences from a state, and masks and positions from that
		}
		out := n.OutputValue(0)
		within[out] = true
		if all = append(all, n); len(all) > maxCone {
			return false
		}
		if out != next && within[next] && s.elements(out) == s.elements(s.state)/s.key && s.after(next, n, all) {
			s.row = out
		}
	}
	if s.row == nil || !s.shaped() {
		return false
	}
	// Keep only nodes that the next state or the row depends on.
	needed := map[*onnx.Value]bool{next: true, s.row: true}
	for _, n := range slices.Backward(all) {
		if !needed[n.OutputValue(0)] {
			continue
		}
		s.nodes = append(s.nodes, n)
		for _, v := range n.Reads() {
			if within[v] {
				needed[v] = true
			} else if v.Constant() == nil && s.g.Facts.DataType(v).IsFloat() && !slices.Contains(s.given, v) &&
				(v != s.decay || s.rates == nil) {
				s.given = append(s.given, v)
			}
		}
	}
	for _, n := range s.nodes {
		v := n.OutputValue(0)
		if v == next || v == s.row {
			continue
		}
		outside := func(r *onnx.Node) bool { return !slices.Contains(s.nodes, r) }
		if v.IsOutput() || slices.ContainsFunc(s.g.Readers(v), outside) {
			return false
		}
	}
	for _, v := range s.given {
		s.base[v] = s.viewed(v)
	}
	return len(s.given) <= 8
}

// shaped reports whether all dimensions of the row except the batch are known.
func (s *step) shaped() bool {
	rank, ok := s.g.Facts.Rank(s.row)
	for axis := 1; ok && axis < rank; axis++ {
		_, ok = s.g.Facts.Dim(s.row, axis)
	}
	return ok
}

// after reports whether a node reads the next state, perhaps through others.
func (s *step) after(next *onnx.Value, n *onnx.Node, all []*onnx.Node) bool {
	for range maxCone {
		if slices.Contains(n.Reads(), next) {
			return true
		}
		before := slices.IndexFunc(all, func(m *onnx.Node) bool { return slices.Contains(n.Reads(), m.OutputValue(0)) })
		if before < 0 {
			return false
		}
		n = all[before]
	}
	return false
}

// elements returns the number of elements of a value in the first world, or 0 if unknown.
func (s *step) elements(v *onnx.Value) int64 {
	shape, ok := s.g.Facts.Shape(v, 0)
	if !ok {
		return 0
	}
	return int64(match.Elements(match.As[int](shape)))
}

// viewed returns the value that v is a view of: it has the same elements in the same order.
func (s *step) viewed(v *onnx.Value) *onnx.Value {
	for range maxSteps {
		n := v.Producer
		if n == nil || n.Graph != s.g.Graph || n.Input(0) == nil || s.elements(n.Input(0)) != s.elements(v) ||
			s.elements(v) == 0 {
			return v
		}
		switch n.OpType {
		case "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Identity":
		case "Gather": // of one element along an axis
			if one, ok := s.g.Facts.Dim(n.Input(0), int(n.AttrInt("axis", 0))); !ok || one != 1 {
				return v
			}
		case "Transpose":
			if !s.keepsOrder(n) {
				return v
			}
		default:
			return v
		}
		v = n.Input(0)
	}
	return v
}

// keepsOrder reports whether a Transpose moves axes of one element only.
func (s *step) keepsOrder(n *onnx.Node) bool {
	last := int64(-1)
	for _, axis := range n.AttrInts("perm") {
		if d, ok := s.g.Facts.Dim(n.Input(0), int(axis)); ok && d == 1 {
			continue
		}
		if axis < last {
			return false
		}
		last = axis
	}
	return len(n.AttrInts("perm")) > 0
}

// places are the places of queries, keys, values and beta among the bases of a step; -1 without beta.
type places [4]int

// bases lists the values that may be queries, keys, values and beta.
func (s *step) bases() (bases []*onnx.Value) {
	for _, v := range s.given {
		if b := s.base[v]; v != s.decay && !slices.Contains(bases, b) {
			bases = append(bases, b)
		}
	}
	return bases
}

// assigned assigns the roles of the bases, by those of a step of the same form if there was one: the layers of a model
// have steps of one form, and only the first is run. The check of the site runs all of them.
func (s *step) assigned(known probe.Readings[places]) bool {
	bases := s.bases()
	if len(bases) < 3 || len(bases) > 4 {
		return false
	}
	found, _ := known.Of(s.form(bases), s.budget, func() (*places, *reason.Reason) {
		if !s.assign(bases) {
			return nil, nil
		}
		at := &places{}
		for i, v := range []*onnx.Value{s.q, s.k, s.v, s.beta} {
			at[i] = slices.Index(bases, v)
		}
		return at, nil
	}, func(at *places, _ *reason.Reason, _ func(*onnx.Value) *onnx.Value) (*places, *reason.Reason, bool) {
		return at, nil, true
	})
	if found == nil {
		return false
	}
	for i, to := range []**onnx.Value{&s.q, &s.k, &s.v, &s.beta} {
		if *to = nil; found[i] >= 0 {
			*to = bases[found[i]]
		}
	}
	return true
}

// form is the form of the nodes between the given values and the results.
func (s *step) form(bases []*onnx.Value) *probe.Form {
	var f *probe.Form
	f = probe.NewForm(s.g, 4*maxCone, func(v *onnx.Value) bool {
		switch n := v.Producer; {
		case v == s.state:
			f.WriteString(" state")
		case v == s.decay:
			fmt.Fprint(f, " decay", s.rates)
		case slices.Contains(s.given, v):
			fmt.Fprint(f, " given", slices.Index(bases, s.base[v]), s.elements(s.base[v]))
		case v.Constant() != nil:
			f.Elements(v.Constant())
		case n == nil || n.Graph != s.g.Graph: // the same value
			fmt.Fprintf(f, " %p", v)
		default:
			f.Unclear = f.Unclear || !s.budget.Spend(4)
			return f.Unclear
		}
		return true
	})
	fmt.Fprint(f, s.heads, s.key, s.val, s.elements(s.state))
	f.Value(s.row)
	f.Value(s.add.OutputValue(0))
	return f
}

// assign searches for the roles of the given values: queries, keys, values and beta.
func (s *step) assign(bases []*onnx.Value) bool {
	heads := s.elements(s.state) / s.key / s.val // of all sequences
	if heads == 0 {
		return false
	}
	var try func(i int) bool
	roles := []struct {
		at   **onnx.Value
		size int64
	}{{&s.q, s.key}, {&s.k, s.key}, {&s.v, s.val}, {&s.beta, 1}}[:len(bases)]
	try = func(i int) bool {
		if i == len(roles) {
			return s.computes()
		}
		for _, b := range bases {
			if *roles[i].at = b; s.elements(b) != heads*roles[i].size || slices.Contains(
				[]*onnx.Value{s.q, s.k, s.v}[:min(i, 3)], b) {
				continue
			}
			if try(i + 1) {
				return true
			}
		}
		*roles[i].at = nil
		return false
	}
	return try(0)
}

// computes reports whether the nodes compute the op for one token, on random numbers.
func (s *step) computes() bool {
	lab := probe.NewLab(s.g, maxCone, s.budget)
	shape, ok := lab.Shape(s.state)
	if !ok || !s.budget.Spend(4*match.Elements(shape)) {
		return false
	}
	r := rand.New(rand.NewPCG(5, 9))
	given, of := probe.Values{}, map[*onnx.Value][]float64{}
	put := func(v *onnx.Value, list []float64) bool {
		dims, ok := lab.Shape(v)
		if ok {
			given[v] = reference.NewFloats(s.g.Facts.DataType(v), dims, list)
		}
		return ok
	}
	past := normal(r, int(s.elements(s.state)))
	put(s.state, past)
	if s.rates != nil && s.decay.Constant() == nil {
		given[s.decay] = s.factor
	}
	var decay []float64
	for _, v := range s.given {
		b := s.base[v]
		if of[b] == nil {
			of[b] = normal(r, int(s.elements(b)))
		}
		list := of[b]
		if v == s.decay {
			decay, list = list, slices.Clone(list)
			for i, x := range list {
				list[i] = math.Exp(x)
			}
		}
		if !put(v, list) {
			return false
		}
	}
	got, err := lab.Run(given, knownSizes(lab), s.row, s.add.OutputValue(0))
	if err != nil {
		return false
	}
	inputs := make([]*reference.Tensor, fused.LinearAttentionBeta+1)
	rows := func(list []float64) *reference.Tensor {
		return reference.NewFloats(onnx.Float, []int{shape[0], 1, len(list) / shape[0]}, list)
	}
	for i, v := range []*onnx.Value{s.q, s.k, s.v} {
		inputs[i] = rows(of[v])
	}
	inputs[fused.LinearAttentionPast] = reference.NewFloats(onnx.Float, shape, past)
	if s.rates != nil {
		decay = slices.Repeat(s.rates, shape[0])
	}
	if decay != nil {
		inputs[fused.LinearAttentionDecay] = rows(decay)
	}
	if s.beta != nil {
		inputs[fused.LinearAttentionBeta] = rows(of[s.beta])
	}
	want, err := probe.Fused(s.op(), s.budget.SpendOrFail, inputs...)
	return err == nil && near(got[0].F, want[0].F) && near(got[1].F, want[1].F)
}

func near(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-6*(1+math.Abs(y)) })
}

func (s *step) op() fused.LinearAttention {
	return fused.LinearAttention{QHeads: s.heads, KHeads: s.heads, VHeads: s.heads, Scale: 1}
}

// site makes the op compute the row and the next state.
func (s *step) site() *site.Site {
	made := site.New(s.g, fused.LinearAttentionName, s.row.Producer)
	made.Anchor, made.Nodes = s.add, slices.Clone(s.nodes)
	names := fused.Lookup(made.Op).Inputs
	inputs := make([]*site.Operand, len(names))
	typ := s.g.Facts.DataType(s.q)
	if s.g.Facts.DataType(s.k) != typ || s.g.Facts.DataType(s.v) != typ {
		typ = onnx.Float
	}
	flat := func(i int, v *onnx.Value, width int64) {
		name, to := names[i].Name, typ
		if names[i].Type == onnx.Float.String() {
			to = onnx.Float
		}
		inputs[i] = made.Input(fused.NoRole, name, v).Cast(to).With("Reshape", name+"_row", "shape", -1, 1, width)
	}
	flat(fused.LinearAttentionQ, s.q, s.heads*s.key)
	flat(fused.LinearAttentionK, s.k, s.heads*s.key)
	flat(fused.LinearAttentionV, s.v, s.heads*s.val)
	inputs[fused.LinearAttentionPast] = made.Input(fused.NoRole, "past", s.state).Cast(onnx.Float)
	if s.rates != nil {
		inputs[fused.LinearAttentionDecay] = constantDecay(made, s.rates, inputs[fused.LinearAttentionQ])
	}
	if s.decay != nil && s.rates == nil {
		width := s.elements(s.decay) / (s.elements(s.state) / s.key / s.val) * s.heads
		factor := s.viewed(s.decay)
		if n := factor.Producer; n != nil && n.Is("Exp") {
			flat(fused.LinearAttentionDecay, s.viewed(n.Input(0)), width)
		} else {
			flat(fused.LinearAttentionDecay, factor, width)
			inputs[fused.LinearAttentionDecay] = inputs[fused.LinearAttentionDecay].Then("Log", "decay_log", nil)
		}
	}
	if s.beta != nil {
		flat(fused.LinearAttentionBeta, s.beta, s.heads)
	}
	out := made.Compute(s.op(), fused.Lookup(made.Op).OutputNames(), inputs...)
	dims := []int64{-1}
	rank, _ := s.g.Facts.Rank(s.row)
	for axis := 1; axis < rank; axis++ {
		d, _ := s.g.Facts.Dim(s.row, axis)
		dims = append(dims, d)
	}
	out[0].Type, out[1].Type = typ, onnx.Float
	made.Output(s.row, out[0].With("Reshape", "row", "row_shape", dims...).Cast(s.g.Facts.DataType(s.row)))
	made.Output(s.add.OutputValue(0), out[1].Cast(s.g.Facts.DataType(s.add.OutputValue(0))))
	return made
}
