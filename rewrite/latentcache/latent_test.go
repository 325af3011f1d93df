package latentcache_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/latentcache"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// naiveLatent is an export of latent attention that caches the keys and values of all heads.
const naiveLatent = "deepseek3naive-kv-dynamo-fp32"

// converse makes two decoders read the same tokens, a few at a time, each with its own cache, and compares their
// logits.
func converse(t *testing.T, original, m *onnx.Model) {
	t.Helper()
	converseIn(t, original, m, 0, false)
}

// converseIn is converse with buffers for room tokens, filled with NaN, in the second decoder. told is whether it gets
// the number of tokens in them.
func converseIn(t *testing.T, original, m *onnx.Model, room int, told bool) {
	t.Helper()
	pasts := [2]map[string]*reference.Tensor{}
	past := 0
	for _, queries := range []int{3, 1, 4, 1} {
		var logits [2]*reference.Tensor
		for i, model := range []*onnx.Model{original, m} {
			in := rewritetest.DecoderInputs(t, model, 2, queries, past, max(past, room*i))
			if told && i == 1 {
				in["past_length"] = reference.NewInts(onnx.Int64, []int{2}, []int64{int64(past), int64(past)})
				mask := in["attention_mask"]
				longer := prove.NoPadding.Tensor(mask.DataType, []int64{2, int64(room)})
				for b := range 2 {
					copy(longer.I[b*room:], mask.I[b*mask.Shape[1]:(b+1)*mask.Shape[1]])
				}
				in["attention_mask"] = longer
			}
			for name, x := range pasts[i] {
				in[name] = x
			}
			out := rewritetest.Run(t, model, in)
			logits[i], pasts[i] = out["logits"], map[string]*reference.Tensor{}
			for name, x := range out {
				if strings.HasPrefix(name, "present") {
					pasts[i][strings.Replace(name, "present", "past", 1)] = x
				}
			}
		}
		past += queries
		d, scale := prove.Distance(logits[0].F, logits[1].F)
		if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed {
			t.Errorf("%d tokens: logits differ by %g, %g allowed", past, d, allowed)
		}
	}
}

// TestLatentCache makes a decoder cache latents, and compares its results with the original's.
func TestLatentCache(t *testing.T) {
	m, original := rewritetest.ReadModel(t, naiveLatent), rewritetest.ReadModel(t, naiveLatent)
	r := applytest.Apply(t, m, rewrite.Request{LatentCache: true}).Latent
	if r == nil || !slices.Equal(r.Inputs, []string{"past_k0", "past_k1"}) || r.BytesPerToken != 2*20*4 ||
		!slices.Equal(r.Dropped, []string{"past_v0", "past_v1"}) || r.BytesBefore != 2*4*(12+6)*4 ||
		r.Check.Cases != 2*len(latentcache.Trials) || !strings.Contains(r.Text(),
		"160 bytes per token of a sequence, 576") {
		t.Errorf("reported %+v", r)
	}
	var ports []string
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		ports = append(ports, v.Name)
		if typ, _ := v.Type(); strings.Contains(v.Name, "_k") && (typ.Dims[1].Value != 1 || typ.Dims[3].Value != 20) {
			t.Errorf("%q is declared %s", v.Name, typ)
		}
	}
	want := "input_ids attention_mask past_k0 past_k1 logits present_k0 present_k1"
	if strings.Join(ports, " ") != want {
		t.Errorf("inputs and outputs are %q", ports)
	}
	if ops := rewritetest.CountOps(m); ops[fused.LatentAttentionName] != 2 || ops[fused.AttentionName] != 0 {
		t.Errorf("there are %v", ops)
	}
	rewritetest.CheckOrder(t, m)
	converse(t, original, m)
}

