package convert

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestOtherOps: nodes outside the standard's opsets stay, while the others are converted.
func TestOtherOps(t *testing.T) {
	for _, c := range []struct {
		name, domain, op string
		from, to         int64
		scale            onnx.DataType
		refused          string
	}{
		{"onnxruntime's, in the standard's domain", "", "SimplifiedLayerNormalization", 13, 24, onnx.Float16, ""},
		{"onnxruntime's norm before the standard's", "", "LayerNormalization", 13, 23, onnx.Float, ""},
		{"the same in a scale's type, still onnxruntime's", "", "LayerNormalization", 11, 16, onnx.Float16, ""},
		{"the same in a scale's type", "", "LayerNormalization", 13, 17, onnx.Float16,
			"is of type float32 and its scale of type float16"},
		{"onnxruntime's", "com.microsoft", "SkipLayerNormalization", 11, 24, onnx.Float, ""},
		{"of machine learning", "ai.onnx.ml", "Normalizer", 11, 24, onnx.Float, ""},
		{"of nobody knows where", "com.example", "Norm", 11, 24, onnx.Float, ""},
		{"of no opset", "", "Norm", 13, 24, onnx.Float, "it is not an op of the standard opsets"},
		{"no longer of the standard", "", "Upsample", 11, 24, onnx.Float, "it is not an op of the standard opsets"},
		{"not yet of the standard", "", "Gelu", 13, 24, onnx.Float, "the op is a standard op since opset 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := onnxtest.New(c.from)
			if c.domain != "" {
				b.Model.ImportOpset(c.domain, 1)
			}
			y := b.Op(c.op, b.Input("x", onnx.Float, "n", 4), b.Input("scale", c.scale, 4))
			n := y.Producer
			n.Domain, n.Name = c.domain, "the node"
			b.Output(y)
			b.Output(b.Op("ReduceMax", b.Graph.Inputs[0], onnx.IntsAttr("axes", []int64{0})))
			before := n.Text()
			err := Opset(b.Model, c.to)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) ||
					!strings.Contains(err.Error(), "the node") {
					t.Fatalf("got %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n.Text() != before || b.Model.Opset("") != c.to {
				t.Errorf("opset %d: %s", b.Model.Opset(""), n.Text())
			}
			if last := b.Graph.Nodes[1]; c.to >= 18 && last.Input(1) == nil {
				t.Errorf("%s was not converted", last.Text())
			}
		})
	}
}
