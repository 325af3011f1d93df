package linear

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// The inputs of onnxruntime's GatedDeltaNet, in order.
const (
	deltaQuery = iota
	deltaKey
	deltaValue
	deltaLengths
	deltaDecay
	deltaBeta
	deltaState
	deltaLog
	deltaBias
)

// delta is one GatedDeltaNet node. Its heads are an axis.
type delta struct {
	g                     *match.View
	n                     *onnx.Node
	s                     *site.Site
	batch                 int64 // -1: the tokens have an axis for the sequences
	heads, states, dk, dv int64
}

// readGatedDeltaNet makes the fused op compute a GatedDeltaNet node. Its state has the channels of the values first.
func readGatedDeltaNet(g *match.View, n *onnx.Node) (*site.Site, *reason.Reason) {
	refuse := func(text string, args ...any) (*site.Site, *reason.Reason) {
		return nil, reason.New(reason.Other, n, "GatedDeltaNet "+text, args...)
	}
	d := &delta{g: g, n: n, batch: -1}
	switch {
	case n.OutputValue(0) == nil || n.Input(deltaQuery) == nil ||
		(n.Input(deltaKey) == nil) != (n.Input(deltaValue) == nil):
		return refuse("lacks an input or its output")
	case n.Input(deltaLengths) != nil:
		return refuse("has sequences of different lengths (cu_seqlens)")
	case n.AttrInt("state_update_capacity", 0) != 0 || n.OutputValue(2) != nil:
		return refuse("captures updates of its state (state_update_capacity)")
	case !d.sizes():
		return refuse("has heads, or a batch, of unknown sizes")
	}
	d.s = site.New(g, fused.LinearAttentionName, n)
	inputs := make([]*site.Operand, fused.LinearAttentionBeta+1)
	d.rows(inputs)
	if v := n.Input(deltaState); v != nil {
		inputs[fused.LinearAttentionPast] = d.s.Input(fused.NoRole, "past", v).Transpose("past_keys_first", 0, 1, 3, 2)
	}
	var why string
	if inputs[fused.LinearAttentionDecay], why = d.decay(); why != "" {
		return refuse("%s", why)
	}
	if v := n.Input(deltaBeta); v != nil {
		beta := d.s.Input(fused.NoRole, "beta", v).Cast(onnx.Float)
		switch kind := n.AttrString("beta_activation", "none"); kind {
		case "none":
		case "sigmoid":
			beta = beta.Then("Sigmoid", "beta_active", nil)
		default:
			return refuse("has a beta_activation that is not known: %s", kind)
		}
		inputs[fused.LinearAttentionBeta] = d.tokens(beta, "beta", d.states)
	}
	attributes := fused.LinearAttention{QHeads: d.heads, KHeads: d.heads, VHeads: d.states, Scale: scaleOf(n, d.dk)}
	if attributes.L2Norm = n.AttrInt("qk_l2_norm", 0) != 0; attributes.L2Norm {
		attributes.Epsilon = 1e-12 // onnxruntime's
	}
	outputs := computed(d.s, n, attributes, inputs)
	shape := []int64{0, 0, d.states, d.dv}
	if d.batch >= 0 {
		shape = []int64{-1, d.states, d.dv}
	}
	d.s.Output(n.OutputValue(0), outputs[0].With("Reshape", "rows", "rows_shape", shape...))
	if outputs[1] != nil {
		outputs[1].Type = onnx.Float
		d.s.Output(n.OutputValue(1), outputs[1].Transpose("present_values_first", 0, 1, 3, 2))
	}
	return d.s, nil
}

// sizes finds the sizes of the heads, and of the batch if the tokens have no axis for it.
func (d *delta) sizes() bool {
	known := true
	of := func(i, axis int) int64 {
		x, ok := d.g.Facts.Dim(d.n.Input(i), axis)
		known = known && ok && x > 0
		return x
	}
	rank, _ := d.g.Facts.Rank(d.n.Input(deltaQuery))
	if d.n.Input(deltaKey) == nil { // queries, keys and values are packed
		rank++
		if d.n.Input(deltaState) == nil {
			return false
		}
		d.states, d.dv, d.dk = of(deltaState, 1), of(deltaState, 2), of(deltaState, 3)
		width := of(deltaQuery, rank-2) - d.states*d.dv
		if !known || width <= 0 || width%(2*d.dk) != 0 {
			return false
		}
		d.heads = width / 2 / d.dk
	} else {
		d.heads, d.dk = of(deltaQuery, rank-2), of(deltaQuery, rank-1)
		d.states, d.dv = of(deltaValue, rank-2), of(deltaValue, rank-1)
		known = known && of(deltaKey, rank-2) == d.heads && of(deltaKey, rank-1) == d.dk
	}
	if rank == 3 {
		if d.n.Input(deltaState) == nil {
			return false
		}
		d.batch = of(deltaState, 0)
	}
	return known && (rank == 3 || rank == 4) && d.states%d.heads == 0
}

