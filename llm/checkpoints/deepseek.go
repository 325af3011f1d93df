package checkpoints

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// DeepSeek is a decoder like DeepSeek-V3: latent attention, experts chosen by groups, a shared expert, and nearly every
// matrix in FP8.
type DeepSeek struct {
	Layers, Dense                     int64 // the first Dense layers have no mixture
	Experts, Chosen                   int64
	Groups, ChosenGroups              int64
	Hidden, DenseInner, Inner         int64
	Heads, QueryRank, KeyRank         int64
	Plain, Rotated, Value, Vocabulary int64 // channels of a head
}

// DeepSeekV3 has the dimensions of DeepSeek-V3.
var DeepSeekV3 = DeepSeek{Layers: 61, Dense: 3, Experts: 256, Chosen: 8, Groups: 8, ChosenGroups: 4, Hidden: 7168,
	DenseInner: 18432, Inner: 2048, Heads: 128, QueryRank: 1536, KeyRank: 512, Plain: 128, Rotated: 64, Value: 128,
	Vocabulary: 129280}

// Build returns the model.
func (c DeepSeek) Build() *Model {
	d := newDecoder(1e-6)
	x := d.embedded(c.Vocabulary, c.Hidden)
	cos, sin := d.angles(10000, c.Rotated)
	mask := d.mask(0)
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		h := d.norm(layer+"input_layernorm", x, c.Hidden)
		x = d.Op("Add", x, c.attention(d, layer+"self_attn.", h, cos, sin, mask))
		h = d.norm(layer+"post_attention_layernorm", x, c.Hidden)
		if i < c.Dense {
			h = c.mlp(d, layer+"mlp.", h, c.DenseInner)
		} else {
			h = d.Op("Add", c.mixture(d, layer+"mlp.", h), c.mlp(d, layer+"mlp.shared_experts.", h, c.Inner))
		}
		x = d.Op("Add", x, h)
	}
	return d.finish(x, c.Vocabulary, c.Hidden)
}

func (c DeepSeek) attention(d *decoder, module string, x, cos, sin, mask *onnx.Value) *onnx.Value {
	axis := onnx.IntAttr("axis", -1)
	split := func(v *onnx.Value, a, b int64) (first, second *onnx.Value) {
		parts := d.Ops(2, "Split", v, []int64{a, b}, axis)
		return parts[0], parts[1]
	}
	rotated := func(v *onnx.Value) *onnx.Value { // neighbors
		every := func(first int64) *onnx.Value {
			return d.Op("Slice", v, []int64{first}, []int64{math.MaxInt64}, []int64{3}, []int64{2})
		}
		return d.rotated(every(0), every(1), cos, sin)
	}
	q := d.norm(module+"q_a_layernorm", d.linear(module+"q_a_proj", x, c.QueryRank, c.Hidden, true), c.QueryRank)
	q = d.heads(d.linear(module+"q_b_proj", q, c.Heads*(c.Plain+c.Rotated), c.QueryRank, true), c.Plain+c.Rotated)
	qPlain, qTurned := split(q, c.Plain, c.Rotated)
	latent, kTurned := split(d.linear(module+"kv_a_proj_with_mqa", x, c.KeyRank+c.Rotated, c.Hidden, true), c.KeyRank,
		c.Rotated)
	latent = d.norm(module+"kv_a_layernorm", latent, c.KeyRank)
	both := d.heads(d.linear(module+"kv_b_proj", latent, c.Heads*(c.Plain+c.Value), c.KeyRank, true), c.Plain+c.Value)
	kPlain, v := split(both, c.Plain, c.Value)
	kTurned = d.Op("Expand", rotated(d.heads(kTurned, c.Rotated)), []int64{1, c.Heads, 1, 1})
	q = d.Op("Concat", qPlain, rotated(qTurned), axis)
	k := d.Op("Concat", kPlain, kTurned, axis)
	scores := d.Op("MatMul", q, d.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	scores = d.Op("Add", d.Op("Mul", scores, 1/math.Sqrt(float64(c.Plain+c.Rotated))), mask)
	mixed := d.joined(d.Op("MatMul", d.Op("Softmax", scores, axis), v))
	return d.linear(module+"o_proj", mixed, c.Hidden, c.Heads*c.Value, true)
}

func (c DeepSeek) mlp(d *decoder, module string, x *onnx.Value, inner int64) *onnx.Value {
	gate := d.linear(module+"gate_proj", x, inner, c.Hidden, true)
	up := d.linear(module+"up_proj", x, inner, c.Hidden, true)
	return d.linear(module+"down_proj", d.gated(gate, up), c.Hidden, inner, true)
}

func (c DeepSeek) mixture(d *decoder, module string, x *onnx.Value) *onnx.Value {
	tokens, back := d.rows(x, c.Hidden)
	shares, ids := c.router(d, module, tokens)
	for e := range c.Experts {
		expert := fmt.Sprintf("%sexperts.%d.", module, e)
		d.store(fp8(expert+"gate_proj.weight", c.Inner, c.Hidden)...)
		d.store(fp8(expert+"up_proj.weight", c.Inner, c.Hidden)...)
		d.store(fp8(expert+"down_proj.weight", c.Hidden, c.Inner)...)
	}
	return back(d.gatedExperts(module, tokens, shares, ids, c.Experts, c.Chosen, c.Hidden, c.Inner))
}

// router chooses groups by their two best experts, then experts within the groups.
func (c DeepSeek) router(d *decoder, module string, tokens *onnx.Value) (shares, ids *onnx.Value) {
	each := c.Experts / c.Groups
	last := onnx.IntAttr("axis", -1)
	keep := func(yes int64) *onnx.Attribute { return onnx.IntAttr("keepdims", yes) }
	d.store(bfloat16(module+"gate.weight", 0, 1/math.Sqrt(float64(c.Hidden)), c.Experts, c.Hidden))
	scores := d.Op("Sigmoid", d.Op("Gemm", tokens, d.parameter(module+"gate.weight", c.Experts, c.Hidden),
		onnx.IntAttr("transB", 1)))
	corrected := d.Op("Add", scores, d.vector(module+"gate.e_score_correction_bias", 0, c.Experts))
	two := d.Ops(2, "TopK", d.Op("Reshape", corrected, []int64{-1, c.Groups, each}), []int64{2}, last)
	groups := d.Op("ReduceSum", two[0], []int64{-1}, keep(0))
	chosen := d.Ops(2, "TopK", groups, []int64{c.ChosenGroups}, last)
	one := onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{1}))
	marks := d.Op("ScatterElements", d.Op("Expand", 0.0, d.Op("Shape", groups)), chosen[1],
		d.Op("ConstantOfShape", d.Op("Shape", chosen[1]), one), onnx.IntAttr("axis", 1))
	marks = d.Op("Reshape", d.Op("Expand", d.Op("Unsqueeze", marks, []int64{-1}), []int64{1, c.Groups, each}),
		[]int64{-1, c.Experts})
	marks = d.Op("Cast", marks, onnx.IntAttr("to", int64(onnx.Bool)))
	left := d.Op("Where", d.Op("Not", marks), math.Inf(-1), corrected)
	ids = d.Ops(2, "TopK", left, []int64{c.Chosen}, last)[1]
	shares = d.Op("GatherElements", scores, ids, onnx.IntAttr("axis", 1))
	shares = d.Op("Div", shares, d.Op("ReduceSum", shares, []int64{-1}, keep(1)))
	return d.Op("Mul", shares, 2.5), ids
}
