package staticcache_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestStaticCache compares a decoder on buffers with one on a growing cache, at several lengths. The rows after the
// tokens hold NaN.
func TestStaticCache(t *testing.T) {
	for _, length := range []int64{0, 12} {
		m, original := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"),
			rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		r := applytest.Apply(t, m, rewrite.Request{StaticCache: &staticcache.Options{Length: length}}).Cache
		if r == nil || r.Length != length || len(r.Inputs) != 4 || r.BytesPerToken != 4*2*16*4 ||
			r.LengthFrom != "attention_mask" || len(r.Readers) == 0 || r.Check.Cases < 8 {
			t.Errorf("reported %+v", r)
		}
		for _, v := range slices.Concat(m.Graph.Inputs[2:], m.Graph.Outputs[1:]) {
			typ, _ := v.Type()
			if d := typ.Dims[prove.CacheAxis]; length > 0 && d.Value != length || length == 0 &&
				d.Param != staticcache.CacheSymbol {
				t.Errorf("%q is declared %s", v.Name, typ)
			}
		}
		rewritetest.CheckOrder(t, m)
		for _, at := range []struct{ batch, queries, past, room int }{{2, 3, 0, 12}, {2, 1, 5, 12}, {1, 4, 8, 12},
			{3, 2, 7, 12}} {
			want := rewritetest.Run(t, original, rewritetest.DecoderInputs(t, original, at.batch, at.queries, at.past,
				at.past))
			in := rewritetest.DecoderInputs(t, m, at.batch, at.queries, at.past, at.room)
			got := rewritetest.Run(t, m, in)
			d, scale := prove.Distance(want["logits"].F, got["logits"].F)
			if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed {
				t.Errorf("%v: logits differ by %g, %g allowed", at, d, allowed)
			}
			for name, w := range want {
				if past := in[strings.Replace(name, "present", "past", 1)]; name != "logits" {
					checkBuffer(t, past, w, got[name])
				}
			}
		}
	}
}

// checkBuffer compares the rows of a present that hold tokens with those of a growing cache, and the other rows with
// the past.
func checkBuffer(t *testing.T, past, grown, got *reference.Tensor) {
	t.Helper()
	want := reference.NewFloats(past.DataType, past.Shape, slices.Clone(past.F))
	prove.CopyRows(want, grown)
	d, scale := prove.Distance(want.F, got.F)
	if !slices.Equal(want.Shape, got.Shape) || d > 64*prove.Spacing(onnx.Float, scale) {
		t.Errorf("a buffer of %v differs from %v by %g", got.Shape, want.Shape, d)
	}
	for i, x := range want.F {
		if math.IsNaN(x) != math.IsNaN(got.F[i]) {
			t.Fatalf("element %d is %g, want %g", i, got.F[i], x)
		}
	}
}