// tokens reshapes an operand to the axes batch, tokens and width. Its heads may be an axis.
func (d *delta) tokens(o *site.Operand, name string, width int64) *site.Operand {
	if d.batch < 0 {
		return o.With("Reshape", name+"_tokens", name+"_shape", 0, 0, width)
	}
	return o.With("Reshape", name+"_tokens", name+"_shape", d.batch, -1, width)
}

// rows sets the operands for queries, keys and values.
func (d *delta) rows(inputs []*site.Operand) {
	names, widths := []string{"q", "k", "v"}, []int64{d.heads * d.dk, d.heads * d.dk, d.states * d.dv}
	if d.n.Input(deltaKey) != nil {
		for i, name := range names {
			inputs[i] = d.tokens(d.s.Input(fused.NoRole, name, d.n.Input(i)), name, widths[i])
		}
		return
	}
	packed := d.tokens(d.s.Input(fused.NoRole, "qkv", d.n.Input(deltaQuery)), "qkv", widths[0]+widths[1]+widths[2])
	axis, from := d.s.Integers("last_axis", 2), int64(0)
	for i, name := range names {
		inputs[i] = packed.Then("Slice", name, []*site.Operand{d.s.Integers(name+"_from", from),
			d.s.Integers(name+"_to", from+widths[i]), axis})
		from += widths[i]
	}
}

// decay returns the logarithm of the factor of the state: the input, or its activation.
func (d *delta) decay() (*site.Operand, string) {
	v := d.n.Input(deltaDecay)
	if v == nil {
		return nil, ""
	}
	rank, ok := d.g.Facts.Rank(v)
	if !ok {
		return nil, "has a decay of unknown rank"
	}
	channels := int64(1)
	if d.batch < 0 && rank == 4 || d.batch >= 0 && rank == 3 {
		channels = d.dk
	}
	x := d.s.Input(fused.NoRole, "decay", v).Cast(onnx.Float)
	kind := d.n.AttrString("gate_activation", "none")
	if kind == "none" {
		return d.tokens(x, "decay", d.states*channels), ""
	}
	log, bias := d.n.Input(deltaLog), d.n.Input(deltaBias)
	if log == nil || bias == nil {
		return nil, "lacks a_log or dt_bias"
	}
	// [heads] and [heads, channels]
	columns := func(name string, v *onnx.Value, n int64) *site.Operand {
		o := d.s.Input(fused.NoRole, name, v)
		if channels == 1 {
			return o
		}
		return o.With("Reshape", name+"_columns", name+"_shape", d.states, n)
	}
	of := channels
	if width, ok := d.g.Facts.Dim(bias, 0); !ok {
		return nil, "has a dt_bias of unknown size"
	} else if rank, _ := d.g.Facts.Rank(bias); rank == 1 && width == d.states {
		of = 1
	}
	x = x.Then("Add", "biased", []*site.Operand{columns("dt_bias", bias, of)})
	rate := columns("a_log", log, 1).Then("Exp", "rate", nil)
	switch kind {
	case "softplus", "qwen":
		x = x.Then("Softplus", "softplus", nil).Then("Mul", "decay_positive", []*site.Operand{rate}).Then("Neg",
			"decay_log", nil)
	case "sigmoid", "kda":
		bound := d.s.Number(float64(d.n.AttrFloat("gate_lower_bound", -5)), onnx.Float)
		x = x.Then("Mul", "scaled", []*site.Operand{rate}).Then("Sigmoid", "sigmoid", nil).Then("Mul", "decay_log",
			[]*site.Operand{bound})
	default:
		return nil, "has a gate_activation that is not known: " + kind
	}
	return d.tokens(x, "decay", d.states*channels), ""
}
