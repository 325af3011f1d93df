package fused

import (
	"math"
	"reflect"
	"slices"
	"strings"
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
			want := slices.Clone(f.Attributes)
			slices.SortStableFunc(want, func(a, b *onnx.Attribute) int { return o.place(a.Name) - o.place(b.Name) })
			got := typed[o.Name](f.Attributes)
			if got.OpType() != o.Name || !reflect.DeepEqual(got.Attributes(), want) {
				t.Errorf("%s: %v is read as %+v", o.Name, want, got)
			}
		}
	}
}

// TestBounds checks each op at the bounds of each number, and just outside, which is refused by name.
func TestBounds(t *testing.T) {
	for _, o := range Ops() {
		for _, spec := range o.Attributes {
			if len(spec.Values) > 0 {
				continue
			}
			if b := spec.Bounds; b.Only == nil && b.Least >= b.Most {
				t.Errorf("%s: %s has no bounds", o.Name, spec.Name)
			}
			for _, v := range beyond(spec) {
				attrs := slices.Clone(o.Forms()[0].Attributes)
				at := slices.IndexFunc(attrs, func(a *onnx.Attribute) bool { return a.Name == spec.Name })
				attrs[at] = v
				err := o.checkAttributes(attrs)
				if err == nil || !strings.Contains(err.Error(), "attribute "+spec.Name+" is "+valueOf(v)) {
					t.Errorf("%s with %s %s: %v", o.Name, spec.Name, valueOf(v), err)
				}
			}
		}
		for _, r := range o.Rules {
			for _, name := range []string{r.Attribute, r.With, r.AtMost} {
				if name != "" && o.place(name) < 0 {
					t.Errorf("%s has a rule about %s, which it lacks", o.Name, name)
				}
			}
		}
	}
}

// beyond lists values that are just outside of an attribute's bounds.
func beyond(spec AttributeSpec) []*onnx.Attribute {
	b := spec.Bounds
	if spec.Type == onnx.AttrFloat {
		list := []*onnx.Attribute{onnx.FloatAttr(spec.Name, float32(math.NaN())),
			onnx.FloatAttr(spec.Name, float32(math.Inf(1)))}
		if b.Least == 0 {
			list = append(list, onnx.FloatAttr(spec.Name, -math.SmallestNonzeroFloat32))
		}
		return list
	}
	list := []*onnx.Attribute{onnx.IntAttr(spec.Name, math.MinInt64), onnx.IntAttr(spec.Name, int64(b.Least)-1)}
	if b.Most < math.MaxInt64 {
		list = append(list, onnx.IntAttr(spec.Name, int64(b.Most)+1))
	}
	if b.Multiple > 1 {
		list = append(list, onnx.IntAttr(spec.Name, 2*b.Multiple+1))
	}
	return list
}

func TestBoundsInWords(t *testing.T) {
	for _, test := range []struct {
		b    Bounds
		want string
	}{
		{flag, "0 or 1"},
		{finite, "a finite number"},
		{notNegative, "a finite number of at least 0"},
		{atLeast(1), "a number of at least 1"},
		{Bounds{Least: -16, Most: -1, Note: "negative"}, "from -16 to -1 (negative)"},
		{Bounds{Least: 2, Most: math.MaxInt64, Multiple: 2}, "an even number of at least 2"},
		{size(32), "a multiple of 32 up to 2147483647"},
		{only(0, math.Inf(-1)), "0 or minus infinity"},
		{only(16, 32, 128), "16, 32 or 128"},
	} {
		if got := test.b.String(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.b, got, test.want)
		}
	}
}
