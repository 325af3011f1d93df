package attention

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// The layers of a model have blocks of one form. Only the first is read.

// of reads a block in the given way. It reuses the reading of an earlier block of the same form.
func (f *finder) of(r *region, w way) (*Reading, *reason.Reason) {
	form := newForm(f.g, r)
	fmt.Fprint(form, w)
	if !f.budget.Spend(writeSteps * len(form.Values)) {
		return nil, givenUp(r)
	}
	found, why := f.read.Of(form.Form, f.budget, func() (*Reading, *reason.Reason) { return read(f.g, r, w) },
		func(of *Reading, why *reason.Reason, stands func(*onnx.Value) *onnx.Value) (*Reading, *reason.Reason, bool) {
			if why != nil {
				return nil, reason.New(why.Code, r.anchor, "%w", why), true
			}
			return of.with(r, stands), nil, true
		})
	if f.budget.Spent() {
		return nil, givenUp(r)
	}
	return found, why
}

// with returns s for a region of the same form, with the values of that region.
func (s *Reading) with(r *region, stands func(*onnx.Value) *onnx.Value) *Reading {
	site := *s
	site.Anchor = r.anchor
	site.Bias = slices.Clone(site.Bias)
	if len(site.Detours) > 0 {
		site.Detours = r.detours
	}
	values := []**onnx.Value{&site.Q, &site.K, &site.V, &site.PastKey, &site.PastValue, &site.PresentKey,
		&site.PresentValue, &site.Sink,
		&site.HeadScale, &site.QueryScale, &site.Choice, &site.Y}
	for i := range site.Bias {
		values = append(values, &site.Bias[i])
	}
	for _, v := range values {
		if own := stands(*v); own != nil {
			*v = own
		}
	}
	return &site
}

// maxForm bounds the values of a form.
const maxForm = 1 << 10

// form writes the form of a block.
type form struct {
	*probe.Form
	*region
	g     *match.View
	dense dense
}

func newForm(g *match.View, r *region) *form {
	f := &form{region: r, g: g, dense: denseValues(g)}
	f.Form = probe.NewForm(g, maxForm, f.leaf)
	v := f.sum.Outputs[0]
	f.Value(v)
	for range maxChain { // after the second product
		fmt.Fprintf(f, "\n%v", v.IsOutput())
		next := soleReader(f.g, v)
		if next == nil || next.IsProduct() || result(next) == nil {
			break
		}
		for _, in := range next.Inputs {
			if in != nil && in != v && f.dense[in] && f.joinOf(next) == nil {
				return f // the residual addition, say
			}
		}
		v = result(next)
		f.Value(v)
	}
	return f
}

// leaf writes a value that does not belong to the block: a number, a mask or an operand.
func (f *form) leaf(v *onnx.Value) bool {
	switch n := v.Producer; {
	case f.known(v):
	case v.Constant() != nil || n != nil && !f.dense[v]:
		fmt.Fprintf(f, "side %d", f.g.Number(v)) // equal masks have one number
	case n != nil && n.Graph == f.g.Graph && f.inside(n):
		return false
	default:
		fmt.Fprint(f, f.g.IsData(v))
	}
	return true
}

// known writes a small constant, or a small value whose elements are the same sums of sizes for all sizes.
func (f *form) known(v *onnx.Value) bool {
	t, ok := f.g.Facts.Known(v, 0)
	if !ok || t.Len() > maxKnown {
		return false
	}
	if t, ok := f.g.Facts.Constant(v); ok && (v.Constant() != nil || isConstant(f.g, v)) {
		fmt.Fprint(f, t.F, t.I)
		return true
	}
	sums, ok := formula.For(f.g).Sums(v)
	fmt.Fprint(f, sums)
	return ok
}

// maxKnown bounds the elements of a value that are written.
const maxKnown = 64

// inside reports whether the node may belong to a block. The values that other nodes compute are operands.
func (f *form) inside(n *onnx.Node) bool {
	if n == f.sum || n == f.product || f.joinOf(n) != nil || f.Has(n) ||
		n.Is("Concat") && len(n.Inputs) == 2 {
		return true
	}
	switch n.OpType {
	case "Mul", "Div":
		return !f.dense[n.Input(0)] || !f.dense[n.Input(1)]
	case "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Gather", "Cast",
		"Identity", "Split", "Where":
		return onnx.IsStandardDomain(n.Domain)
	}
	return false
}
