//go:build cgo

package rewrite

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// skipModel is a block as onnxruntime writes it: a sum with its norm, another reader of the sum, and a second norm.
func skipModel(t *testing.T, op string, bias bool, spoil func(b *rewritetest.Builder, n *onnx.Node)) *onnx.Model {
	b := rewritetest.New(t, 17, onnx.Float)
	b.Model.ImportOpset(onnx.Microsoft, 1)
	x, skip := b.In("x", "batch", "seq", 16), b.In("skip", "batch", "seq", 16)
	inputs := []any{x, skip, b.Weight("gamma", 16), onnx.FloatAttr("epsilon", 1e-6)}
	if bias {
		beta := []any{}
		if op == "SkipLayerNormalization" {
			beta = append(beta, b.Weight("beta", 16))
		}
		inputs = append(append(inputs, beta...), b.Weight("bias", 16))
	}
	out := b.Ops(4, op, inputs...)
	n := out[0].Producer
	n.Domain, n.Name = onnx.Microsoft, "the sum"
	n.Outputs[1], n.Outputs[2] = nil, nil
	b.Out(out[0], "batch", "seq", 16)
	second := b.Op("SimplifiedLayerNormalization", out[3], b.Weight("scale", 16), onnx.FloatAttr("epsilon", 1e-6))
	b.Out(second, "batch", "seq", 16)
	if spoil != nil {
		spoil(b, n)
	}
	return b.Model
}

// TestSkipNorms: onnxruntime's own norms become fused ops or standard ops, or stay with a reason.
func TestSkipNorms(t *testing.T) {
	const rms, layer = "SkipSimplifiedLayerNormalization", "SkipLayerNormalization"
	for _, c := range []struct {
		name, op string
		bias     bool
		spoil    func(b *rewritetest.Builder, n *onnx.Node)
		left     string // why the sum's norm stays, or "" if it is fused
	}{
		{"with its sum", rms, false, nil, ""},
		{"with a bias", rms, true, nil, ""},
		{"without its sum", rms, false, func(b *rewritetest.Builder, n *onnx.Node) {
			b.Graph.Nodes[len(b.Graph.Nodes)-1].SetInput(0, b.Graph.Inputs[0])
			n.Outputs = n.Outputs[:1]
		}, ""},
		{"broadcast", rms, false, func(b *rewritetest.Builder, n *onnx.Node) {
			n.SetInput(1, b.In("one", 1, "seq", 16))
		}, "skip may be broadcast"},
		{"with its deviation", rms, false, func(b *rewritetest.Builder, n *onnx.Node) {
			v := b.Graph.NewValue("inverse")
			n.TakeOutput(2, v)
			b.Output(v)
		}, "the mean or the deviation"},
		{"of the mean", layer, false, nil, "lacks the bias of the norm"},
		{"of the mean, with a bias", layer, true, nil, ""},
	} {
		for _, name := range []string{"mojo", "ort", "onnx"} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				m := skipModel(t, c.op, c.bias, c.spoil)
				inputs := map[string]*reference.Tensor{}
				for i, v := range m.Graph.Inputs {
					shape := []int64{2, 3, 16}
					if v.Name == "one" {
						shape[0] = 1
					}
					var err error
					if inputs[v.Name], err = prove.MakeInput(prove.Normal, i, onnx.Float, shape); err != nil {
						t.Fatal(err)
					}
				}
				if c.left == "the mean or the deviation" { // onnxruntime's CPU provider does not return it
					inputs = nil
				}
				var want map[string]*reference.Tensor
				if inputs != nil {
					want = rewritetest.InOnnxruntime(t, m, inputs)
				}
				r := apply(t, m, Request{Target: targetNamed(t, name)})
				i := slices.IndexFunc(r.Sites, func(s SiteReport) bool { return s.Node == "the sum" })
				if i < 0 {
					t.Fatalf("nothing is said of the sum: %+v", r.Sites)
				}
				status := map[string]string{"mojo": Fused, "ort": Open, "onnx": Fused}[name]
				if c.left != "" {
					status = Missed
				}
				if s := r.Sites[i]; s.Status != status || !strings.Contains(s.Reason, c.left) {
					t.Errorf("%s: %s", s.Status, s.Reason)
				}
				foreign := map[string]int{}
				if name == "onnx" && c.left != "" {
					foreign["com.microsoft."+c.op] = 1
				}
				if !maps.Equal(r.Foreign, foreign) {
					t.Errorf("not of the standard: %v, want %v", r.Foreign, foreign)
				}
				if has := m.Opset(onnx.Microsoft) != 0; has != (name != "onnx" || c.left != "") {
					t.Errorf("imports %v", m.Opsets)
				}
				if inputs != nil {
					rewritetest.RunsThere(t, m, inputs, want, 2e-6)
				}
			})
		}
	}
}
