package checkpoints

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Grouped is a decoder with grouped-query attention, like Llama and Qwen3, and a cache.
type Grouped struct {
	Layers, Hidden, Inner  int64
	Heads, KeyHeads, Width int64 // of attention
	Vocabulary             int64
	Theta                  float64
	HeadNorms              bool  // queries and keys are normalized
	Experts, Chosen        int64 // 0 if the MLPs are dense; Inner is the width of an expert
}

var (
	// Llama8B has the dimensions of Llama-3-8B.
	Llama8B = Grouped{Layers: 32, Hidden: 4096, Inner: 14336, Heads: 32, KeyHeads: 8, Width: 128, Vocabulary: 128256,
		Theta: 500000}
	// Qwen30B has the dimensions of Qwen3-30B-A3B.
	Qwen30B = Grouped{Layers: 48, Hidden: 2048, Inner: 768, Heads: 32, KeyHeads: 4, Width: 128, Vocabulary: 151936,
		Theta: 1000000, HeadNorms: true, Experts: 128, Chosen: 8}
)

// Products returns the number of matrices that a token is multiplied with. An expert stack counts as one matrix, and
// the router does not count.
func (c Grouped) Products() int64 {
	each := int64(7)
	if c.Experts > 0 {
		each = 4 + 2
	}
	return c.Layers*each + 1
}

// Build returns the model, with bfloat16 weights under Hugging Face's names.
func (c Grouped) Build() *Model {
	d := newCachedDecoder(1e-5, c.Layers, c.KeyHeads, c.Width)
	x := d.embedded(c.Vocabulary, c.Hidden)
	cos, sin := d.angles(c.Theta, c.Width)
	mask := d.mask(0)
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		h := d.norm(layer+"input_layernorm", x, c.Hidden)
		x = d.Op("Add", x, c.attention(d, layer+"self_attn.", h, cos, sin, mask))
		h = d.norm(layer+"post_attention_layernorm", x, c.Hidden)
		if c.Experts > 0 {
			h = c.mixture(d, layer+"mlp.", h)
		} else {
			gate := d.linear(layer+"mlp.gate_proj", h, c.Inner, c.Hidden, false)
			up := d.linear(layer+"mlp.up_proj", h, c.Inner, c.Hidden, false)
			h = d.linear(layer+"mlp.down_proj", d.gated(gate, up), c.Hidden, c.Inner, false)
		}
		x = d.Op("Add", x, h)
	}
	return d.finish(x, c.Vocabulary, c.Hidden)
}

