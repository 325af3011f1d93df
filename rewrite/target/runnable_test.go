package target

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// ones are models with one node.
var ones = map[string]func(b *onnxtest.Builder) *onnx.Value{
	"RoiAlign": func(b *onnxtest.Builder) *onnx.Value {
		return b.Op("RoiAlign", b.Input("x", onnx.Float, 1, 2, 8, 8), b.Input("rois", onnx.Float, 3, 4),
			b.Input("batch", onnx.Int64, 3))
	},
	"MaxRoiPool": func(b *onnxtest.Builder) *onnx.Value {
		return b.Op("MaxRoiPool", b.Input("x", onnx.Float, 1, 2, 8, 8), b.Input("rois", onnx.Float, 3, 5),
			onnx.IntsAttr("pooled_shape", []int64{2, 2}))
	},
	"GlobalLpPool": func(b *onnxtest.Builder) *onnx.Value {
		return b.Op("GlobalLpPool", b.Input("x", onnx.Float, 1, 2, 8, 8))
	},
	"RandomNormalLike": func(b *onnxtest.Builder) *onnx.Value {
		return b.Op("RandomNormalLike", b.Input("x", onnx.Float, 2, 8))
	},
	"Bernoulli": func(b *onnxtest.Builder) *onnx.Value { return b.Op("Bernoulli", b.Input("x", onnx.Float, 2, 8)) },
	"HardSwish": func(b *onnxtest.Builder) *onnx.Value { return b.Op("HardSwish", b.Input("x", onnx.Float, 2, 8)) },
	"Relu":      func(b *onnxtest.Builder) *onnx.Value { return b.Op("Relu", b.Input("x", onnx.Float, 2, 8)) },
	// onnxruntime has no kernel for it at either opset
	"Relu of bfloat16": func(b *onnxtest.Builder) *onnx.Value {
		return b.Op("Relu", b.Input("x", onnx.BFloat16, 2, 8))
	},
	"Unheard": func(b *onnxtest.Builder) *onnx.Value { return b.Op("Unheard", b.Input("x", onnx.Float, 2, 8)) },
}

// TestRaisable: a model is raised as far as onnxruntime has kernels for the nodes that it runs now.
func TestRaisable(t *testing.T) {
	for _, c := range []struct {
		op        string
		from, to  int64
		want      int64
		limitedBy string
	}{
		{"RoiAlign", 13, 24, 21, `node "node_roialign" in a model of opset 22: onnxruntime 1.32.0: CPU has no kernel ` +
			"for RoiAlign(22)"},
		{"RoiAlign", 13, 20, 20, ""},
		{"RoiAlign", 22, 24, 24, ""}, // nothing is lost
		{"MaxRoiPool", 13, 23, 21, "MaxRoiPool(22)"},
		{"GlobalLpPool", 13, 23, 21, "GlobalLpPool(22)"},
		{"RandomNormalLike", 13, 23, 21, "RandomNormalLike(22)"},
		{"Bernoulli", 15, 23, 21, "Bernoulli(22)"},
		{"HardSwish", 15, 24, 24, ""},
		{"Relu", 13, 24, 24, ""},
		{"Relu of bfloat16", 13, 24, 24, ""},
		{"Unheard", 13, 24, 24, ""},
	} {
		for _, nested := range []bool{false, true} {
			b := onnxtest.New(c.from)
			y := ones[c.op](b)
			if !nested {
				b.Output(y)
			} else { // in the body of a function
				f := onnx.NewFunction("custom", "Module", "", c.from)
				g := f.Body
				stands := map[*onnx.Value]*onnx.Value{}
				var in []*onnx.Value
				for _, v := range b.Graph.Inputs {
					typ, _ := v.Type()
					stands[v] = g.AddInput(v.Name, typ)
				}
				for _, v := range y.Producer.Inputs {
					in = append(in, stands[v])
				}
				n := g.AddNode(y.Producer.OpType, in, []*onnx.Value{g.NewValue("y")}, y.Producer.Attributes...)
				n.Name = y.Producer.Name
				g.AddOutput(n.Outputs[0])
				b.Model.Functions = []*onnx.Function{f}
				if err := b.Graph.RemoveNodes(map[*onnx.Node]bool{y.Producer: true}); err != nil {
					t.Fatal(err)
				}
			}
			got, limit := Raisable(b.Model, infer.Analyze(b.Model), c.to)
			if got != c.want || (limit == nil) != (c.limitedBy == "") ||
				limit != nil && !strings.Contains(limit.Error(), c.limitedBy) {
				t.Errorf("%s of opset %d to %d: %d, %v; want %d, %s", c.op, c.from, c.to, got, limit, c.want,
					c.limitedBy)
			}
		}
	}
}

// TestOpsetsOfRules: ops that an opset or onnxruntime lacks are not written.
func TestOpsetsOfRules(t *testing.T) {
	norm := normSite("RMSNorm", 0, []onnx.DataType{f32, f32}, []int64{2, 3, 8}, []int64{8})
	for _, c := range []struct {
		to     *Target
		site   site
		opset  int64
		want   string
		reason string
	}{
		{standard, norm, 23, "RMSNormalization", ""},
		{standard, norm, 22, "", "RMSNormalization is an op of opset 23, the model has 22"},
		{ort, norm, 20, "SimplifiedLayerNormalization", ""},
		{standard, gluSite("silu", 1, 0, 0, f32), 24, "Swish Mul", ""},
		{standard, gluSite("silu", 1, 0, 0, f32), 23, "Sigmoid Mul Mul", ""},
		{standard, gluSite("silu", 1, 0, 0, f32), 25, "Sigmoid Mul Mul", ""},
		{standard, gluSite("gelu", 1, 0, 0, f32), 19, "", "Gelu is an op of opset 20, the model has 19"},
		{ort, attend{layouts: "hhhh"}.site(), 22, "", "Attention is an op of opset 23, the model has 22"},
	} {
		g, n, _ := c.site.graph(t, c.opset)
		_, err := c.site.write(c.to, n, c.opset)
		if c.reason != "" {
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%s, opset %d: %v, want %q", c.to.Name, c.opset, err, c.reason)
			}
			continue
		}
		if got := written(g); err != nil || got != c.want {
			t.Errorf("%s, opset %d: %s, %v; want %s", c.to.Name, c.opset, got, err, c.want)
		}
	}
}

// TestLacks: nodes without a kernel may replace nodes without a kernel.
func TestLacks(t *testing.T) {
	model := func(typ onnx.DataType, op string) ([]*onnx.Node, *infer.Facts) {
		b := onnxtest.New(23)
		b.Output(b.Op(op, b.Input("x", typ, 2, 8)))
		return b.Graph.Nodes, infer.Analyze(b.Model)
	}
	for _, c := range []struct {
		typ       onnx.DataType
		op, other string
		lacks     bool
	}{
		{onnx.Float, "Sigmoid", "Relu", false},
		{onnx.Int32, "Sigmoid", "Relu", true},
		{onnx.BFloat16, "Sigmoid", "Relu", false},
		{onnx.Float, "Unheard", "Relu", true},
	} {
		nodes, facts := model(c.typ, c.op)
		others, of := model(c.typ, c.other)
		if err := ort.Lacks(nodes, facts, others, of); (err != nil) != c.lacks {
			t.Errorf("%s for %s of %s: %v", c.op, c.other, c.typ, err)
		}
	}
}