// TestStaticCacheOfAnExport turns the 60 caches of a model into buffers. Its weights are missing here.
func TestStaticCacheOfAnExport(t *testing.T) {
	m, err := onnx.Read(filepath.Join("..", "..", "models", "smollm2", "graph.onnx"), onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := applytest.Apply(t, m, rewrite.Request{AllowUnverified: true, StaticCache: &staticcache.Options{}}).Cache
	if len(r.Inputs) != 60 || r.BytesPerToken != 60*3*64*4 {
		t.Errorf("reported %+v", r)
	}
	if text := r.Text(); !strings.Contains(text, "46080 bytes per token") || !strings.Contains(text, "and 57 more") {
		t.Error(text)
	}
}

// TestLengthsAreGiven: nodes that read the lengths of caches in various ways get the same results as before.
func TestLengthsAreGiven(t *testing.T) {
	var models []*onnx.Model
	for range 2 {
		m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		g := m.Graph
		read := func(v *onnx.Value, name string, attrs ...*onnx.Attribute) {
			out := g.NewValue(name)
			out.SetType(onnx.Type{DataType: onnx.Int64})
			g.AddNode("Shape", []*onnx.Value{v}, []*onnx.Value{out}, attrs...)
			g.AddOutput(out)
		}
		read(g.Value("past_v1"), "all")
		read(g.Value("past_k1"), "alone", onnx.IntAttr("start", 2), onnx.IntAttr("end", 3))
		read(g.Value("past_v0"), "last", onnx.IntAttr("start", -2))
		read(g.Value("past_v0"), "first", onnx.IntAttr("end", 2))
		read(g.Value("present_k1"), "present")
		copied := g.NewValue("copied")
		g.AddNode("Identity", []*onnx.Value{g.Value("past_k0")}, []*onnx.Value{copied})
		read(copied, "of_copy")
		last, joined := g.Value("present_v0"), g.NewValue("joined")
		last.Producer.TakeOutput(0, joined)
		for _, use := range slices.Clone(last.Uses()) {
			use.Node.SetInput(use.Index, joined)
		}
		g.AddNode("Concat", []*onnx.Value{joined}, []*onnx.Value{last}, onnx.IntAttr("axis", 2))
		if err := g.Sort(); err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	r := applytest.Apply(t, models[1], rewrite.Request{StaticCache: &staticcache.Options{}}).Cache
	if len(r.Readers) < 5 {
		t.Errorf("readers are %q", r.Readers)
	}
	if n := models[1].Graph.Value("present_v0").Producer; n.OpType != fused.AttentionName {
		t.Errorf("a present is written by %s", n.OpType)
	}
	want := rewritetest.Run(t, models[0], rewritetest.DecoderInputs(t, models[0], 2, 3, 4, 4))
	got := rewritetest.Run(t, models[1], rewritetest.DecoderInputs(t, models[1], 2, 3, 4, 11))
	for _, name := range []string{"all", "alone", "last", "first", "present", "of_copy"} {
		if !slices.Equal(want[name].I, got[name].I) || len(want[name].I) == 0 {
			t.Errorf("%s is %v, want %v", name, got[name].I, want[name].I)
		}
	}
}

// TestStaticCacheWithBias has an additive mask as long as the tokens, which a range over the length of the past
// computes.
func TestStaticCacheWithBias(t *testing.T) {
	var models []*onnx.Model
	for range 2 {
		m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		g := m.Graph
		node := func(op string, inputs ...*onnx.Value) *onnx.Value {
			out := g.NewValue("added")
			g.AddNode(op, inputs, []*onnx.Value{out})
			return out
		}
		number := func(x int64) *onnx.Value {
			return node("Squeeze", g.AddInitializer(onnx.NewInt64s("number", []int64{x})))
		}
		length := node("Gather", node("Shape", g.Value("past_k1")), number(prove.CacheAxis))
		all := node("Add", length, node("Gather", node("Shape", g.Value("input_ids")), number(1)))
		keys := node("Cast", node("Range", number(0), all, number(1)))
		keys.Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Float)))
		mask := g.Value("val_233")
		readers := slices.Clone(mask.Uses())
		slope := g.AddInitializer(onnx.NewFloat32s("slope", []int64{1}, []float32{0.25}))
		biased := node("Add", mask, node("Mul", node("Sin", keys), slope))
		for _, use := range readers {
			use.Node.SetInput(use.Index, biased)
		}
		if err := g.Sort(); err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	m := models[1]
	applytest.Apply(t, m, rewrite.Request{StaticCache: &staticcache.Options{}})
	for _, n := range m.Graph.Nodes {
		if n.OpType == fused.AttentionName && n.Input(fused.AttentionBias) == nil {
			t.Error("attention has no bias: the test shows nothing")
		}
	}
	for _, past := range []int{0, 5} {
		want := rewritetest.Run(t, models[0], rewritetest.DecoderInputs(t, models[0], 2, 3, past, past))["logits"]
		got := rewritetest.Run(t, m, rewritetest.DecoderInputs(t, m, 2, 3, past, 11))["logits"]
		d, scale := prove.Distance(want.F, got.F)
		if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed {
			t.Errorf("%d tokens in the cache: logits differ by %g, %g allowed", past, d, allowed)
		}
	}
}

