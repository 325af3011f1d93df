package sites

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// outlier rows contain one number whose square overflows the type; the other numbers are normal.
var outlier = prove.Kind{Name: "outlier", Fill: func(r *rand.Rand, t onnx.DataType, v []float64, row int) {
	for i := range v {
		if v[i] = r.NormFloat64(); row > 0 && i%row == i/row%row {
			v[i] = 2 * math.Sqrt(prove.Greatest(t))
		}
	}
}}

// kinds returns the kinds of a list. A site that computes in float16 is tried on outliers too, because activations of
// real models reach 256, and the square of 256 overflows float16. A norm without an epsilon is tried on slight rows.
func (c *Site) kinds(list []prove.Kind) []prove.Kind {
	if c.withoutEpsilon() {
		list = append(slices.Clip(list), prove.Slight)
	}
	if c.narrowest == onnx.Float16 {
		return append(slices.Clip(list), outlier)
	}
	return list
}

// withoutEpsilon reports whether the op of a site is a norm that adds nothing to the mean of the squares. If that
// mean is subnormal, its roundings decide the result. They differ if the nodes add squares up and the op takes
// their mean, or if the nodes round a length only.
func (c *Site) withoutEpsilon() bool {
	return slices.ContainsFunc(c.Calls, func(call *Call) bool {
		a := call.Site.Attr("epsilon")
		return a.Name != "" && a.Float == 0
	})
}
