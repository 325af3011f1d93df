package attention

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var linearOps = map[string]op.Def{
	"LinearAttention":               op.Arith(3, opLinearAttention),
	"com.microsoft:LinearAttention": op.Arith(3, opLinearAttention),
	"com.microsoft:GatedDeltaNet":   op.Arith(1, opGatedDeltaNet),
}

// linearAttention is one call of LinearAttention with its heads unpacked.
type linearAttention struct {
	q, k, v     *tensor.Tensor // (batch, heads, tokens, head size)
	decay, beta []float64      // (batch, heads of v, tokens, head size of q, or 1 for beta); nil: not in the rule
	state       *tensor.Tensor // (batch, heads of v, head size of q, head size of v)
	scale       float64
}

// gates reads decay and beta, which must be there if and only if the update rule has them.
func (a *linearAttention) gates(c *op.Call, read func(i, n int) []float64) {
	rule := c.Str("update_rule", "gated_delta")
	gated, delta := rule == "gated" || rule == "gated_delta", rule == "delta" || rule == "gated_delta"
	if !gated && !delta && rule != "linear" || gated != (c.Arg(4) != nil) || delta != (c.Arg(5) != nil) {
		tensor.Fail("update_rule is %q, with decay %s and beta %s", rule, c.Arg(4), c.Arg(5))
	}
	if gated {
		a.decay = read(4, a.q.Shape[3])
	}
	if delta {
		a.beta = read(5, 1)
	}
	if a.scale = c.Float("scale", 0); a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(a.q.Shape[3]))
	}
}

// run returns the rows (batch, heads, tokens, head size of v) and leaves the last state in a.state. Each token decays
// the state (gated), corrects it (delta), adds its key and value, and reads it with its query. onnxruntime's ops also
// allow more states than keys or queries.
func (a *linearAttention) run() *tensor.Tensor {
	batch, qh, steps, dk := a.q.Shape[0], a.q.Shape[1], a.q.Shape[2], a.q.Shape[3]
	kh, kvh, dv := a.k.Shape[1], a.v.Shape[1], a.v.Shape[3]
	heads := max(qh, kvh)
	y := tensor.ZeroFloats(a.q.DataType, []int{batch, heads, steps, dv})
	for h := range batch * kvh {
		s := a.state.F[h*dk*dv : (h+1)*dk*dv]
		of := h/kvh*kh + h%kvh*kh/kvh // the head of the keys
		for t := range steps {
			at := h*steps + t
			if a.decay != nil {
				for i := range s {
					s[i] *= math.Exp(a.decay[at*dk+i/dv])
				}
			}
			from := of*steps + t
			key, val := a.k.F[from*dk:(from+1)*dk], slices.Clone(a.v.F[at*dv:(at+1)*dv])
			if a.beta != nil {
				for i, x := range s {
					val[i%dv] -= x * key[i/dv]
				}
				for j := range val {
					val[j] *= a.beta[at]
				}
			}
			for i := range s {
				s[i] += key[i/dv] * val[i%dv]
			}
			for g := range heads / kvh {
				o := h%kvh*(heads/kvh) + g
				query, row := (h/kvh*qh+o*qh/heads)*steps+t, (h/kvh*heads+o)*steps+t
				for i, x := range s {
					y.F[row*dv+i%dv] += a.scale * a.q.F[query*dk+i/dv] * x
				}
			}
		}
	}
	return y
}

// opLinearAttention (opset 27) keeps a state of key × value size per head.
func opLinearAttention(c *op.Call) []*tensor.Tensor {
	if c.Int("state_window", 0) != 0 {
		tensor.Fail("%w: state_window", op.ErrUnsupported)
	}
	qh, kvh := int(c.Int("q_num_heads", 0)), int(c.Int("kv_num_heads", 0))
	q, keys, v := splitHeads(c, c.Floats(0), qh), c.Floats(1), splitHeads(c, c.Floats(2), kvh)
	batch, steps, dk, dv := q.Shape[0], q.Shape[2], q.Shape[3], v.Shape[3]
	if keys.Rank() != 3 || dk == 0 || keys.Shape[2] < dk {
		tensor.Fail("queries of %v and keys of %v do not fit", q.Shape, keys.Shape)
	}
	kh := keys.Shape[2] / dk
	k := splitHeads(c, keys, kh)
	if q.Rank() != 4 || kvh%kh != 0 || qh%kvh != 0 && kvh%qh != 0 || q.Shape[1] != qh || v.Shape[1] != kvh ||
		k.Shape[0] != batch || v.Shape[0] != batch || k.Shape[2] != steps || v.Shape[2] != steps || k.Shape[3] != dk {
		tensor.Fail("queries of %v, keys of %v and values of %v do not fit", q.Shape, k.Shape, v.Shape)
	}
	a := &linearAttention{q: q, k: k, v: v, state: tensor.ZeroFloats(q.DataType, []int{batch, kvh, dk, dv})}
	a.gates(c, func(i, n int) []float64 { return perStep(c, i, batch, kvh, steps, n) })
	if p := c.Arg(3); p != nil {
		if !slices.Equal(p.Shape, a.state.Shape) || !p.IsFloat() {
			tensor.Fail("a past state of %s, expected %v", p, a.state.Shape)
		}
		a.state.DataType = p.DataType
		copy(a.state.F, p.F)
	}
	return []*tensor.Tensor{unheads(a.run(), 3), a.state}
}