// TestPastLength: a decoder reads the number of tokens in its buffers from an input, and its mask is as long as the
// buffers.
func TestPastLength(t *testing.T) {
	m, original := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	for _, m := range []*onnx.Model{m, original} { // other readers of lengths
		for name, of := range map[string]string{"of_mask": "attention_mask", "of_present": "present_k0"} {
			out := m.Graph.NewValue(name)
			out.SetType(onnx.Type{DataType: onnx.Int64})
			m.Graph.AddNode("Shape", []*onnx.Value{m.Graph.Value(of)}, []*onnx.Value{out})
			m.Graph.AddOutput(out)
		}
		maskNew(m)
		if err := m.Graph.Sort(); err != nil {
			t.Fatal(err)
		}
	}
	r := applytest.Apply(t, m, rewrite.Request{StaticCache: &staticcache.Options{PastLength: true}}).Cache
	if r.LengthFrom != "past_length" {
		t.Errorf("reported %+v", r)
	}
	for _, at := range []struct{ batch, queries, past, room int }{{2, 3, 0, 9}, {2, 1, 5, 9}, {1, 4, 5, 9}} {
		want := rewritetest.Run(t, original, rewritetest.DecoderInputs(t, original, at.batch, at.queries, at.past,
			at.past))
		in := rewritetest.DecoderInputs(t, m, at.batch, at.queries, at.past, at.room)
		in["past_length"] = reference.NewInts(onnx.Int64, []int{1}, []int64{int64(at.past)})
		mask := in["attention_mask"]
		long := reference.NewInts(onnx.Int64, []int{at.batch, at.room}, make([]int64, at.batch*at.room))
		for b := range at.batch {
			n := at.past + at.queries
			copy(long.I[b*at.room:], mask.I[b*n:(b+1)*n])
		}
		in["attention_mask"] = long
		got := rewritetest.Run(t, m, in)
		d, scale := prove.Distance(want["logits"].F, got["logits"].F)
		if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed {
			t.Errorf("%v: logits differ by %g, %g allowed", at, d, allowed)
		}
		checkBuffer(t, in["past_v1"], want["present_v1"], got["present_v1"])
		for _, name := range []string{"of_mask", "of_present"} {
			if !slices.Equal(got[name].I, want[name].I) {
				t.Errorf("%s is %v, want %v", name, got[name].I, want[name].I)
			}
		}
	}
	m = rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	out := m.Graph.NewValue("sum")
	out.SetType(onnx.Type{DataType: onnx.Int64})
	m.Graph.AddNode("CumSum", []*onnx.Value{m.Graph.Value("attention_mask"),
		m.Graph.AddInitializer(onnx.NewInt64s("axis", []int64{1}))}, []*onnx.Value{out}).Name = "positions"
	m.Graph.AddOutput(out)
	_, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true,
		StaticCache: &staticcache.Options{PastLength: true}})
	if err == nil || !strings.Contains(err.Error(), `node "positions" (CumSum) reads "attention_mask"`) {
		t.Errorf("another reader of the mask: %v", err)
	}
}

