package checkpoints

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// GptOss is a decoder like gpt-oss: attention with sinks and a window in every other layer, and experts in MXFP4 with
// interleaved rows of gate and up.
type GptOss struct {
	Layers, Experts, Chosen int64
	Hidden, Inner           int64
	Heads, KeyHeads, Width  int64 // of attention
	Window                  int64
	Vocabulary              int64
	Cached                  bool // it continues a past
}

// GptOss20B has the dimensions of gpt-oss-20b.
var GptOss20B = GptOss{Layers: 24, Experts: 32, Chosen: 4, Hidden: 2880, Inner: 2880, Heads: 64, KeyHeads: 8, Width: 64,
	Window: 128, Vocabulary: 201088}

// Build returns the model.
func (c GptOss) Build() *Model {
	d := newDecoder(1e-5)
	if c.Cached {
		d = newCachedDecoder(1e-5, c.Layers, c.KeyHeads, c.Width)
	}
	x := d.embedded(c.Vocabulary, c.Hidden)
	cos, sin := d.angles(150000, c.Width)
	masks := []*onnx.Value{d.mask(c.Window), d.mask(0)}
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		h := d.norm(layer+"input_layernorm", x, c.Hidden)
		x = d.Op("Add", x, c.attention(d, layer+"self_attn.", h, cos, sin, masks[i%2]))
		h = d.norm(layer+"post_attention_layernorm", x, c.Hidden)
		x = d.Op("Add", x, c.mixture(d, layer+"mlp.", h))
	}
	return d.finish(x, c.Vocabulary, c.Hidden)
}

func (c GptOss) attention(d *decoder, module string, x, cos, sin, mask *onnx.Value) *onnx.Value {
	axis := onnx.IntAttr("axis", -1)
	project := func(name string, heads int64) *onnx.Value {
		return d.heads(d.biased(module+name, x, heads*c.Width, c.Hidden), c.Width)
	}
	rotated := func(v *onnx.Value) *onnx.Value {
		halves := d.Ops(2, "Split", v, axis, onnx.IntAttr("num_outputs", 2))
		return d.rotated(halves[0], halves[1], cos, sin)
	}
	shared := func(v *onnx.Value) *onnx.Value { // by the query heads of a group
		group := c.Heads / c.KeyHeads
		wide := d.Op("Expand", d.Op("Unsqueeze", v, []int64{2}), d.Op("Concat", d.batch, []int64{c.KeyHeads, group},
			d.total, []int64{c.Width}, onnx.IntAttr("axis", 0)))
		return d.Op("Reshape", wide, d.Op("Concat", d.batch, []int64{c.Heads}, d.total, []int64{c.Width},
			onnx.IntAttr("axis", 0)))
	}
	kept := func(v *onnx.Value) *onnx.Value {
		if c.Cached {
			v = d.cached(v)
		}
		return shared(v)
	}
	q := rotated(project("q_proj", c.Heads))
	k, v := kept(rotated(project("k_proj", c.KeyHeads))), kept(project("v_proj", c.KeyHeads))
	scores := d.Op("Mul", d.Op("MatMul", q, d.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))),
		1/math.Sqrt(float64(c.Width)))
	sinks := d.Op("Expand", d.Op("Reshape", d.vector(module+"sinks", 0, c.Heads), []int64{1, -1, 1, 1}),
		d.Op("Concat", d.batch, []int64{1}, d.sequence, []int64{1}, onnx.IntAttr("axis", 0)))
	all := d.Op("Concat", d.Op("Add", scores, mask), sinks, axis)
	weights := d.Op("Softmax", d.Op("Sub", all, d.Op("ReduceMax", all, []int64{-1})), axis)
	weights = d.Op("Slice", weights, []int64{0}, []int64{-1}, []int64{3}, []int64{1})
	return d.biased(module+"o_proj", d.joined(d.Op("MatMul", weights, v)), c.Hidden, c.Heads*c.Width)
}

func (c GptOss) mixture(d *decoder, module string, x *onnx.Value) *onnx.Value {
	tokens, back := d.rows(x, c.Hidden)
	d.store(bfloat16(module+"router.weight", 0, 1/math.Sqrt(float64(c.Hidden)), c.Experts, c.Hidden))
	logits := d.Op("Gemm", tokens, d.parameter(module+"router.weight", c.Experts, c.Hidden),
		d.vector(module+"router.bias", 0, c.Experts), onnx.IntAttr("transB", 1))
	top := d.Ops(2, "TopK", logits, []int64{c.Chosen})
	stack := func(name string, out, in int64) (weight, bias *onnx.Value) {
		d.store(mxfp4(module+"experts."+name, c.Experts, out, in)...)
		return d.parameter(module+"experts."+name, c.Experts, in, out),
			d.vector(module+"experts."+name+"_bias", 0, c.Experts, out)
	}
	upWeight, upBias := stack("gate_up_proj", 2*c.Inner, c.Hidden)
	downWeight, downBias := stack("down_proj", c.Hidden, c.Inner)
	return back(d.experts(tokens, d.Op("Softmax", top[0], onnx.IntAttr("axis", -1)), top[1], c.Chosen, c.Hidden,
		func(x *onnx.Value, of func(stack *onnx.Value) *onnx.Value) *onnx.Value {
			times := func(x, weight, bias *onnx.Value) *onnx.Value {
				y := d.Op("MatMul", d.Op("Unsqueeze", x, []int64{1}), of(weight))
				return d.Op("Add", d.Op("Squeeze", y, []int64{1}), of(bias))
			}
			both := times(x, upWeight, upBias)
			every := func(first int64) *onnx.Value {
				return d.Op("Slice", both, []int64{first}, []int64{math.MaxInt64}, []int64{-1}, []int64{2})
			}
			gate, up := d.Op("Clip", every(0), nil, 7.0), d.Op("Clip", every(1), -7.0, 7.0)
			gate = d.Op("Mul", gate, d.Op("Sigmoid", d.Op("Mul", gate, 1.702)))
			return times(d.Op("Mul", d.Op("Add", up, 1.0), gate), downWeight, downBias)
		}))
}