func (c Grouped) attention(d *decoder, module string, x, cos, sin, mask *onnx.Value) *onnx.Value {
	axis := onnx.IntAttr("axis", -1)
	project := func(name string, heads int64) *onnx.Value {
		return d.heads(d.linear(module+name+"_proj", x, heads*c.Width, c.Hidden, false), c.Width)
	}
	rotated := func(name string, heads int64) *onnx.Value {
		v := project(name, heads)
		if c.HeadNorms {
			v = d.norm(module+name+"_norm", v, c.Width)
		}
		halves := d.Ops(2, "Split", v, axis, onnx.IntAttr("num_outputs", 2))
		return d.rotated(halves[0], halves[1], cos, sin)
	}
	shared := func(v *onnx.Value) *onnx.Value { // by the query heads of a group
		wide := d.Op("Expand", d.Op("Unsqueeze", v, []int64{2}), d.Op("Concat", d.batch,
			[]int64{c.KeyHeads, c.Heads / c.KeyHeads}, d.total, []int64{c.Width}, onnx.IntAttr("axis", 0)))
		return d.Op("Reshape", wide, d.Op("Concat", d.batch, []int64{c.Heads}, d.total, []int64{c.Width},
			onnx.IntAttr("axis", 0)))
	}
	q := rotated("q", c.Heads)
	k, v := shared(d.cached(rotated("k", c.KeyHeads))), shared(d.cached(project("v", c.KeyHeads)))
	scores := d.Op("MatMul", q, d.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	scores = d.Op("Add", d.Op("Mul", scores, 1/math.Sqrt(float64(c.Width))), mask)
	mixed := d.joined(d.Op("MatMul", d.Op("Softmax", scores, axis), v))
	return d.linear(module+"o_proj", mixed, c.Hidden, c.Heads*c.Width, false)
}

func (c Grouped) mixture(d *decoder, module string, x *onnx.Value) *onnx.Value {
	tokens, back := d.rows(x, c.Hidden)
	d.store(bfloat16(module+"gate.weight", 0, 1/math.Sqrt(float64(c.Hidden)), c.Experts, c.Hidden))
	logits := d.Op("Gemm", tokens, d.parameter(module+"gate.weight", c.Experts, c.Hidden), onnx.IntAttr("transB", 1))
	top := d.Ops(2, "TopK", d.Op("Softmax", logits, onnx.IntAttr("axis", -1)), []int64{c.Chosen})
	shares := d.Op("Div", top[0], d.Op("ReduceSum", top[0], []int64{-1}, onnx.IntAttr("keepdims", 1)))
	for e := range c.Experts {
		expert := fmt.Sprintf("%sexperts.%d.", module, e)
		for _, name := range []string{"gate", "up"} {
			d.store(bfloat16(expert+name+"_proj.weight", 0, 1/math.Sqrt(float64(c.Hidden)), c.Inner, c.Hidden))
		}
		d.store(bfloat16(expert+"down_proj.weight", 0, 1/math.Sqrt(float64(c.Inner)), c.Hidden, c.Inner))
	}
	return back(d.gatedExperts(module, tokens, shares, top[1], c.Experts, c.Chosen, c.Hidden, c.Inner))
}

// GGUF returns other weights for the model, as llama.cpp's conversion to Q4_0 stores them.
func (c Grouped) GGUF() (metadata map[string]any, list []Tensor) {
	architecture := "llama"
	if c.Experts > 0 {
		architecture = "qwen3moe"
	}
	metadata = map[string]any{"general.architecture": architecture,
		architecture + ".attention.head_count":    int(c.Heads),
		architecture + ".attention.head_count_kv": int(c.KeyHeads)}
	list = append(list, q40("token_embd.weight", c.Vocabulary, c.Hidden), q40("output.weight", c.Vocabulary, c.Hidden),
		float32s("output_norm.weight", 1, 0.1, c.Hidden))
	for i := range c.Layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
		list = append(list, float32s(name("attn_norm"), 1, 0.1, c.Hidden), float32s(name("ffn_norm"), 1, 0.1, c.Hidden),
			q40(name("attn_q"), c.Heads*c.Width, c.Hidden), q40(name("attn_k"), c.KeyHeads*c.Width, c.Hidden),
			q40(name("attn_v"), c.KeyHeads*c.Width, c.Hidden), q40(name("attn_output"), c.Hidden, c.Heads*c.Width))
		if c.HeadNorms {
			list = append(list, float32s(name("attn_q_norm"), 1, 0.1, c.Width),
				float32s(name("attn_k_norm"), 1, 0.1, c.Width))
		}
		if c.Experts == 0 {
			list = append(list, q40(name("ffn_gate"), c.Inner, c.Hidden), q40(name("ffn_up"), c.Inner, c.Hidden),
				q40(name("ffn_down"), c.Hidden, c.Inner))
			continue
		}
		list = append(list, float32s(name("ffn_gate_inp"), 0, 1/math.Sqrt(float64(c.Hidden)), c.Experts, c.Hidden),
			q40(name("ffn_gate_exps"), c.Experts, c.Inner, c.Hidden),
			q40(name("ffn_up_exps"), c.Experts, c.Inner, c.Hidden),
			q40(name("ffn_down_exps"), c.Experts, c.Hidden, c.Inner))
	}
	return metadata, list
}
