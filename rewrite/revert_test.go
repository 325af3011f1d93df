package rewrite

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// fusedOps counts the sites of a report by their fused op.
func fusedOps(r *Report) map[string]int {
	n := map[string]int{}
	for _, s := range r.Sites {
		if s.Status == Fused && fused.Lookup(s.Op) != nil {
			n[s.Op]++
		}
	}
	return n
}

// TestRevert patches models, reverts them and patches them again: outputs must be equal to the bit, no trace of the
// fused ops' domain may remain, and the sites must be found again.
func TestRevert(t *testing.T) {
	models := map[string]func() *onnx.Model{
		"float32":  func() *onnx.Model { return rewritetest.Block(t, 17, onnx.Float) },
		"float16":  func() *onnx.Model { return rewritetest.Block(t, 18, onnx.Float16) },
		"bfloat16": func() *onnx.Model { return rewritetest.Block(t, 18, onnx.BFloat16) },
	}
	for _, name := range []string{"qwen3-ts-fp16", "moe-chosen-dynamo-bf16", "gptoss-batched_mm-dynamo-fp32",
		"qwen3-dynamo-fp32", "llama-kv-dynamo-fp32"} {
		models[name] = func() *onnx.Model { return rewritetest.ReadModel(t, name) }
	}
	for name, read := range models {
		t.Run(name, func(t *testing.T) {
			patched, m := read(), read()
			before := fusedOps(apply(t, patched))
			apply(t, m)
			r, err := Revert(m, nil)
			if err != nil {
				t.Fatal(err)
			}
			sites := 0
			for _, n := range before {
				sites += n
			}
			if len(r.Reverted) != sites || len(r.Left) != 0 || sites == 0 {
				t.Errorf("%d of %d sites reverted, %d left", len(r.Reverted), sites, len(r.Left))
			}
			if m.Opset(fused.Domain) != 0 || slices.ContainsFunc(m.Functions, func(f *onnx.Function) bool {
				return f.Domain == fused.Domain
			}) {
				t.Errorf("the model still imports the domain, or has functions of it")
			}
			rewritetest.CheckOrder(t, m)
			evaluate := func(m *onnx.Model) map[string]*reference.Tensor {
				if name == "llama-kv-dynamo-fp32" {
					return rewritetest.Run(t, m, rewritetest.DecoderInputs(t, m, 2, 3, 5, 0))
				}
				return rewritetest.Evaluate(t, m)
			}
			want := evaluate(patched)
			for key, got := range evaluate(m) {
				if d, _ := prove.Distance(want[key].F, got.F); d != 0 {
					t.Errorf("output %q differs by %g", key, d)
				}
			}
			if after := fusedOps(apply(t, m)); !maps.Equal(before, after) {
				t.Errorf("found %v before, and %v again", before, after)
			}
		})
	}
}

func TestRevertSome(t *testing.T) {
	m := rewritetest.Block(t, 17, onnx.Float)
	apply(t, m)
	r, err := Revert(m, func(p PatchedNode) bool { return p.Pattern == "SwiGLU" })
	if err != nil || len(r.Reverted) != 2 || len(r.Left) != 4 || len(r.Reverted[0].Sources) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if ops := rewritetest.CountOps(m); ops["GLU"] != 0 || ops["AddRMSNorm"] == 0 || m.Opset(fused.Domain) == 0 {
		t.Errorf("there are %v", ops)
	}
	rewritetest.Evaluate(t, m)
	m.Functions = nil
	if _, err := Revert(m, nil); err == nil || !strings.Contains(err.Error(), "no function mojo.") {
		t.Errorf("without definitions: %v", err)
	}
}
