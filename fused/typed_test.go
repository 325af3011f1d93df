package fused

import (
	"reflect"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

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
