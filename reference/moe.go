package reference

import (
	"cmp"
	"math"
	"slices"
)

var mixtureOps = map[string]opDef{
	"com.microsoft:MoE":  arith(3, opMicrosoftMoE),
	"com.microsoft:QMoE": arith(3, opQMoE),
}

// opMicrosoftMoE is onnxruntime's mixture of experts without the separate weights of fc3. It reads the weights expert
// by expert.
func opMicrosoftMoE(c *call) []*Tensor {
	fc1, fc2 := c.in[2], c.arg(4)
	if fc2 == nil || c.arg(6) != nil || c.arg(7) != nil || fc1.Rank() != 3 || fc2.Rank() != 3 {
		fail("ranks, or inputs, that it does not have here")
	}
	m := &mixture{x: try(c.in[0].Dense()), logits: try(c.in[1].Dense()), b1: c.arg(3), b2: c.arg(5),
		inner: fc2.Shape[2],
		first: func(rows *Tensor, e int) *Tensor { return expert(rows, fc1, e) },
		last:  func(rows *Tensor, e int) *Tensor { return expert(rows, fc2, e) }}
	m.check(c, fc1.Shape, fc2.Shape)
	return m.run(c)
}

// opQMoE is the same with packed elements. It may take the experts' weights separately from the logits that choose the
// experts. Gate and up may be one matrix or two.
func opQMoE(c *call) []*Tensor {
	if t := c.str("quant_type", "int"); t != "int" {
		fail("experts of %s are not supported", t)
	}
	if c.arg(14) == nil && c.int("normalize_routing_weights", 0) == 0 {
		fail("normalize_routing_weights is 0: onnxruntime's CPU provider normalizes all the same, CUDA's does not")
	}
	if c.int("weights_prepacked", 0) > 0 {
		fail("the weights are prepacked for the kernels of a device, which is not supported")
	}
	bits := c.int("expert_weight_bits", 4)
	matrices := func(i, scales, zeros int, name string) *packed {
		w := c.arg(i)
		if w == nil || w.Rank() != 3 || c.arg(scales) == nil {
			fail("input %d is %s: it must be matrices with their scales", i, w)
		}
		p := &packed{codes: w, scales: c.arg(scales), zeros: c.arg(zeros), rows: w.Shape[0] * w.Shape[1],
			bits: int(c.int(name+"_expert_weight_bits", bits))}
		p.cols = w.Shape[2] * 8 / max(p.bits, 1)
		if p.block = int(c.int("block_size", 0)); p.block <= 0 {
			p.block = p.cols
		}
		p.check()
		return p
	}
	times := func(p *packed, i int) func(*Tensor, int) *Tensor {
		n := c.in[i].Shape[1]
		return func(rows *Tensor, e int) *Tensor {
			return NewFloats(rows.DataType, []int{rows.Shape[0], n}, p.times(rows.F, rows.Shape[0], e*n, n))
		}
	}
	fc1, fc2 := matrices(2, 3, 11, "fc1"), matrices(5, 6, 12, "fc2")
	m := &mixture{x: c.floats(0), logits: c.floats(1), b1: c.arg(4), b2: c.arg(7), inner: fc2.cols,
		weights: c.arg(14), first: times(fc1, 2), last: times(fc2, 5)}
	shapes := [][]int{{c.in[2].Shape[0], c.in[2].Shape[1], fc1.cols}, {c.in[5].Shape[0], c.in[5].Shape[1], fc2.cols}}
	if c.arg(8) != nil {
		fc3 := matrices(8, 9, 13, "fc3")
		if !slices.Equal(c.in[8].Shape, c.in[2].Shape) || c.int("swiglu_fusion", 0) != 0 {
			fail("gate and up of %v and %v are not two matrices of one shape", c.in[2].Shape, c.in[8].Shape)
		}
		gate, up, b3 := m.first, times(fc3, 8), c.arg(10)
		b1 := m.b1
		m.b1 = nil
		m.first = func(rows *Tensor, e int) *Tensor {
			g, u := gate(rows, e), up(rows, e)
			addBias(g, b1, e)
			addBias(u, b3, e)
			both := newFloats(rows.DataType, []int{g.Shape[0], 2 * g.Shape[1]})
			for i := range g.F {
				both.F[2*i], both.F[2*i+1] = g.F[i], u.F[i]
			}
			return both
		}
		shapes[0][1] *= 2
	}
	m.check(c, shapes[0], shapes[1])
	return m.run(c)
}

// mixture is a mixture of experts. The softmax of the router's logits chooses k experts per token, the first of equal
// ones. The experts' results are summed with the softmax's weights, which are divided by their sum if requested.
type mixture struct {
	x, logits   *Tensor
	weights     *Tensor // the weights of all experts for each token; nil for the softmax
	b1, b2      *Tensor
	inner       int
	first, last func(rows *Tensor, e int) *Tensor // the products of an expert
}

