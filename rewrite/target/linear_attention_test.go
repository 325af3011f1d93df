package target

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// linearSite is a LinearAttention of two sequences of three tokens, of heads of 8 and 5 channels.
func linearSite(attrs fused.LinearAttention, t onnx.DataType, past, decay, beta bool) site {
	attrs.Epsilon = 1e-3
	s := site{op: attrs.OpType(), attrs: attrs.Attributes(), types: []onnx.DataType{t, t, t, f32, f32, f32},
		dims: [][]int64{{2, 3, 8 * attrs.QHeads}, {2, 3, 8 * attrs.KHeads}, {2, 3, 5 * attrs.VHeads},
			{2, attrs.VHeads, 8, 5}, {2, 3, attrs.VHeads}, {2, 3, attrs.VHeads}}}
	for i, given := range []bool{past, decay, beta} {
		if !given {
			s.types[3+i], s.dims[3+i] = onnx.Undefined, nil
		}
	}
	return s
}

// convSite is a CausalConv of four channels and weights of four tokens; with kept = 0 it has no past.
func convSite(activation string, t onnx.DataType, kept int64) site {
	s := site{op: fused.CausalConvName, attrs: fused.CausalConv{Activation: activation}.Attributes(),
		types: []onnx.DataType{t, t, t, t}, dims: [][]int64{{2, 4, 6}, {4, 1, 4}, {4}, {2, 4, kept}}}
	if kept == 0 {
		s.types, s.dims = s.types[:3], s.dims[:3]
	}
	return s
}

// gatedSite is a GatedRMSNorm of rows of 8 channels.
func gatedSite(attrs fused.GatedRMSNorm, t onnx.DataType) site {
	attrs.Epsilon, attrs.Groups = 1e-3, max(attrs.Groups, 1)
	return site{op: attrs.OpType(), attrs: attrs.Attributes(), types: []onnx.DataType{t, t, t},
		dims: [][]int64{{2, -1, 8}, {2, -1, 8}, {8}}, run: [][]int{{2, 3, 8}, {2, 3, 8}, {8}}}
}

// TestGatedRMSNorm: onnxruntime has GatedRMSNorm from 1.30 on, and only with the gate behind the norm.
func TestGatedRMSNorm(t *testing.T) {
	const norm = "SimplifiedLayerNormalization"
	of := func(name string) *Target {
		to, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	after, first := fused.GatedRMSNorm{}, fused.GatedRMSNorm{GateFirst: true}
	for _, c := range []struct {
		name string
		to   *Target
		site site
		ops  string
	}{
		{"any version", ort, gatedSite(after, f32), "com.microsoft.QuickGelu " + norm + " Mul"},
		{"any version, the gate first", ort, gatedSite(first, f32), "com.microsoft.QuickGelu Mul " + norm},
		{"1.29", of("ort@1.29"), gatedSite(after, f32), "com.microsoft.QuickGelu " + norm + " Mul"},
		{"1.30", of("ort@1.30"), gatedSite(after, f32), "com.microsoft.GatedRMSNorm"},
		{"1.30 in float16", of("ort@1.30"), gatedSite(after, f16), "com.microsoft.GatedRMSNorm"},
		{"1.30, the gate first", of("ort@1.30"), gatedSite(first, f32), "com.microsoft.QuickGelu Mul " + norm},
		{"1.30, rounded in between", of("ort@1.30"), gatedSite(fused.GatedRMSNorm{ScaleAfterCast: true}, f32),
			"com.microsoft.GatedRMSNorm"},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, c.to, c.site, c.ops) })
	}
	for _, c := range []struct {
		name, reason string
		to           *Target
		site         site
	}{
		{"float16", "written for float32, not float16", ort, gatedSite(after, f16)},
		{"rounded in between", "written for float32, not float16", of("ort@1.30"),
			gatedSite(fused.GatedRMSNorm{ScaleAfterCast: true}, f16)},
		{"groups", "has no groups of channels, and there are 2", ort, gatedSite(fused.GatedRMSNorm{Groups: 2}, f32)},
	} {
		t.Run("open: "+c.name, func(t *testing.T) { open(t, c.to, c.site, c.reason) })
	}
	for name, reason := range map[string]string{"ort@1.2": "kernels of 1.29, 1.30", "qnn@1.31": "has no versions"} {
		if _, err := Lookup(name); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", name, err, reason)
		}
	}
}

func TestLinearAttention(t *testing.T) {
	const (
		unit = "Reshape Mul ReduceSum Add Sqrt Div Reshape "
		op   = "com.microsoft.LinearAttention"
		conv = "com.microsoft.CausalConvWithState"
	)
	one := fused.LinearAttention{QHeads: 2, KHeads: 2, VHeads: 2, Scale: 0.25}
	few, many, normed := one, one, one
	few.VHeads, many.QHeads, normed.L2Norm = 4, 4, true
	for _, c := range []struct {
		name string
		to   *Target
		site site
		ops  string
	}{
		{"linear", ort, linearSite(one, f32, false, false, false), op},
		{"gated", ort, linearSite(few, f32, true, true, false), op},
		{"delta", ort, linearSite(one, f32, true, false, true), op},
		{"gated delta", ort, linearSite(many, f32, true, true, true), op},
		{"float16", ort, linearSite(one, f16, true, true, true), "Cast Cast Cast " + op + " Cast"},
		{"normalized", ort, linearSite(normed, f32, true, true, true), unit + unit + op},
		{"convolution", ort, convSite("silu", f32, 3), conv},
		{"convolution, nothing kept before", ort, convSite("none", f32, 0), conv},
		{"convolution that keeps more", ort, convSite("silu", f32, 5), "Concat Slice Conv Sigmoid Mul Slice"},
		{"convolution, written out", standard, convSite("silu", f32, 3), "Concat Conv Sigmoid Mul Slice"},
		{"convolution, nothing kept before, written out", standard, convSite("none", f32, 0), "Pad Conv Slice"},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, c.to, c.site, c.ops) })
	}
	zero := one
	zero.Scale = 0
	for _, c := range []struct {
		name, reason string
		to           *Target
		site         site
	}{
		{"a scale of 0", "a scale of 0 as its default", ort, linearSite(zero, f32, true, true, true)},
		{"the standard's, older opset", "LinearAttention is an op of opset 27, the model has 24", standard,
			linearSite(one, f32, true, true, true)},
		{"the standard's, shared keys", "here are 2 heads of queries, 2 of keys and 4 of values", standard,
			linearSite(few, f32, true, true, true)},
	} {
		t.Run("open: "+c.name, func(t *testing.T) { open(t, c.to, c.site, c.reason) })
	}
}
