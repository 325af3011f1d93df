package trace

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/cut"
)

// TestCores names the blocks of exports and cuts each block out. apply must find the block's core in the cut-out model.
func TestCores(t *testing.T) {
	for model, want := range map[string][]string{
		"llama-ts-fp32":                {"layer 0 attention", "layer 0 mlp", "layer 1 attention", "layer 1 mlp"},
		"mixtral-batched_mm-ts-fp16":   {"layer 0 attention", "layer 0 experts", "layer 1 attention", "layer 1 experts"},
		"deepseek3-batched_mm-ts-fp32": {"layer 0 attention", "layer 0 mlp", "layer 1 attention", "layer 1 experts"},
	} {
		m, plan := planOf(t, "../models/"+model+".onnx")
		before := len(m.Graph.Nodes)
		var got []string
		for _, b := range Cores(m, plan.Report.Sites) {
			got = append(got, b.String())
			cut, err := cut.New(m).Block(b.Match)
			if err != nil {
				t.Fatalf("%s, %s: %v", model, b, err)
			}
			if len(cut.Outputs) != 1 || len(cut.Inputs) > 4 {
				t.Errorf("%s, %s: %d nodes, %d inputs, %d outputs", model, b, len(cut.Nodes), len(cut.Inputs),
					len(cut.Outputs))
			}
			part, err := cut.Model()
			if err != nil {
				t.Fatalf("%s, %s: %v", model, b, err)
			}
			p, err := rewrite.New(rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff})
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Run(part)
			if err != nil {
				t.Fatalf("%s, %s: %v", model, b, err)
			}
			if op := map[string]string{Attention: "Attention", MLP: "SwiGLU",
				Experts: "MoE"}[b.Part]; !slices.ContainsFunc(r.Sites, func(s rewrite.SiteReport) bool {
				return s.Pattern == op && s.Status == rewrite.Fused
			}) {
				t.Errorf("%s, %s: no site of %s in what was cut out", model, b, op)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", model, got, want)
		}
		if len(m.Graph.Nodes) != before {
			t.Errorf("%s: the whole model was changed", model)
		}
	}
}

func planOf(t *testing.T, path string) (*onnx.Model, *rewrite.Plan) {
	t.Helper()
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p, err := rewrite.New(rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(m)
	if err != nil {
		t.Fatal(err)
	}
	return m, plan
}
