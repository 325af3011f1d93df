package attention

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// The layers of a model have blocks of one form: the first is read, and the others are it with other operands.

// alike are the blocks that were read, by their form.
type alike struct {
	g      *match.View
	budget *match.Budget
	read   map[string]*reading
}

// reading is what was found out about a block.
type reading struct {
	values []*onnx.Value // of its form, in the order in which they stand there
	site   *Site
	why    *reason.Reason
}

// of reads a block in the given way. A block of the same form as one that was read is that one with its own values.
func (a *alike) of(r *region, w way) (*Site, *reason.Reason) {
	f := &form{alike: a, region: r, dense: denseValues(a.g), places: map[*onnx.Value]int{}}
	f.write()
	key := fmt.Sprint(w, f.String())
	gaveUp := reason.New(reason.Limit, r.anchor, "the search was given up")
	if !a.budget.Spend(writeSteps * len(f.values)) {
		return nil, gaveUp
	}
	known := a.read[key]
	if f.unclear || known == nil {
		site, why := read(a.g, r, w)
		if a.budget.Spent() { // what was not run to the end says nothing
			return nil, gaveUp
		}
		if !f.unclear {
			a.read[key] = &reading{f.values, site, why}
		}
		return site, why
	}
	if known.why != nil {
		return nil, reason.New(known.why.Code, r.anchor, "%w", known.why)
	}
	site := *known.site
	site.Anchor = r.anchor
	site.Bias = slices.Clone(site.Bias)
	values := []**onnx.Value{&site.Q, &site.K, &site.V, &site.PastKey, &site.PastValue, &site.PresentKey,
		&site.PresentValue, &site.Sink,
		&site.HeadScale, &site.QueryScale, &site.Choice, &site.Y}
	for i := range site.Bias {
		values = append(values, &site.Bias[i])
	}
	stands := match.Standing(known.values, f.values)
	for _, v := range values {
		if own := stands(*v); own != nil {
			*v = own
		}
	}
	return &site, nil
}

// maxForm bounds the values of a form.
const maxForm = 1 << 10

// form writes a block as text that does not name its values.
type form struct {
	*alike
	*region
	dense dense
	strings.Builder
	values  []*onnx.Value
	places  map[*onnx.Value]int
	unclear bool // a node cannot be written
}

func (f *form) write() {
	f.value(f.sum.Outputs[0])
	v := f.sum.Outputs[0]
	for range maxChain { // what follows the second product
		fmt.Fprintf(f, "\n%v", v.IsOutput())
		next := soleReader(f.g, v)
		if next == nil || next.IsProduct() || result(next) == nil {
			return
		}
		for _, in := range next.Inputs {
			if in != nil && in != v && f.dense[in] && f.joinOf(next) == nil {
				return // the residual addition, say
			}
		}
		v = result(next)
		f.value(v)
	}
}

// value writes v, and what it is made of as far as that may belong to a block.
func (f *form) value(v *onnx.Value) {
	if v == nil {
		f.WriteByte('-')
		return
	}
	if i, ok := f.places[v]; ok {
		fmt.Fprintf(f, "#%d", i)
		return
	}
	if f.unclear = f.unclear || len(f.values) == maxForm; f.unclear {
		return
	}
	f.places[v] = len(f.values)
	f.values = append(f.values, v)
	f.g.WriteType(f, v)
	switch n := v.Producer; {
	case f.known(v):
	case v.Constant() != nil || n != nil && !f.dense[v]:
		fmt.Fprintf(f, "side %d", f.side(v))
	case n != nil && n.Graph == f.g.Graph && f.inside(n):
		key, ok := match.AttributesKey(n)
		f.unclear = f.unclear || !ok
		fmt.Fprintf(f, " %s.%s%s:%d(", n.Domain, n.OpType, key, v.Output)
		for _, in := range n.Inputs {
			f.value(in)
			f.WriteByte(',')
		}
		f.WriteByte(')')
	default:
		fmt.Fprint(f, f.g.IsData(v))
	}
}

// known writes a small value that is the same sums of sizes for all sizes, or a small constant.
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

// inside reports whether the node may belong to a block: whatever comes before another one is an operand.
func (f *form) inside(n *onnx.Node) bool {
	if n == f.sum || n == f.product || f.joinOf(n) != nil || slices.Contains(f.nodes, n) ||
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

// side numbers a mask: equal ones have one number.
func (f *form) side(v *onnx.Value) int { return f.g.Number(v) }
