package quantized

import (
	"cmp"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var mixtureOps = map[string]op.Def{
	"com.microsoft:MoE":  op.Arith(3, opMicrosoftMoE),
	"com.microsoft:QMoE": op.Arith(3, opQMoE),
}

// opMicrosoftMoE is onnxruntime's mixture of experts without the separate weights of fc3. It reads the weights expert
// by expert.
func opMicrosoftMoE(c *op.Call) []*tensor.Tensor {
	fc1, fc2 := c.In[2], c.Arg(4)
	if fc2 == nil || c.Arg(6) != nil || c.Arg(7) != nil || fc1.Rank() != 3 || fc2.Rank() != 3 {
		tensor.Fail("ranks, or inputs, that it does not have here")
	}
	m := &mixture{x: tensor.Try(c.In[0].Dense()), logits: tensor.Try(c.In[1].Dense()), b1: c.Arg(3), b2: c.Arg(5),
		inner: fc2.Shape[2],
		first: func(rows *tensor.Tensor, e int) *tensor.Tensor { return expert(rows, fc1, e) },
		last:  func(rows *tensor.Tensor, e int) *tensor.Tensor { return expert(rows, fc2, e) }}
	m.check(c, fc1.Shape, fc2.Shape)
	return m.run(c)
}

// opQMoE is the same with packed elements. It may take the experts' weights separately from the logits that choose the
// experts. Gate and up may be one matrix or two.
func opQMoE(c *op.Call) []*tensor.Tensor {
	if t := c.Str("quant_type", "int"); t != "int" {
		tensor.Fail("experts of %s are not supported", t)
	}
	if c.Arg(14) == nil && c.Int("normalize_routing_weights", 0) == 0 {
		tensor.Fail("normalize_routing_weights is 0: onnxruntime's CPU provider normalizes all the same, CUDA's does " +
			"not")
	}
	if c.Int("weights_prepacked", 0) > 0 {
		tensor.Fail("the weights are prepacked for the kernels of a device, which is not supported")
	}
	bits := c.Int("expert_weight_bits", 4)
	matrices := func(i, scales, zeros int, name string) *packed {
		w := c.Arg(i)
		if w == nil || w.Rank() != 3 || c.Arg(scales) == nil {
			tensor.Fail("input %d is %s: it must be matrices with their scales", i, w)
		}
		p := &packed{codes: w, scales: c.Arg(scales), zeros: c.Arg(zeros), rows: w.Shape[0] * w.Shape[1],
			bits: int(c.Int(name+"_expert_weight_bits", bits))}
		p.cols = w.Shape[2] * 8 / max(p.bits, 1)
		if p.block = int(c.Int("block_size", 0)); p.block <= 0 {
			p.block = p.cols
		}
		p.check()
		return p
	}
	times := func(p *packed, i int) func(*tensor.Tensor, int) *tensor.Tensor {
		n := c.In[i].Shape[1]
		return func(rows *tensor.Tensor, e int) *tensor.Tensor {
			return tensor.NewFloats(rows.DataType, []int{rows.Shape[0], n}, p.times(rows.F, rows.Shape[0], e*n, n))
		}
	}
	fc1, fc2 := matrices(2, 3, 11, "fc1"), matrices(5, 6, 12, "fc2")
	m := &mixture{x: c.Floats(0), logits: c.Floats(1), b1: c.Arg(4), b2: c.Arg(7), inner: fc2.cols,
		weights: c.Arg(14), first: times(fc1, 2), last: times(fc2, 5)}
	shapes := [][]int{{c.In[2].Shape[0], c.In[2].Shape[1], fc1.cols}, {c.In[5].Shape[0], c.In[5].Shape[1], fc2.cols}}
	if c.Arg(8) != nil {
		fc3 := matrices(8, 9, 13, "fc3")
		if !slices.Equal(c.In[8].Shape, c.In[2].Shape) || c.Int("swiglu_fusion", 0) != 0 {
			tensor.Fail("gate and up of %v and %v are not two matrices of one shape", c.In[2].Shape, c.In[8].Shape)
		}
		gate, up, b3 := m.first, times(fc3, 8), c.Arg(10)
		b1 := m.b1
		m.b1 = nil
		m.first = func(rows *tensor.Tensor, e int) *tensor.Tensor {
			g, u := gate(rows, e), up(rows, e)
			addBias(g, b1, e)
			addBias(u, b3, e)
			both := tensor.ZeroFloats(rows.DataType, []int{g.Shape[0], 2 * g.Shape[1]})
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
	x, logits   *tensor.Tensor
	weights     *tensor.Tensor // the weights of all experts for each token; nil for the softmax
	b1, b2      *tensor.Tensor
	inner       int
	first, last func(rows *tensor.Tensor, e int) *tensor.Tensor // the products of an expert
}

// check fails unless the shapes fit. Matrices have the shape [experts, out, in].
func (m *mixture) check(c *op.Call, fc1, fc2 []int) {
	x, logits := m.x, m.logits
	if x.Rank() < 2 || x.Rank() > 3 || logits.Rank() != 2 {
		tensor.Fail("tokens are %s and logits %s", x, logits)
	}
	k, act := readMixture(c)
	hidden, out := x.Shape[x.Rank()-1], fc1[1]
	tokens, experts := logits.Shape[0], logits.Shape[1]
	if !slices.Equal(fc1, []int{experts, act.parts * m.inner, hidden}) ||
		!slices.Equal(fc2, []int{experts, hidden, m.inner}) ||
		m.b1 != nil && !slices.Equal(m.b1.Shape, []int{experts, out}) ||
		m.b2 != nil && !slices.Equal(m.b2.Shape, []int{experts, hidden}) ||
		m.weights != nil && !slices.Equal(m.weights.Shape, logits.Shape) ||
		tokens*hidden != x.Len() || k < 1 || k > experts {
		tensor.Fail("%d of %d experts, and weights of %v and %v for a hidden size of %d", k, experts, fc1, fc2, hidden)
	}
}

func (m *mixture) run(c *op.Call) []*tensor.Tensor {
	k, act := readMixture(c)
	x, experts, hidden, inner := m.x, m.logits.Shape[1], m.x.Shape[m.x.Rank()-1], m.inner
	routes := m.route(experts, k, c.Int("normalize_routing_weights", 0) != 0)
	y := make([]float64, x.Len())
	for e := range experts {
		var rows []float64
		for _, r := range routes[e] {
			rows = append(rows, x.F[r.token*hidden:(r.token+1)*hidden]...)
		}
		if len(rows) == 0 {
			continue
		}
		h := m.first(tensor.NewFloats(x.DataType, []int{len(routes[e]), hidden}, rows), e)
		addBias(h, m.b1, e)
		a := tensor.ZeroFloats(x.DataType, []int{len(routes[e]), inner})
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
	return op.One(tensor.NewFloats(x.DataType, x.Shape, y))
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
		order := tensor.UpTo(experts)
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
func expert(rows, weights *tensor.Tensor, e int) *tensor.Tensor {
	return tensor.MatMul(rows, tensor.SwapLast(tensor.Entry(weights, e)))
}

// addBias adds an expert's bias, a row of bias, to all rows.
func addBias(rows, bias *tensor.Tensor, e int) {
	if bias == nil {
		return
	}
	b, n := tensor.Try(bias.Dense()), rows.Shape[1]
	for i := range rows.F {
		rows.F[i] += b.F[e*n+i%n]
	}
}

// expertActivation computes one element from parts elements of a row of the first product.
type expertActivation struct {
	parts int
	of    func(row []float64, i, inner int) float64
}

// readMixture reads the attributes. Gates come first, interleaved with up or as a block (fusion 2).
func readMixture(c *op.Call) (k int, act expertActivation) {
	single := map[string]func(float64) float64{
		"relu":     func(x float64) float64 { return math.Max(x, 0) },
		"gelu":     elementwise.GeluTanh,
		"silu":     func(x float64) float64 { return x * elementwise.Sigmoid(x) },
		"identity": func(x float64) float64 { return x },
	}
	alpha, beta, limit := c.Float("activation_alpha", 1), c.Float("activation_beta", 0),
		c.Float("swiglu_limit", math.Inf(1))
	name := c.Str("activation_type", "relu")
	k = int(c.Int("k", 1))
	if c.Int("use_sparse_mixer", 0) != 0 {
		tensor.Fail("the sparse mixer is not supported")
	}
	if f := single[name]; f != nil {
		return k, expertActivation{1, func(row []float64, i, _ int) float64 { return f(row[i]) }}
	}
	fusion := c.Int("swiglu_fusion", 0)
	if name != "swiglu" || fusion != 1 && fusion != 2 && c.Arg(8) == nil {
		tensor.Fail("activation %q with a fusion of %d is not supported", name, fusion)
	}
	return k, expertActivation{2, func(row []float64, i, inner int) float64 {
		gate, up := row[2*i:], row[2*i+1:]
		if fusion == 2 {
			gate, up = row[i:], row[inner+i:]
		}
		g, u := math.Min(gate[0], limit), math.Max(math.Min(up[0], limit), -limit)
		return g * elementwise.Sigmoid(alpha*g) * (u + beta)
	}}
}
