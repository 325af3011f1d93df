package fused

import (
	"reflect"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// typed reads attributes into the struct of each op, and returns them as it writes them.
var typed = map[string]func([]*onnx.Attribute) Typed{
	"RMSNorm":         func(a []*onnx.Attribute) Typed { return Read[RMSNorm](a) },
	"AddRMSNorm":      func(a []*onnx.Attribute) Typed { return Read[AddRMSNorm](a) },
	"GatedRMSNorm":    func(a []*onnx.Attribute) Typed { return Read[GatedRMSNorm](a) },
	"GLU":             func(a []*onnx.Attribute) Typed { return Read[GLU](a) },
	"RotaryEmbedding": func(a []*onnx.Attribute) Typed { return Read[RotaryEmbedding](a) },
	"NormRotary":      func(a []*onnx.Attribute) Typed { return Read[NormRotary](a) },
	"TopKRouter":      func(a []*onnx.Attribute) Typed { return Read[TopKRouter](a) },
	"MoE":             func(a []*onnx.Attribute) Typed { return Read[MoE](a) },
	"Attention":       func(a []*onnx.Attribute) Typed { return Read[Attention](a) },
	"LatentAttention": func(a []*onnx.Attribute) Typed { return Read[LatentAttention](a) },
	"PagedAttention":  func(a []*onnx.Attribute) Typed { return Read[PagedAttention](a) },
	"NormQuantize":    func(a []*onnx.Attribute) Typed { return Read[NormQuantize](a) },
	"LinearAttention": func(a []*onnx.Attribute) Typed { return Read[LinearAttention](a) },
	"CausalConv":      func(a []*onnx.Attribute) Typed { return Read[CausalConv](a) },
	"AddLayerNorm":    func(a []*onnx.Attribute) Typed { return Read[AddLayerNorm](a) },
	"BiasGELU":        func(a []*onnx.Attribute) Typed { return Read[BiasGELU](a) },
	"Linear":          func(a []*onnx.Attribute) Typed { return Read[Linear](a) },
	"HalfLinear":      func(a []*onnx.Attribute) Typed { return Read[HalfLinear](a) },
	"Embedding":       func(a []*onnx.Attribute) Typed { return Read[Embedding](a) },
	"QMoE":            func(a []*onnx.Attribute) Typed { return Read[QMoE](a) },
}

// TestTypedAttributes checks that structs write the attributes they read, in the order of the declaration.
func TestTypedAttributes(t *testing.T) {
	for _, o := range Ops() {
		if typed[o.Name] == nil {
			t.Errorf("%s has no struct in the test", o.Name)
			continue
		}
		for _, f := range o.Forms() {
			place := func(a *onnx.Attribute) int {
				return slices.IndexFunc(o.Attributes, func(spec AttributeSpec) bool { return spec.Name == a.Name })
			}
			want := slices.Clone(f.Attributes)
			slices.SortStableFunc(want, func(a, b *onnx.Attribute) int { return place(a) - place(b) })
			got := typed[o.Name](f.Attributes)
			if got.OpType() != o.Name || !reflect.DeepEqual(got.Attributes(), want) {
				t.Errorf("%s: %v is read as %+v", o.Name, want, got)
			}
		}
	}
}
