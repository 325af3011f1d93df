package learn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// byRank are the ops whose function depends on the rank.
var byRank = map[string]bool{"GlobalAveragePool": true, "GlobalMaxPool": true, "GlobalLpPool": true, "Flatten": true}

// conditions returns the demands that hold at the match. It returns an error if the pattern does not parse or match
// there.
func (w *writer) conditions(p *notation.Pattern) ([]notation.Condition, error) {
	set, err := w.set.With("learnt", p.String())
	if err != nil {
		return nil, fmt.Errorf("the pattern does not parse: %w", err)
	}
	var wanted []notation.Condition
	for _, text := range w.demands() {
		c, err := set.Condition(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		wanted = append(wanted, c)
	}
	a := match.NewAttempt(set.View(w.Graph, w.Facts), set.Patterns[0])
	var hold []notation.Condition
	if !a.At(w.Resolve(w.m.Outputs[0]), func() bool {
		if !w.isOurs(a) {
			return false
		}
		hold = slices.DeleteFunc(slices.Clone(wanted), func(c notation.Condition) bool {
			x, err := a.Eval(c.Expr)
			is, isBool := x.(bool)
			return err != nil || isBool && !is
		})
		return true
	}) {
		return nil, errors.New("the written pattern does not match it")
	}
	return hold, nil
}

// isOurs reports whether an attempt found the operands of the match.
func (w *writer) isOurs(a *match.Attempt) bool {
	for i, v := range w.m.Inputs {
		if w.IsData(v) && w.Resolve(a.Value(w.params[i])) != w.Resolve(v) {
			return false
		}
	}
	return true
}

// demands lists conditions that a pattern for the op may need.
func (w *writer) demands() []string {
	has := func(name string) bool { return slices.Contains(w.params, name) }
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	in, y := w.params[0], w.results[0]
	for _, n := range w.numbers {
		if n.Name == n.of && n.Value > 0 {
			say("%s > 0", n.Name)
		}
	}
	list = append(list, w.conds...)
	if w.m.Op == fused.RotaryEmbeddingName ||
		slices.ContainsFunc(w.order, func(t *term) bool { return byRank[t.op] }) ||
		slices.ContainsFunc(w.m.Replacement.Nodes, func(n *onnx.Node) bool { return n.Is("Transpose") }) {
		rank, _ := w.Facts.Rank(w.m.Inputs[0])
		say("rank(%s) == %d", in, rank)
	}
	if w.fixed || w.m.Op == fused.RotaryEmbeddingName && w.teller(rotaryDim) == "" && !w.whole() {
		size, _ := w.Facts.Dim(w.m.Inputs[0], -1)
		say("dim(%s, -1) == %d", in, size)
	}
	for _, v := range []string{"scale", "bias"} {
		if has(v) {
			say("dim(%s, -1) == dim(%s, %d)", v, in, w.axisOfX(-1))
		}
	}
	switch w.m.Op {
	case fused.RMSNormName, fused.AddRMSNormName:
		sum := in
		if len(w.results) > 1 {
			sum = w.results[1]
			say("sameshape(%s, residual)", in)
			say("!is(%s, \"RotaryEmbedding\")", sum)
			say("!reads(scale, %s)", sum)
		}
		say("!centered(%s)", sum)
		if !has("scale") {
			say("dim(%s, -1) > 0", in)
			say("!weighted(%s)", y)
		}
	case fused.RotaryEmbeddingName:
		for _, n := range w.m.Replacement.Nodes {
			if n.OpType == w.m.Op {
				list = append(append(list, w.tableAxes(n.Inputs[1])...), w.tableAxes(n.Inputs[2])...)
			}
		}
	case fused.GLUName:
		say("sameshape(%s, %s)", in, w.params[1])
		say("!routed(%s)", in)
	}
	say("sameshape(%s, %s)", in, y)
	for i, v := range w.m.Inputs {
		if w.Facts.DataType(v) != onnx.Undefined {
			say("type(%s) == type(%s)", w.params[i], y)
		}
	}
	return list
}
