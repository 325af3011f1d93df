package staticcache_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestMergedDecoder turns the caches of a decoder with branches with and without a past into buffers.
func TestMergedDecoder(t *testing.T) {
	m, original := rewritetest.ReadModel(t, "llama-merged-ts-fp32"), rewritetest.ReadModel(t, "llama-merged-ts-fp32")
	r := applytest.Apply(t, m, rewrite.Request{StaticCache: &staticcache.Options{}}).Cache
	if r == nil || r.Merged == "" || len(r.Inputs) != 4 ||
		!strings.Contains(r.Text(), "is replaced by its branch with a past") {
		t.Fatalf("reported %+v", r)
	}
	for _, n := range m.Graph.Nodes {
		if n.Is("If") {
			t.Errorf("node %q is left", n.Name)
		}
	}
	if dead, constants := edit.Unread(m.Graph.Nodes); len(dead)+len(constants) > 0 {
		t.Errorf("%d nodes are unread", len(dead))
	}
	rewritetest.CheckOrder(t, m)
	inputs := func(past, room int, flag int64) map[string]*reference.Tensor {
		in := rewritetest.DecoderInputs(t, original, 2, 3, past, room)
		in["use_cache_branch"] = reference.NewInts(onnx.Bool, []int{1}, []int64{flag})
		return in
	}
	for past, flag := range map[int]int64{0: 0, 4: 1} {
		want, got := rewritetest.Run(t, original, inputs(past, past, flag)),
			rewritetest.Run(t, m, inputs(past, 9, flag))
		d, scale := prove.Distance(want["logits"].F, got["logits"].F)
		if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed {
			t.Errorf("%d tokens in the cache: logits differ by %g, %g allowed", past, d, allowed)
		}
	}
}

// TestNoMergedDecoder tries an If that lacks a branch, which onnxruntime has to refuse, and another op.
func TestNoMergedDecoder(t *testing.T) {
	for _, given := range []string{"If else_branch", "If then_branch", "Scan else_branch"} {
		op, name, _ := strings.Cut(given, " ")
		b := onnxtest.New(20)
		branch := b.Graph.NewSubgraph("branch")
		branch.AddOutput(branch.AddInitializer(onnx.NewFloat32s("one", []int64{1}, []float32{1})))
		b.Output(b.Op(op, b.Input("flag", onnx.Bool), onnx.GraphAttr(name, branch)))
		if n, _, _, _ := staticcache.MergedDecoder(b.Graph); n != nil {
			t.Errorf("%s: found %q", op, n.Label())
		}
	}
}

// TestMergedDecoderIsRefused changes one branch of a decoder: without a past, it then computes something other than
// with an empty one.
func TestMergedDecoderIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(m *onnx.Model, node *onnx.Node, with *onnx.Graph)
		want   string
	}{
		"another function": {func(m *onnx.Model, node *onnx.Node, with *onnx.Graph) {
			for _, g := range []string{"then_branch", "else_branch"} {
				if g := node.Attr(g).Graph; g != with {
					out, made := g.Outputs[0], g.NewValue("made")
					out.Producer.TakeOutput(0, made)
					factor := g.AddInitializer(onnx.NewFloat32s("factor", []int64{1}, []float32{1.001}))
					g.AddNode("Mul", []*onnx.Value{made, factor}, []*onnx.Value{out})
				}
			}
		}, `output "logits" differs`},
		"an input that is not known": {func(m *onnx.Model, _ *onnx.Node, _ *onnx.Graph) {
			m.Graph.AddInput("threshold", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 1}}})
		}, `input "threshold" is not recognized`},
		"both read the past": {func(m *onnx.Model, node *onnx.Node, with *onnx.Graph) {
			for _, g := range []string{"then_branch", "else_branch"} {
				if g := node.Attr(g).Graph; g != with {
					g.AddNode("Shape", []*onnx.Value{m.Graph.Value("past_k0")}, []*onnx.Value{g.NewValue("read")})
				}
			}
		}, "is in a branch"},
	} {
		t.Run(name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, "llama-merged-ts-fp32")
			node, with, flag, none := staticcache.MergedDecoder(m.Graph)
			within := func(u onnx.Use) bool { return u.Node.Graph == with }
			if node == nil || flag.Name != "use_cache_branch" || none != 0 ||
				!slices.ContainsFunc(m.Graph.Value("past_k0").Uses(), within) {
				t.Fatalf("found %q, which %q chooses", node.Label(), flag.Name)
			}
			test.change(m, node, with)
			_, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, StaticCache: &staticcache.Options{}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