// opGatedDeltaNet is onnxruntime's LinearAttention of tokens with separate heads, (batch, tokens, heads, size) or
// (batch·tokens, heads, size). Its state is float32, (batch, heads of v, head size of v, head size of q).
func opGatedDeltaNet(c *op.Call) []*tensor.Tensor {
	if c.Arg(3) != nil || c.Int("state_update_capacity", 0) != 0 {
		tensor.Fail("%w: sequences of different lengths (cu_seqlens) and captured updates", op.ErrUnsupported)
	}
	past := c.Arg(6)
	if past != nil && (past.Rank() != 4 || !past.IsFloat()) {
		tensor.Fail("initial_state is %s, expected floats of rank 4", past)
	}
	packed := c.Floats(0)
	rank, parts := packed.Rank(), []*tensor.Tensor{packed, c.Arg(1), c.Arg(2)}
	if parts[1] == nil && parts[2] == nil && past != nil && rank > 1 {
		parts, rank = unpackDelta(packed, past), rank+1
	}
	for i, p := range parts {
		if p == nil || !p.IsFloat() || p.Rank() != rank || rank != 3 && rank != 4 || rank == 3 && past == nil ||
			i > 0 && !slices.Equal(p.Shape[:rank-2], parts[0].Shape[:rank-2]) {
			tensor.Fail("query, key and value are %s, %s and %s, and initial_state is %s", parts[0], parts[1], parts[2],
				past)
		}
	}
	batch, steps := parts[0].Shape[0], parts[0].Shape[1]
	if rank == 3 {
		if batch = past.Shape[0]; batch == 0 || parts[0].Shape[0]%batch != 0 {
			tensor.Fail("%d tokens do not fit a batch of %d", parts[0].Shape[0], batch)
		}
		steps = parts[0].Shape[0] / batch
	}
	var of [3]*tensor.Tensor
	for i, p := range parts {
		of[i] = tensor.Transpose(p.WithShape([]int{batch, steps, p.Shape[rank-2], p.Shape[rank-1]}), []int{0, 2, 1, 3})
	}
	a := &linearAttention{q: of[0], k: of[1], v: of[2]}
	qh, kvh, dk, dv := a.q.Shape[1], a.v.Shape[1], a.q.Shape[3], a.v.Shape[3]
	if a.k.Shape[1] != qh || a.k.Shape[3] != dk || qh == 0 || kvh == 0 || kvh%qh != 0 {
		tensor.Fail("queries of %v, keys of %v and values of %v do not fit", a.q.Shape, a.k.Shape, a.v.Shape)
	}
	a.gates(c, func(i, n int) []float64 {
		x, outer := c.Floats(i), append(slices.Clone(parts[0].Shape[:rank-2]), kvh)
		per := 1
		if i == 4 && slices.Equal(x.Shape, append(outer, n)) {
			per = n
		} else if !slices.Equal(x.Shape, outer) {
			tensor.Fail("input %d is %s, expected a number for each of %v", i, x, outer)
		}
		x = activeGate(c, i, x, kvh, per).WithShape([]int{batch, steps, kvh, per})
		return tensor.Transpose(tensor.ExpandTo(x, []int{batch, steps, kvh, n}), []int{0, 2, 1, 3}).F
	})
	if c.Int("qk_l2_norm", 0) != 0 {
		a.q, a.k = unitRows(a.q), unitRows(a.k)
	}
	if a.state = tensor.ZeroFloats(onnx.Float, []int{batch, kvh, dk, dv}); past != nil {
		if !slices.Equal(past.Shape, []int{batch, kvh, dv, dk}) {
			tensor.Fail("initial_state is %s, expected [%d %d %d %d]", past, batch, kvh, dv, dk)
		}
		a.state.F = tensor.Transpose(past, []int{0, 1, 3, 2}).F
	}
	y := tensor.Transpose(a.run(), []int{0, 2, 1, 3})
	return []*tensor.Tensor{y.WithShape(append(slices.Clone(parts[0].Shape[:rank-2]), kvh, dv)),
		tensor.Transpose(a.state, []int{0, 1, 3, 2})}
}