// TestLatentBuffers makes a decoder cache latents in buffers of variable and of fixed length, whose tokens the mask
// counts, or with a length per sequence.
func TestLatentBuffers(t *testing.T) {
	const room = 12
	for name, cache := range map[string]staticcache.Options{"any": {},
		"fixed": {Length: room},
		"rows":  {RowLengths: true}} {
		t.Run(name, func(t *testing.T) {
			m, original := rewritetest.ReadModel(t, naiveLatent), rewritetest.ReadModel(t, naiveLatent)
			r := applytest.Apply(t, m, rewrite.Request{StaticCache: &cache, LatentCache: true}).Cache
			if r == nil || !slices.Equal(r.Inputs, []string{"past_k0", "past_k1"}) || r.BytesPerToken != 2*20*4 ||
				r.Check.Cases < 8 {
				t.Errorf("reported %+v", r)
			}
			for _, name := range r.Inputs {
				typ, _ := m.Graph.Value(name).Type()
				if d := typ.Dims[prove.CacheAxis]; typ.Dims[3].Value != 20 || d.Param != "cache_length" &&
					d.Value != room {
					t.Errorf("%q is declared %s", name, typ)
				}
			}
			rewritetest.CheckOrder(t, m)
			converseIn(t, original, m, room, name == "rows")
		})
	}
}

// insert inserts a node between a value and its readers. operands are its other inputs.
func insert(g *onnx.Graph, name, op string, operands []*onnx.Value, attrs ...*onnx.Attribute) {
	v := g.Value(name)
	readers := slices.Clone(v.Uses())
	out := g.NewValue(name + "_changed")
	g.AddNode(op, append([]*onnx.Value{v}, operands...), []*onnx.Value{out}, attrs...)
	for _, use := range readers {
		if !use.Node.Is("Shape") {
			use.Node.SetInput(use.Index, out)
		}
	}
	if err := g.Sort(); err != nil {
		panic(err)
	}
}

// headNumbers returns 1, 2, 3 and 4, one number per head.
func headNumbers(g *onnx.Graph) []*onnx.Value {
	return []*onnx.Value{g.AddInitializer(onnx.NewFloat32s("by_head", []int64{1, 4, 1, 1}, []float32{1, 2, 3, 4}))}
}

// otherHeads selects heads in another order.
func otherHeads(g *onnx.Graph) []*onnx.Value {
	return []*onnx.Value{g.AddInitializer(onnx.NewInt64s("heads", []int64{1, 0, 3, 2}))}
}

