package onnx_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

func TestReach(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 2)
	y := b.Op("Neg", x)
	z := b.Op("Add", y, x)
	w := b.Op("Mul", z, y)
	names := func(values []*onnx.Value) (list []string) {
		for _, v := range values {
			list = append(list, v.Name)
		}
		return list
	}
	never := func(*onnx.Value) bool { return false }
	is := func(v *onnx.Value) func(*onnx.Value) bool { return func(u *onnx.Value) bool { return u == v } }
	for i, test := range []struct{ got, want []*onnx.Value }{
		{slices.Collect(onnx.Upstream(never, w)), []*onnx.Value{w, z, y, x}},
		{slices.Collect(onnx.Upstream(is(y), w)), []*onnx.Value{w, z, x}},
		{slices.Collect(onnx.Downstream(never, x, nil, x)), []*onnx.Value{x, y, z, w}},
		{slices.Collect(onnx.Downstream(is(z), y)), []*onnx.Value{y, w}},
		{slices.Collect(onnx.Near(1, (*onnx.Value).MadeFrom, z)), []*onnx.Value{z, y, x}},
		{slices.Collect(onnx.Near(0, (*onnx.Value).MadeFrom, z)), []*onnx.Value{z}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%d: %q, expected %q", i, names(test.got), names(test.want))
		}
	}
	for v := range onnx.Upstream(never, w) {
		if v == z {
			break
		}
	}
	if set := onnx.SetOf(onnx.Upstream(never, y)); len(set) != 2 || !set[x] || !set[y] {
		t.Errorf("a set of %d", len(set))
	}
}
