package patterns

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/builtin"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// quantizers returns the patterns of values that are rounded to 8 bits with a scale for each row. No set contains them.
var quantizers = sync.OnceValue(func() []*Pattern {
	s := NewSet()
	for _, name := range []string{"views.pat", "quantize.pat"} {
		if err := s.Add(name, builtin.Text(name)); err != nil {
			panic(fmt.Sprintf("built-in patterns: %v", err)) // a mistake of the build, caught by any test
		}
	}
	return s.Patterns
})

// rowScales names the values of the patterns that follow from the scales of rows: the scales, their inverses, and the
// greatest magnitudes.
var rowScales = []string{"step", "factor", "bounded"}

// normQuantizes finds RMSNorms, with or without a sum before them, whose result is only rounded to 8 bits with a scale
// for each row.
func (f *finder) normQuantizes(d *form) (found []*Match) {
	norms := &normsByOutput{byValue: map[*onnx.Value]*Match{}, byOp: map[string]bool{}}
	for _, m := range f.matches {
		if m.Domain == fused.Domain && m.Problem == nil && (m.Op == fused.RMSNormName || m.Op == fused.AddRMSNormName) {
			norms.add(f.view, m)
		}
	}
	if len(norms.list) == 0 {
		return nil
	}
	for _, n := range f.view.Graph.Nodes {
		if !n.Is("Cast") && !n.Is("QuantizeLinear") || f.claimed[n] || len(n.Outputs) != 1 {
			continue
		}
		for _, p := range quantizers() {
			var joined *Match
			a := match.NewAttempt(f.view, p)
			if a.At(n.Outputs[0], func() bool { joined = f.joinNormQuantize(d, norms, a, n); return joined != nil }) {
				found = append(found, joined)
				break
			}
		}
	}
	return found
}

// joinNormQuantize joins the rounding that attempt a has matched with the norm before it. It returns nil if there is no
// such norm, if the result of the norm is used otherwise, or if NormQuantize rounds in another way.
func (f *finder) joinNormQuantize(d *form, norms *normsByOutput, a *match.Attempt, rounds *onnx.Node) *Match {
	v, y := a.Value("x"), rounds.Outputs[0]
	norm := norms.of(f.view, v)
	if norm == nil {
		return nil
	}
	normalizes, facts := mainNode(norm), f.view.Facts
	if normalizes == nil || !normalizesLastAxis(normalizes) || !facts.SameShape(v, y) {
		return nil
	}
	x, t := norm.Inputs[0], facts.DataType(v)
	after := number(normalizes, fused.AttrScaleAfterCast) == 1
	switch {
	case t == onnx.Float && facts.DataType(x) == t: // the norm rounds nothing
		after = false
	case !after || facts.DataType(x) != t:
		return nil
	}
	captured := func(name string) float64 { x, _ := a.Captured(name).(float64); return x }
	width, known := facts.Dim(v, -1)
	if block := captured("block"); block != 0 && (!known || int64(block) != width) {
		return nil
	}
	most := map[onnx.DataType]float64{onnx.Int8: 127, onnx.Float8E4M3FN: 448}[facts.DataType(y)]
	if limit := cmp.Or(captured("most"), 1/captured("part")); math.Abs(limit-most) > 1e-6*most {
		return nil
	}
	least := float32(cmp.Or(captured("least"), captured("floor")/most))
	if least <= 0 {
		return nil
	}
	results := []*onnx.Value{y}
	made := map[string]*onnx.Value{}
	for _, name := range rowScales {
		if w := f.view.Resolve(a.Value(name)); w != nil && readElsewhere(w, a.Nodes) {
			made[name] = w
			results = append(results, w)
		}
	}
	if !leadsOnlyTo(f.view, norm.Outputs[0], results...) {
		return nil
	}

	j := f.join(d, rounds, norm)
	normed := j.place(norm, normalizes, nil)
	at := func(i int) *site.Operand { return normed[normalizes.Inputs[i]] }
	zero, err := onnx.NewTensor("zero", facts.DataType(y), []int64{1}, []byte{0})
	if err != nil {
		return nil
	}
	operands := []*site.Operand{at(0), at(len(normalizes.Inputs) - 1), j.Constant("zero", zero)}
	names := []string{"y", "y_scale", ""}
	if norm.Op == fused.AddRMSNormName {
		operands = append(operands, at(1))
		if len(norm.Outputs) > 1 {
			names[2] = "sum"
		}
	}
	out := j.Compute(fused.NormQuantize{Epsilon: float32(number(normalizes, fused.AttrEpsilon)), ScaleAfterCast: after,
		LeastScale: least}, names, operands...)
	j.Output(y, out[0])
	for _, name := range rowScales {
		if made[name] == nil {
			continue
		}
		scale := out[1]
		switch name {
		case "factor":
			scale = scale.Then("Reciprocal", name, nil)
		case "bounded":
			scale = scale.Then("Mul", name, []*site.Operand{j.Number(most, onnx.Float)})
		}
		j.Output(made[name], scale)
	}
	if out[2] != nil {
		j.Output(norm.Outputs[1], out[2])
	}
	j.Nodes = slices.Concat(norm.Nodes, a.Nodes)
	return j.match()
}

// readElsewhere reports whether v is an output of the model or read by a node that is not among nodes.
func readElsewhere(v *onnx.Value, nodes []*onnx.Node) bool {
	return v.IsOutput() ||
		slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return !slices.Contains(nodes, u.Node) })
}

// number returns a FLOAT or INT attribute of a node that a pattern has written, 0 if the node does not have it.
func number(n *onnx.Node, name string) float64 {
	a := n.Attr(name)
	switch {
	case a == nil:
		return 0
	case a.Type == onnx.AttrInt:
		return float64(a.Int)
	}
	return float64(a.Float)
}