// TestLatentCacheSpelled: attention is found in other spellings of the weights and the shared channels.
func TestLatentCacheSpelled(t *testing.T) {
	for name, change := range map[string]func(g *onnx.Graph){
		"weights as torch stores them": func(g *onnx.Graph) {
			n := g.Value("linear_3").Producer
			w, err := reference.FromONNX(n.Inputs[1].Constant())
			if err != nil {
				t.Fatal(err)
			}
			turned := make([]float32, 0, len(w.F))
			for out := range w.Shape[1] {
				for in := range w.Shape[0] {
					turned = append(turned, float32(w.F[in*w.Shape[1]+out]))
				}
			}
			v := g.AddInitializer(onnx.NewFloat32s("turned", []int64{int64(w.Shape[1]), int64(w.Shape[0])}, turned))
			out := g.NewValue("turned_back")
			g.AddNode("Transpose", []*onnx.Value{v}, []*onnx.Value{out}, onnx.IntsAttr("perm", []int64{1, 0}))
			n.SetInput(1, out)
		},
		"a read of shapes": func(g *onnx.Graph) {
			for _, name := range []string{"past_k0", "past_v1", "present_k1", "present_v0"} {
				out := g.NewValue("shape_of_" + name)
				out.SetType(onnx.Type{DataType: onnx.Int64})
				g.AddNode("Shape", []*onnx.Value{g.Value(name)}, []*onnx.Value{out})
				g.AddOutput(out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, original := rewritetest.ReadModel(t, naiveLatent), rewritetest.ReadModel(t, naiveLatent)
			for _, m := range []*onnx.Model{m, original} {
				change(m.Graph)
				if err := m.Graph.Sort(); err != nil {
					t.Fatal(err)
				}
			}
			applytest.Apply(t, m, rewrite.Request{LatentCache: true})
			converse(t, original, m)
			want := rewritetest.Run(t, original, rewritetest.DecoderInputs(t, original, 2, 3, 4, 4))
			for name, got := range rewritetest.Run(t, m, rewritetest.DecoderInputs(t, m, 2, 3, 4, 4)) {
				if strings.HasPrefix(name, "shape_of_") && !slices.Equal(got.I, want[name].I) {
					t.Errorf("%s is %v, want %v", name, got.I, want[name].I)
				}
			}
		})
	}
}

// latentCached returns attention with a cache of latents in two pasts, as in current transformers: its keys and values
// are computed from the latents of all tokens. With turned, the keys are transposed for the product.
func latentCached(t *testing.T, turned bool) *onnx.Model {
	b := rewritetest.New(t, 20, onnx.Float)
	q, c := b.In("q", "batch", 4, "new", 12), b.In("c", "batch", 1, "new", 16)
	pe := b.In("pe", "batch", 1, "new", 4)
	latents := b.Op("Concat", b.In("past_k", "batch", 1, "past", 16), c, onnx.IntAttr("axis", 2))
	shared := b.Op("Concat", b.In("past_v", "batch", 1, "past", 4), pe, onnx.IntAttr("axis", -2))
	product := b.Op("MatMul", b.Op("Squeeze", latents, b.Ints(1)), b.Weight("kv_b", 16, 4*14))
	rows := b.Op("Reshape", product, b.Ints(0, 0, 4, 14))
	heads := b.Op("Transpose", rows, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	parts := b.Ops(2, "Split", heads, b.Ints(8, 6), onnx.IntAttr("axis", 3))
	all := b.Op("Expand", shared, b.Ints(1, 4, 1, 1))
	turn := onnx.IntsAttr("perm", []int64{0, 1, 3, 2})
	var keys *onnx.Value
	if turned {
		keys = b.Op("Concat", b.Op("Transpose", parts[0], turn), b.Op("Transpose", all, turn), onnx.IntAttr("axis", 2))
	} else {
		keys = b.Op("Transpose", b.Op("Concat", parts[0], all, onnx.IntAttr("axis", 3)), turn)
	}
	scores := b.Op("Mul", b.Op("MatMul", q, keys), b.Scalar(onnx.Float, 0.02))
	b.Out(b.Op("MatMul", b.Op("Softmax", scores, onnx.IntAttr("axis", -1)), parts[1]), "batch", 4, "new", 6)
	for i, v := range []*onnx.Value{latents, shared} {
		b.Out(v, "batch", 1, "all", []int{16, 4}[i])
	}
	return b.Model
}

// TestLatentCacheOfLatents merges the two caches with a layer's latents into one, and the computation of keys and
// values into attention to latents.
func TestLatentCacheOfLatents(t *testing.T) {
	for _, turned := range []bool{false, true} {
		m, original := latentCached(t, turned), latentCached(t, turned)
		r := applytest.Apply(t, m, rewrite.Request{LatentCache: true}).Latent
		if r.BytesPerToken != 20*4 || r.BytesBefore != 20*4 || len(m.Graph.Inputs) != 4 || len(m.Graph.Outputs) != 2 {
			t.Errorf("reported %+v, %d inputs, %d outputs", r, len(m.Graph.Inputs), len(m.Graph.Outputs))
		}
		if ops := rewritetest.CountOps(m); ops[fused.LatentAttentionName] != 1 || ops["MatMul"] != 0 ||
			ops["Concat"] != 0 {
			t.Errorf("there are %v", ops)
		}
		for _, past := range []int64{0, 5} {
			in := map[string]*reference.Tensor{}
			for i, v := range original.Graph.Inputs {
				shape := []int64{2, 1, 3, []int64{12, 16, 4, 16, 4}[i]}
				if i == 0 {
					shape[1] = 4
				} else if i > 2 {
					shape[2] = past
				}
				var err error
				if in[v.Name], err = prove.MakeInput(prove.Normal, i, onnx.Float, shape); err != nil {
					t.Fatal(err)
				}
			}
			want := rewritetest.Run(t, original, in)
			var joined []float64
			for i := range 2 * int(past) {
				joined = append(append(joined, in["past_k"].F[16*i:16*i+16]...), in["past_v"].F[4*i:4*i+4]...)
			}
			in["past_k"] = reference.NewFloats(onnx.Float, []int{2, 1, int(past), 20}, joined)
			delete(in, "past_v")
			got := rewritetest.Run(t, m, in)
			name := m.Graph.Outputs[0].Name
			d, scale := prove.Distance(want[name].F, got[name].F)
			if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed || scale == 0 {
				t.Errorf("turned %v, %d tokens: differs by %g, %g allowed", turned, past, d, allowed)
			}
		}
	}
	computed := latentCached(t, false)
	insert(computed.Graph, "past_k", "Neg", nil)
	_, err := rewrite.Apply(computed, rewrite.Request{AssumeAvailable: true, LatentCache: true})
	if err == nil || !strings.Contains(err.Error(), "its past, is not an input of the model") {
		t.Errorf("a computed past: %v", err)
	}
	m := latentCached(t, false)
	other := m.Graph.AddInput("past_w", typeOf(m.Graph.Value("past_v")))
	joined := m.Graph.NewValue("joined")
	m.Graph.AddNode("Concat", []*onnx.Value{other, m.Graph.Value("pe")}, []*onnx.Value{joined}, onnx.IntAttr("axis", 2))
	m.Graph.AddOutput(joined)
	_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, LatentCache: true})
	if err == nil || !strings.Contains(err.Error(), `input "past_w" is not a cache of latent attention`) {
		t.Errorf("another cache: %v", err)
	}
	_, err = rewrite.Apply(latentCached(t, false), rewrite.Request{AssumeAvailable: true,
		StaticCache: &staticcache.Options{}})
	if err == nil || !strings.Contains(err.Error(), "if these are latents, add --mla-cache") {
		t.Errorf("latents in buffers: %v", err)
	}
}