// check fails unless the shapes fit. Matrices have the shape [experts, out, in].
func (m *mixture) check(c *call, fc1, fc2 []int) {
	x, logits := m.x, m.logits
	if x.Rank() < 2 || x.Rank() > 3 || logits.Rank() != 2 {
		fail("tokens are %s and logits %s", x, logits)
	}
	k, act := c.mixture()
	hidden, out := x.Shape[x.Rank()-1], fc1[1]
	tokens, experts := logits.Shape[0], logits.Shape[1]
	if !slices.Equal(fc1, []int{experts, act.parts * m.inner, hidden}) ||
		!slices.Equal(fc2, []int{experts, hidden, m.inner}) ||
		m.b1 != nil && !slices.Equal(m.b1.Shape, []int{experts, out}) ||
		m.b2 != nil && !slices.Equal(m.b2.Shape, []int{experts, hidden}) ||
		m.weights != nil && !slices.Equal(m.weights.Shape, logits.Shape) ||
		tokens*hidden != x.Len() || k < 1 || k > experts {
		fail("%d of %d experts, and weights of %v and %v for a hidden size of %d", k, experts, fc1, fc2, hidden)
	}
}

func (m *mixture) run(c *call) []*Tensor {
	k, act := c.mixture()
	x, experts, hidden, inner := m.x, m.logits.Shape[1], m.x.Shape[m.x.Rank()-1], m.inner
	routes := m.route(experts, k, c.int("normalize_routing_weights", 0) != 0)
	y := make([]float64, x.Len())
	for e := range experts {
		var rows []float64
		for _, r := range routes[e] {
			rows = append(rows, x.F[r.token*hidden:(r.token+1)*hidden]...)
		}
		if len(rows) == 0 {
			continue
		}
		h := m.first(NewFloats(x.DataType, []int{len(routes[e]), hidden}, rows), e)
		addBias(h, m.b1, e)
		a := newFloats(x.DataType, []int{len(routes[e]), inner})
		for i := range a.F {
			a.F[i] = act.of(h.F[i/inner*inner*act.parts:], i%inner, inner)
		}
		o := m.last(a, e)
		addBias(o, m.b2, e)
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

// route returns the tokens of each expert.
func (m *mixture) route(experts, k int, normalize bool) [][]routedToken {
	routes := make([][]routedToken, experts)
	for token := range m.logits.Len() / experts {
		row := m.logits.F[token*experts : (token+1)*experts]
		order := upTo(experts)
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		weight := func(e int) float64 { return math.Exp(row[e] - row[order[0]]) }
		if m.weights != nil {
			weight = func(e int) float64 { return m.weights.F[token*experts+e] }
		}
		total, summed := 0.0, order
		if normalize {
			summed = order[:k]
		}
		for _, e := range summed {
			total += weight(e)
		}
		if m.weights != nil && !normalize {
			total = 1
		}
		for _, e := range order[:k] {
			routes[e] = append(routes[e], routedToken{token, weight(e) / total})
		}
	}
	return routes
}

// expert multiplies rows with the matrix of an expert, stored as [out, in].
func expert(rows, weights *Tensor, e int) *Tensor {
	v, ok := weights.view().pushTo(1)
	if !ok {
		v, _ = try(weights.Dense()).view().pushTo(1)
	}
	w := viewed(weights.DataType, v.cut(0, e, 1, 1).reshape(weights.Shape[1:]))
	return matmul(rows, w.swapLast())
}

// addBias adds an expert's bias, a row of bias, to all rows.
func addBias(rows, bias *Tensor, e int) {
	if bias == nil {
		return
	}
	b, n := try(bias.Dense()), rows.Shape[1]
	for i := range rows.F {
		rows.F[i] += b.F[e*n+i%n]
	}
}

// expertActivation computes one element from parts elements of a row of the first product.
type expertActivation struct {
	parts int
	of    func(row []float64, i, inner int) float64
}

// mixture reads the attributes. Gates come first, interleaved with up or as a block (fusion 2).
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
		fail("the sparse mixer is not supported")
	}
	if f := single[name]; f != nil {
		return k, expertActivation{1, func(row []float64, i, _ int) float64 { return f(row[i]) }}
	}
	fusion := c.int("swiglu_fusion", 0)
	if name != "swiglu" || fusion != 1 && fusion != 2 && c.arg(8) == nil {
		fail("activation %q with a fusion of %d is not supported", name, fusion)
	}
	return k, expertActivation{2, func(row []float64, i, inner int) float64 {
		gate, up := row[2*i:], row[2*i+1:]
		if fusion == 2 {
			gate, up = row[i:], row[inner+i:]
		}
		g, u := math.Min(gate[0], limit), math.Max(math.Min(up[0], limit), -limit)
		return g * sigmoid(alpha*g) * (u + beta)
	}}
}
