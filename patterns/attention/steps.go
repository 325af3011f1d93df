package attention

import (
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
var smooth = opSet("Add", "Sub", "Mul", "Div", "Neg", "Exp", "Log", "Tanh", "Sigmoid", "Sqrt", "Pow",
	"Reciprocal", "Erf",
	"Softplus", "Softmax", "LogSoftmax", "ReduceSum", "ReduceMean", "ReduceLogSumExp", "ReduceLogSum",
	"ReduceSumSquare",
	"ReduceL2", "ReduceMax", "Sum", "Mean", "Identity", "Dropout", "MatMul", "Einsum")

// moving are the ops that only move elements.
var moving = opSet("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Gather",
	"Split", "Concat", "Pad")

// logic are the ops on truth values, and those that detect NaN and infinity.
var logic = opSet("And", "Or", "Not", "Xor", "IsNaN", "IsInf", "Where")

// comparing are the ops that compare numbers.
var comparing = opSet("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max", "Clip")

func opSet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// checkSteps returns a reason if a node between the products may treat untried scores differently.
func (b *block) checkSteps() *reason.Reason {
	for _, n := range b.Nodes {
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