// TestStaticCacheIsRefused asks for decoders with a cache that cannot be a buffer. The errors name the obstacle.
func TestStaticCacheIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		asked rewrite.Request
		want  string
	}{
		"bfloat16 for the CPU": {rewrite.Request{DType: onnx.BFloat16},
			`computes in float32 and cannot write the cache "past_k0" in bfloat16`},
		"one stays": {rewrite.Request{Sites: []string{"Attention:transpose_3"}}, "all caches must be"},
		"none": {rewrite.Request{KeepPattern: func(name string) bool { return name != "Attention" }},
			"the model has no mojo.Attention"},
	} {
		t.Run(name, func(t *testing.T) {
			test.asked.AssumeAvailable, test.asked.StaticCache = true, &staticcache.Options{}
			_, err := rewrite.Apply(rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), test.asked)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestStaticCacheIsChecked has a kernel with a wrong result or row, and lengths of another input.
func TestStaticCacheIsChecked(t *testing.T) {
	for output, want := range []string{`its kernel: it differs from the op's definition: output "Y" by`,
		`"present_key" differs by 1,`} {
		broken := rewritetest.Kernel(func(in, out []*reference.Tensor) {
			if len(in) > fused.AttentionPastLength && out[output].Len() > 0 {
				out[output].F[out[output].Len()-1]++
			}
		})
		for _, verify := range []rewrite.Verify{rewrite.VerifyDistinct, rewrite.VerifyRouted} {
			_, err := rewrite.Apply(rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"),
				rewrite.Request{AssumeAvailable: true, KernelCheck: broken, Verify: verify,
					StaticCache: &staticcache.Options{}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: a kernel whose output %d is wrong: %v", verify, output, err)
			}
		}
	}
	run := patched(t, rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"))
	if err := staticcache.LengthFromBatch(run, staticcache.Options{}); err == nil ||
		!strings.Contains(err.Error(), "tokens in the cache") {
		t.Errorf("a length from the batch: %v", err)
	}
}

// patched patches a model and returns a run over it for changing the caches.
func patched(t *testing.T, m *onnx.Model) *pass.Run {
	t.Helper()
	facts := infer.Analyze(m)
	applytest.Apply(t, m)
	return &pass.Run{Editor: edit.Editor{Model: m}, Facts: facts, Skips: func(f *onnx.Function) bool {
		return f.Domain == fused.Domain
	}}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]int64{"static": 0, "static=1": 1, "static=2147483647": math.MaxInt32} {
		if got, err := staticcache.Parse(s); err != nil || got != want {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "grown", "static=", "static=0", "static=-4", "static=2147483648", "static=x"} {
		if _, err := staticcache.Parse(s); err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestStaticCacheBehindMaskedTokens has tokens that are multiplied by the last columns of the mask, as before recurrent
// layers. Then the number of heads is not proven, since the graph fails if the mask is shorter than the tokens.
func TestStaticCacheBehindMaskedTokens(t *testing.T) {
	var models []*onnx.Model
	for range 2 {
		m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		g := m.Graph
		node := func(op string, inputs ...*onnx.Value) *onnx.Value {
			out := g.NewValue("masked")
			g.AddNode(op, inputs, []*onnx.Value{out})
			return out
		}
		numbers := func(x int64) *onnx.Value { return g.AddInitializer(onnx.NewInt64s("number", []int64{x})) }
		ids := g.Value("input_ids")
		tokens := ids.Uses()[slices.IndexFunc(ids.Uses(), func(u onnx.Use) bool { return u.Node.Is("Gather") })].
			Node.OutputValue(0)
		readers := slices.Clone(tokens.Uses())
		from := node("Neg", node("Gather", node("Shape", ids), numbers(1)))
		columns := node("Slice", g.Value("attention_mask"), from, numbers(1<<40), numbers(1))
		factors := node("Cast", node("Unsqueeze", columns, numbers(-1)))
		factors.Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Float)))
		masked := node("Mul", tokens, factors)
		for _, use := range readers {
			use.Node.SetInput(use.Index, masked)
		}
		if err := g.Sort(); err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	original, m := models[0], models[1]
	r := applytest.Apply(t, m, rewrite.Request{StaticCache: &staticcache.Options{}}).Cache
	if r == nil || len(r.Inputs) != 4 {
		t.Fatalf("reported %+v", r)
	}
	want := rewritetest.Run(t, original, rewritetest.DecoderInputs(t, original, 2, 3, 5, 5))["logits"]
	got := rewritetest.Run(t, m, rewritetest.DecoderInputs(t, m, 2, 3, 5, 12))["logits"]
	if d, scale := prove.Distance(want.F, got.F); d > 64*prove.Spacing(onnx.Float, scale) {
		t.Errorf("logits differ by %g", d)
	}
}
