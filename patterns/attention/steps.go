package attention

import (
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The nodes between the products are run on some scores, and must be one function for all scores. So each node must be
// smooth, move scores, or treat differently only numbers that no score reaches.

// smooth are the ops that have one formula for all numbers.
var smooth = onnx.Words(`
	Add Sub Mul Div Neg Exp Log Tanh Sigmoid Sqrt Pow Reciprocal Erf Softplus Softmax LogSoftmax ReduceSum
	ReduceMean ReduceLogSumExp ReduceLogSum ReduceSumSquare ReduceL2 ReduceMax Sum Mean Identity Dropout MatMul
	Einsum
`)

// moving are the ops that only move elements.
var moving = onnx.Words(`
	Transpose Reshape Flatten Squeeze Unsqueeze Expand Tile Slice Gather Split Concat Pad
`)

// logic are the ops on truth values, and those that detect NaN and infinity.
var logic = onnx.Words("And Or Not Xor IsNaN IsInf Where")

// comparing are the ops that compare numbers.
var comparing = onnx.Words("Equal Less LessOrEqual Greater GreaterOrEqual Min Max Clip")

// A detour adds tensors to the scores in another shape: its nodes reshape the scores, add, and reshape back. They keep
// the order of the scores, so the detour adds to each score what it makes of a score of 0.
type detour struct {
	from, to *onnx.Value
	nodes    []*onnx.Node
}

// sides lists the tensors that are added.
func (d *detour) sides() (list []*onnx.Value) {
	v := d.from
	for _, n := range d.nodes {
		if n.Is("Add") {
			list = append(list, n.Inputs[boolToInt(n.Inputs[0] == v)])
		}
		v = n.Outputs[0]
	}
	return list
}

// findDetours finds the detours between the scores and the softmax.
func (r *region) findDetours(g *match.View) {
	var open detour
	for v := r.scores(); ; {
		n := soleReader(g, v)
		if n == nil || !r.Has(n) || result(n) == nil || n == r.anchor {
			return
		}
		out := n.Outputs[0]
		switch n.OpType {
		case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
			if n.Inputs[0] != v || dimsOf(g, out) == nil {
				return
			}
			if open.nodes == nil {
				open.from = v
			}
			open.nodes = append(open.nodes, n)
		case "Add":
			if open.nodes != nil {
				if n.Inputs[0] == n.Inputs[1] || !g.Facts.SameShape(out, v) {
					return
				}
				open.nodes = append(open.nodes, n)
			}
		default:
			open = detour{}
		}
		if open.nodes != nil && g.Facts.SameShape(out, open.from) {
			if open.to = out; len(open.sides()) > 0 {
				r.detours = append(r.detours, open)
			}
			open = detour{}
		}
		v = out
	}
}

// around returns the region as if its detours added nothing. It is nil without detours, or if other nodes read the
// tensors that they add.
func (r *region) around() *region {
	other := *r
	var nodes []*onnx.Node
	var added []*onnx.Value
	for _, d := range r.detours {
		nodes, added = append(nodes, d.nodes...), append(added, d.sides()...)
	}
	isAdded := func(v *onnx.Value) bool { return slices.Contains(added, v) }
	if added == nil || slices.ContainsFunc(r.Nodes, func(n *onnx.Node) bool {
		return !slices.Contains(nodes, n) && slices.ContainsFunc(n.Inputs, isAdded)
	}) {
		return nil
	}
	other.Sides = slices.DeleteFunc(slices.Clone(r.Sides), isAdded)
	return &other
}

// readDetours returns a reason unless the detours add to the scores of the op.
func (b *block) readDetours() *reason.Reason {
	s, n := b.site, b.few()
	if s.Choice != nil || s.PresentKey != nil || len(b.headParts) > 0 || len(b.joins) > 0 {
		return b.otherMask("it is added in another shape")
	}
	env, err := b.masks(n, nil)
	given, made := values{}, []*reference.Tensor{}
	for _, d := range b.detours {
		if _, ok := s.keysOf(b.g, d.from); !ok {
			return b.unknown("the shape of the scores")
		}
		for i, v := range d.sides() {
			given[v], _ = b.tensorOf(v, n, uint64(71+i+len(given))) // masks knew the shape
		}
		zero, ok := b.constant(d.from, n, 0)
		if err != nil || !ok {
			return b.other(b.anchor, "the mask cannot be computed: %w", err)
		}
		run := maps.Clone(env)
		maps.Copy(run, given)
		run[d.from] = zero
		out, err := b.world.run(n, run, d.to)
		if err != nil {
			return b.other(b.anchor, "the mask cannot be computed: %w", err)
		}
		made = append(made, out[0])
	}
	seen := b.seen(hypothesis{causal: s.Causal, window: s.Window})
	sees := func(batch, _, query, key int64) bool { return seen(batch, query, key) }
	why := b.addsScaled(given, s.Bias, sees, made...)
	if why != nil && len(s.Bias) == 0 && s.Softcap == 0 {
		s.BiasScale = s.Scale / b.scale
		why = b.addsScaled(given, s.Bias, sees, made...)
	}
	s.Detours = b.detours
	return why
}

// keysOf returns the number of keys of scores whose shape Reshape can restore; ok is false for others.
func (s *Reading) keysOf(g *match.View, v *onnx.Value) (keys int64, ok bool) {
	dims, i := dimsOf(g, v), slices.Index(s.BiasAxes.Fields(), "l")
	if i < 0 || i >= len(dims) {
		return 0, false
	}
	return dims[i], dims[i] > 0
}

// dimsOf returns the dimensions of a value as a Reshape takes them, with -1 for an open one. It returns nil if several
// are open.
func dimsOf(g *match.View, v *onnx.Value) []int64 {
	rank, ok := g.Facts.Rank(v)
	dims, open := make([]int64, rank), 0
	for i := range dims {
		d, fixed := g.Facts.Dim(v, i)
		if dims[i] = d; !fixed {
			dims[i] = -1
			open++
		}
	}
	if !ok || open > 1 || slices.Contains(dims, 0) {
		return nil
	}
	return dims
}

// checkSteps returns a reason if a node between the products may treat untried scores differently.
func (b *block) checkSteps() *reason.Reason {
	for _, n := range b.Nodes {
		if b.straight && slices.ContainsFunc(b.detours, func(d detour) bool { return slices.Contains(d.nodes, n) }) {
			continue
		}
		if why := b.checkStep(n); why != nil && !b.cancels(n) {
			return why
		}
	}
	return nil
}

// cancels reports whether the weights do not depend on a node's result, such as the greatest score that is subtracted
// from all.
func (b *block) cancels(n *onnx.Node) bool {
	v := result(n)
	lengths := b.few()
	env, err := b.masks(lengths, nil)
	if v == nil || err != nil || !b.g.Facts.DataType(v).IsFloat() {
		return false
	}
	scores := random(b.rowsOf(lengths)*int(lengths.keys()), 81)
	want, err := b.weigh(lengths, scores, env)
	if err != nil {
		return false
	}
	for seed := range uint64(2) {
		t, ok := b.tensorOf(v, lengths, 83+seed)
		if !ok {
			return false
		}
		env[v] = t
		got, err := b.weigh(lengths, scores, env)
		if err != nil || !slices.EqualFunc(want, got, func(x, y float64) bool { return math.Abs(x-y) < 1e-9 }) {
			return false
		}
	}
	return true
}

func (b *block) checkStep(n *onnx.Node) *reason.Reason {
	from := b.g.Facts.DataType(n.Input(0))
	switch op := n.OpType; {
	case n.IsRandom():
		return b.other(n, "it draws random numbers")
	case op == "IsInf" && n.AttrInt("detect_positive", 1) == 0 && isGreatest(n.Input(0)): // in a row that sees no key
	case (op == "IsNaN" || op == "IsInf") && !b.isWeighed(n):
		return b.other(n, "it treats scores that are NaN or infinite differently")
	case smooth[op] || logic[op]:
	case moving[op]:
		if !formula.For(b.g).Moves(n) {
			return b.other(n, "the elements that it moves depend on lengths by more than sums")
		}
	case op == "Cast" || op == "CastLike":
		if to := b.g.Facts.DataType(n.OutputValue(0)); from.IsFloat() && !to.IsFloat() {
			return b.other(n, "it rounds scores")
		}
	case comparing[op]:
		d := denseValues(b.g)
		for _, v := range n.Inputs {
			if v == nil || d[v] {
				continue
			}
			x, ok := greatest(b.g, v)
			if !ok || !(math.Abs(x) >= b.beyondScores() || x == 0 && op == "Equal" && b.isWeighed(n)) {
				return b.other(n, "it compares scores with %v, but scores may exceed that", x)
			}
		}
		if in := b.g.Operands(n); !slices.ContainsFunc(in, func(v *onnx.Value) bool { return !d[v] }) {
			return b.other(n, "it compares scores with each other")
		}
	default:
		return b.other(n, "its effect on scores is not known")
	}
	return nil
}

// isGreatest reports whether a value is the greatest score of a row, or of a row and its sink.
func isGreatest(v *onnx.Value) bool {
	switch n := v.Producer; {
	case n == nil:
		return false
	case n.Is("Max"):
		return slices.ContainsFunc(n.Inputs, isGreatest)
	default:
		return n.Is("ReduceMax")
	}
}

// isWeighed reports whether the inputs of a node depend on the exponentials of the scores.
func (b *block) isWeighed(n *onnx.Node) bool {
	d := denseValues(b.g)
	stop := func(v *onnx.Value) bool { return v == b.scores() || !d[v] }
	for v := range onnx.Upstream(stop, n.Inputs...) {
		if v == b.anchor.Outputs[0] {
			return true
		}
	}
	return false
}

// greatest returns the element of a constant that is nearest to 0.
func greatest(g *match.View, v *onnx.Value) (x float64, ok bool) {
	c := v.Constant()
	if c == nil || c.Len() < 1 || c.Len() > maxProbed {
		if t, known := g.Facts.Constant(v); known && len(t.F) == 1 && formula.For(g).IsNumber(v) {
			return t.F[0], true
		}
		return 0, false
	}
	t, err := reference.FromONNX(c)
	if err != nil || t.F == nil {
		return 0, false
	}
	return slices.MinFunc(t.F, func(a, b float64) int {
		if math.Abs(a) < math.Abs(b) {
			return -1
		}
		return 1
	}), true
}

// maxProbed bounds the elements of a constant that are inspected.
const maxProbed = 1 << 12

// beyondScores is a magnitude that no score reaches. In float32, steps between greater numbers are too coarse for
// scores; in float16, it is close to the greatest number.
func (b *block) beyondScores() float64 {
	if b.g.Facts.DataType(b.scores()) == onnx.Float16 {
		return 65472 // one step below the greatest number, 65504
	}
	return 1 << 26
}

// farScore is the magnitude of the scores tried: masks must hide a key of this score from a query whose visible keys
// have its negative.
func (b *block) farScore() float64 {
	if b.g.Facts.DataType(b.scores()) == onnx.Float16 {
		return 1 << 14
	}
	return 1 << 24
}
