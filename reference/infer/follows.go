package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// follows classifies how the elements of a value depend on open sizes.
type follows uint8

const (
	steady    follows = iota // they do not
	algebraic                // by sums and products, or they count the places of an axis
	loose                    // otherwise: values at some sizes do not determine those at others
)

// Loose reports whether elements of v are known, but depend on open sizes by more than sums and products, such as a
// comparison. Even if they are the same in all worlds, they may differ at other sizes.
func (f *Facts) Loose(v *onnx.Value) bool {
	x := f.of(v)
	return x.follows == loose && x.val[0] != nil
}

// ring lists the ops that add and multiply.
var ring = map[string]bool{"Add": true, "Cast": true, "CastLike": true, "Mul": true, "Neg": true, "ReduceProd": true,
	"ReduceSum": true, "Sub": true, "Sum": true}

// maxPeriod bounds the divisors with which lists of places repeat often enough in all worlds.
const maxPeriod = 256

// follows returns how an output of the call depends on sizes.
func (c *call) follows(x *fact) follows {
	if x.same || x.val[0] == nil {
		return steady
	}
	most := steady
	for _, in := range c.in {
		if in.val[0] != nil {
			most = max(most, in.follows)
		}
	}
	op := c.n.OpType
	_, moves := moving[op]
	if t := x.val[proof]; t != nil {
		list := c.elements(t)
		is := steady
		for _, n := range list {
			if c.table().Follows(n) {
				is = algebraic
			}
			if c.table().Loose(n) && op != "Shape" && op != "Size" {
				if is = max(most, algebraic); !moves && !ring[op] {
					return loose
				}
				return is
			}
		}
		return is
	}
	switch {
	case op == "Shape" || op == "Size" || op == "Range" && most <= algebraic:
		return algebraic
	case op == "ConstantOfShape":
		return steady
	case moves && len(c.in) > 0 && op != "Concat" && op != "Gather" && op != "GatherElements" && op != "GatherND":
		return c.in[0].follows
	case moves || ring[op]:
		return most
	case (op == "Div" || op == "Mod") && c.in[0].follows == algebraic && c.in[1].follows == steady && c.period():
		return algebraic
	case most > steady:
		return loose
	}
	if _, each := elementwise[op]; each {
		return steady
	}
	return algebraic // it may count places
}

// period reports whether the second operand is a small number.
func (c *call) period() bool {
	t := c.in[1].val[0]
	return t != nil && len(t.I) == 1 && t.I[0] > 0 && t.I[0] <= maxPeriod
}