func typeOf(v *onnx.Value) onnx.Type {
	t, _ := v.Type()
	return t
}

// TestLatentCacheIsRefused changes decoders so that keys and values do not depend on latents in the known way, or not
// every cache can hold them. The errors name the obstacle.
func TestLatentCacheIsRefused(t *testing.T) {
	const notShared = "its keys are not 8 channels"
	const rotated, nope, values = "expand_1", "split_with_sizes_2_split_0", "split_with_sizes_2_split_1"
	for name, test := range map[string]struct {
		change func(g *onnx.Graph)
		want   string
	}{
		"rotated channels of each head": {func(g *onnx.Graph) { insert(g, rotated, "Mul", headNumbers(g)) }, notShared},
		"keys of another head": {func(g *onnx.Graph) {
			insert(g, nope, "Gather", otherHeads(g), onnx.IntAttr("axis", 1))
		}, notShared},
		"values of another head": {func(g *onnx.Graph) {
			insert(g, values, "Gather", otherHeads(g), onnx.IntAttr("axis", 1))
		}, notShared},
		"keys that are scaled": {func(g *onnx.Graph) { insert(g, nope, "Mul", headNumbers(g)) }, notShared},
		"no linear map": {func(g *onnx.Graph) { insert(g, "linear_3", "Relu", nil) }, "it is not latent " +
			"attention"},
		"keys without the norm": {func(g *onnx.Graph) {
			product := g.Value("linear_3").Producer
			other := g.NewValue("of_no_norm")
			g.AddNode("MatMul", []*onnx.Value{g.Value("split_with_sizes_1_split_0"), product.Inputs[1]},
				[]*onnx.Value{other})
			rows := g.NewValue("rows")
			g.AddNode("Reshape", []*onnx.Value{other, g.Value("view_3").Producer.Inputs[1]}, []*onnx.Value{rows})
			heads := g.NewValue("heads")
			g.AddNode("Transpose", []*onnx.Value{rows}, []*onnx.Value{heads},
				onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
			split := g.Value(nope).Producer
			k, v := g.NewValue("k"), g.NewValue("v")
			g.AddNode("Split", []*onnx.Value{heads, split.Inputs[1]}, []*onnx.Value{k, v}, onnx.IntAttr("axis", 3))
			for _, use := range slices.Clone(g.Value(nope).Uses()) {
				use.Node.SetInput(use.Index, k)
			}
		}, notShared},
		"a matrix stored in another type": {func(g *onnx.Graph) {
			for _, n := range slices.Clone(g.Nodes) {
				if w := n.Input(1); n.Is("MatMul") && w.Constant() != nil {
					dims := w.Constant().Dims
					half, err := onnx.NewTensor("half", onnx.Float16, dims, make([]byte, 2*dims[0]*dims[1]))
					if err != nil {
						t.Fatal(err)
					}
					cast := g.NewValue("cast")
					g.AddNode("Cast", []*onnx.Value{g.AddInitializer(half)}, []*onnx.Value{cast},
						onnx.IntAttr("to", int64(onnx.Float)))
					n.SetInput(1, cast)
				}
			}
		}, "it is not latent attention"},
		"another reader": {func(g *onnx.Graph) {
			out := g.NewValue("more")
			out.SetType(onnx.Type{DataType: onnx.Float})
			g.AddNode("Relu", []*onnx.Value{g.Value("past_v0")}, []*onnx.Value{out}).Name = "reader"
			g.AddOutput(out)
		}, `node "reader" (Relu) also reads "past_v0"`},
	} {
		t.Run(name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, naiveLatent)
			test.change(m.Graph)
			if err := m.Graph.Sort(); err != nil {
				t.Fatal(err)
			}
			_, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, LatentCache: true})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	for name, want := range map[string]string{"llama-kv-dynamo-fp32": "it is not latent attention",
		"llama-dynamo-fp32":     "it is not latent attention",
		"moe-flattened-ts-fp32": "the model has no mojo.Attention"} {
		if _, err := rewrite.Apply(rewritetest.ReadModel(t, name),
			rewrite.Request{AssumeAvailable: true, LatentCache: true}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// TestUnsupportedAttention: the error names what attention to latents does not support, before anything changes.
func TestUnsupportedAttention(t *testing.T) {
	feed := func(input int) func(c *edit.Change, m *onnx.Model, n *onnx.Node) {
		return func(c *edit.Change, m *onnx.Model, n *onnx.Node) {
			c.SetInputs(n, append(slices.Clone(n.Inputs), make([]*onnx.Value, input+1-len(n.Inputs))...)...)
			c.SetInput(n, input, m.Graph.Inputs[0])
		}
	}
	const scores = "it has a window or bounds its scores, which mojo.LatentAttention does not support"
	for name, test := range map[string]struct {
		change func(c *edit.Change, m *onnx.Model, n *onnx.Node)
		want   string
	}{
		"as it is": {func(*edit.Change, *onnx.Model, *onnx.Node) {}, ""},
		"a window": {func(c *edit.Change, _ *onnx.Model, n *onnx.Node) {
			c.SetAttr(n, onnx.IntAttr("window", 1))
		}, scores},
		"a bound": {func(c *edit.Change, _ *onnx.Model, n *onnx.Node) {
			c.SetAttr(n, onnx.FloatAttr("softcap", 1))
		}, scores},
		"a bias":   {feed(fused.AttentionBias), "it has a bias, which mojo.LatentAttention does not support"},
		"a sink":   {feed(fused.AttentionSink), "it has a sink, which"},
		"a buffer": {feed(fused.AttentionPastLength), "it has a cache that is a buffer, which"},
		"no new cache": {func(c *edit.Change, m *onnx.Model, n *onnx.Node) {
			c.RemovePort(m.Graph, n.Outputs[2])
		}, `the model does not output the new cache of input "past_v`},
		"a shared cache": {func(c *edit.Change, m *onnx.Model, n *onnx.Node) {
			for _, other := range m.Graph.Nodes {
				if other.OpType == n.OpType {
					c.SetInput(other, fused.AttentionPastValue, n.Input(fused.AttentionPastValue))
				}
			}
		}, `(Attention) also reads "past_v0", which would hold latents`},
	} {
		m := rewritetest.ReadModel(t, naiveLatent)
		applytest.Apply(t, m)
		i := slices.IndexFunc(m.Graph.Nodes, func(n *onnx.Node) bool { return n.OpType == fused.AttentionName })
		var c edit.Change
		test.change(&c, m, m.Graph.Nodes[i])
		run := &pass.Run{Editor: edit.Editor{Model: m}, Off: true, Skips: func(f *onnx.Function) bool {
			return f.Domain == fused.Domain
		}}
		before := m.Graph.Text()
		_, err := latentcache.Apply(run)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) ||
			!errors.Is(err, latentcache.ErrLatentCache) || m.Graph.Text() != before) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestLatentCacheIsChecked has sites that differ from their analysis, and a wrong kernel.
func TestLatentCacheIsChecked(t *testing.T) {
	for name, want := range map[string]string{"": "", "weights of the other layer": `"Y" differs`,
		"another latent": "cannot be checked",
		"a wrong kernel": "its kernel: it differs from the op's definition: output"} {
		t.Run(name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, naiveLatent)
			applytest.Apply(t, m)
			run := &pass.Run{Editor: edit.Editor{Model: m}, Skips: func(f *onnx.Function) bool {
				return f.Domain == fused.Domain
			}}
			err := latentcache.CheckWrong(run, name)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
