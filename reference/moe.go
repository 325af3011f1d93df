package reference

import (
	"cmp"
	"math"
	"slices"
)

var mixtureOps = map[string]opDef{
	"com.microsoft:MoE": arith(3, opMicrosoftMoE),
}

// opMicrosoftMoE is onnxruntime's mixture of experts without the separate weights of fc3: the softmax of the router's
// logits chooses k experts for each token, of equal ones the first; what these give is added up with the softmax's
// numbers, divided by their sum on demand. The weights are read expert by expert.
func opMicrosoftMoE(c *call) []*Tensor {
	k, act := c.mixture()
	first := try(allDense(c.in[:2]))
	x, logits := first[0], first[1]
	fc1, fc2, b1, b2 := c.in[2], c.arg(4), c.arg(3), c.arg(5)
	if fc2 == nil || c.arg(6) != nil || c.arg(7) != nil || x.Rank() < 2 || x.Rank() > 3 || logits.Rank() != 2 ||
		fc1.Rank() != 3 || fc2.Rank() != 3 {
		fail("ranks, or inputs, that it does not have here")
	}
	hidden, inner, out := x.Shape[x.Rank()-1], fc2.Shape[2], fc1.Shape[1]
	tokens, experts := logits.Shape[0], logits.Shape[1]
	if !slices.Equal(fc1.Shape, []int{experts, act.parts * inner, hidden}) ||
		!slices.Equal(fc2.Shape, []int{experts, hidden, inner}) ||
		b1 != nil && !slices.Equal(b1.Shape, []int{experts, out}) ||
		b2 != nil && !slices.Equal(b2.Shape, []int{experts, hidden}) ||
		tokens*hidden != x.Len() || k < 1 || k > experts {
		fail("%d of %d experts, and weights of %v and %v for a hidden size of %d", k, experts, fc1.Shape, fc2.Shape,
			hidden)
	}
	routes := route(logits.F, experts, k, c.int("normalize_routing_weights", 0) != 0)
	y := make([]float64, x.Len())
	for e := range experts {
		var rows []float64
		for _, r := range routes[e] {
			rows = append(rows, x.F[r.token*hidden:(r.token+1)*hidden]...)
		}
		if len(rows) == 0 {
			continue
		}
		h := expert(NewFloats(x.DataType, []int{len(routes[e]), hidden}, rows), fc1, b1, e)
		a := newFloats(x.DataType, []int{len(routes[e]), inner})
		for i := range a.F {
			a.F[i] = act.of(h.F[i*act.parts : (i+1)*act.parts])
		}
		o := expert(a, fc2, b2, e)
		for i, r := range routes[e] {
			for j := range hidden {
				y[r.token*hidden+j] += r.weight * o.F[i*hidden+j]
			}
		}
	}
	return one(NewFloats(x.DataType, x.Shape, y))
}

// routedToken is a token that goes to an expert.
type routedToken struct {
	token  int
	weight float64
}

// route returns each expert its tokens.
func route(logits []float64, experts, k int, normalize bool) [][]routedToken {
	routes := make([][]routedToken, experts)
	for token := range len(logits) / experts {
		row := logits[token*experts : (token+1)*experts]
		order := upTo(experts)
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		total, most := 0.0, row[order[0]]
		summed := row
		if normalize {
			summed = takeSlice(row, order[:k])
		}
		for _, z := range summed {
			total += math.Exp(z - most)
		}
		for _, e := range order[:k] {
			routes[e] = append(routes[e], routedToken{token, math.Exp(row[e]-most) / total})
		}
	}
	return routes
}

// expert multiplies rows with the matrix of an expert, stored as [out, in], and adds its bias.
func expert(rows, weights, bias *Tensor, e int) *Tensor {
	v, ok := weights.view().pushTo(1)
	if !ok {
		v, _ = try(weights.Dense()).view().pushTo(1)
	}
	w := viewed(weights.DataType, v.cut(0, e, 1, 1).reshape(weights.Shape[1:]))
	r := matmul(rows, w.swapLast())
	if bias == nil {
		return r
	}
	b := try(bias.Dense())
	n := weights.Shape[1]
	for i := range r.F {
		r.F[i] += b.F[e*n+i%n]
	}
	return r
}

// expertActivation makes one element of so many of the first product.
type expertActivation struct {
	parts int
	of    func(h []float64) float64
}

// mixture reads the attributes. Only interleaved gates are known, which come first.
func (c *call) mixture() (k int, act expertActivation) {
	single := map[string]func(float64) float64{
		"relu":     func(x float64) float64 { return math.Max(x, 0) },
		"gelu":     geluTanh,
		"silu":     func(x float64) float64 { return x * sigmoid(x) },
		"identity": func(x float64) float64 { return x },
	}
	alpha, beta, limit := c.float("activation_alpha", 1), c.float("activation_beta", 0),
		c.float("swiglu_limit", math.Inf(1))
	name := c.str("activation_type", "relu")
	k = int(c.int("k", 1))
	if c.int("use_sparse_mixer", 0) != 0 {
		fail("the sparse mixer is not known here")
	}
	if f := single[name]; f != nil {
		return k, expertActivation{1, func(h []float64) float64 { return f(h[0]) }}
	}
	if name != "swiglu" || c.int("swiglu_fusion", 0) != 1 {
		fail("activation %q with a fusion of %d is not known here", name, c.int("swiglu_fusion", 0))
	}
	return k, expertActivation{2, func(h []float64) float64 {
		gate, up := math.Min(h[0], limit), math.Max(math.Min(h[1], limit), -limit)
		return gate * sigmoid(alpha*gate) * (up + beta)
	}}
}
