package op

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// BoundsHold is TestBounds for one op.
func BoundsHold(t *testing.T, o *Op) {
	for _, spec := range o.Attributes {
		if spec.Type == onnx.AttrString {
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
		{Flag, "0 or 1"},
		{Finite, "a finite number"},
		{NotNegative, "a finite number of at least 0"},
		{AtLeast(1), "a number of at least 1"},
		{Bounds{Least: -16, Most: -1, Note: "negative"}, "from -16 to -1 (negative)"},
		{Bounds{Least: 2, Most: math.MaxInt64, Multiple: 2}, "an even number of at least 2"},
		{Multiples(32), "a multiple of 32 up to 2147483647"},
		{Only(0, math.Inf(-1)), "0 or minus infinity"},
		{Only(16, 32, 128), "16, 32 or 128"},
	} {
		if got := test.b.String(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.b, got, test.want)
		}
	}
}