// unpackDelta splits (…, 2·Hq·Dk + Hv·Dv) into queries, keys and values. The state has their sizes.
func unpackDelta(packed, state *tensor.Tensor) []*tensor.Tensor {
	outer, width := packed.Shape[:packed.Rank()-1], packed.Shape[packed.Rank()-1]
	kvh, dv, dk := state.Shape[1], state.Shape[2], state.Shape[3]
	keys := width - kvh*dv
	if dk == 0 || keys <= 0 || keys%(2*dk) != 0 {
		tensor.Fail("query is %s, which does not fit a state of %s", packed, state)
	}
	widths := [][2]int{{keys / 2 / dk, dk}, {keys / 2 / dk, dk}, {kvh, dv}}
	parts, rows, at := make([]*tensor.Tensor, 3), packed.Len()/width, 0
	for i, w := range widths {
		p := tensor.ZeroFloats(packed.DataType, append(slices.Clone(outer), w[0], w[1]))
		n := w[0] * w[1]
		for r := range rows {
			copy(p.F[r*n:(r+1)*n], packed.F[r*width+at:])
		}
		parts[i], at = p, at+n
	}
	return parts
}

// activeGate applies the activation of decay (input 4) or beta in float32. x has n numbers for each of the heads.
func activeGate(c *op.Call, i int, x *tensor.Tensor, heads, n int) *tensor.Tensor {
	name, rate, bias := "gate_activation", c.Arg(7), c.Arg(8)
	if i == 5 {
		name = "beta_activation"
	}
	kind, out := c.Str(name, "none"), tensor.ZeroFloats(onnx.Float, x.Shape)
	of := func(int) (rate, bias float64) { return 1, 0 }
	if i == 4 && kind != "none" {
		if rate == nil || bias == nil || rate.Len() != heads || bias.Len() != heads && bias.Len() != heads*n {
			tensor.Fail("a_log is %s and dt_bias is %s for %d heads", rate, bias, heads)
		}
		of = func(j int) (float64, float64) {
			h := j / n % heads
			if bias.Len() == heads {
				return math.Exp(rate.F[h]), bias.F[h]
			}
			return math.Exp(rate.F[h]), bias.F[j%(heads*n)]
		}
	}
	for j, v := range x.F {
		rate, bias := of(j)
		switch {
		case kind == "none":
			out.F[j] = v
		case i == 5 && kind == "sigmoid":
			out.F[j] = elementwise.Sigmoid(v)
		case i == 4 && (kind == "softplus" || kind == "qwen"):
			out.F[j] = -rate * elementwise.Softplus(v+bias)
		case i == 4 && (kind == "sigmoid" || kind == "kda"):
			out.F[j] = c.Float("gate_lower_bound", -5) * elementwise.Sigmoid(rate*(v+bias))
		default:
			tensor.Fail("%w: %s %q", op.ErrUnsupported, name, kind)
		}
	}
	return out
}

// unitRows divides each head by its length, as qk_l2_norm does.
func unitRows(x *tensor.Tensor) *tensor.Tensor {
	out, n := tensor.ZeroFloats(x.DataType, x.Shape), x.Shape[x.Rank()-1]
	for i := 0; i < len(x.F); i += n {
		sum := 1e-12
		for _, v := range x.F[i : i+n] {
			sum += v * v
		}
		for j, v := range x.F[i : i+n] {
			out.F[i+j] = v / math.Sqrt(sum)
		}
	}
	return out
}

// perStep reads decay or beta, (batch, steps, heads·n) or with one element per head or for all heads, as (batch, heads,
// steps, n).
func perStep(c *op.Call, i, batch, heads, steps, n int) []float64 {
	x := c.Arg(i)
	if x == nil {
		return nil
	}
	if x.Rank() != 3 || !x.IsFloat() || x.Shape[0] != batch || x.Shape[1] != steps {
		tensor.Fail("input %d is %s, expected floats of [%d %d …]", i, x, batch, steps)
	}
	var from []int
	switch x.Shape[2] {
	case heads * n:
		from = []int{batch, steps, heads, n}
	case heads:
		from = []int{batch, steps, heads, 1}
	case 1:
		from = []int{batch, steps, 1, 1}
	default:
		tensor.Fail("input %d is %s, which does not fit %d heads", i, x, heads)
	}
	return tensor.Transpose(tensor.ExpandTo(x.WithShape(from), []int{batch, steps, heads, n}), []int{0, 2, 1, 3}).F
}
