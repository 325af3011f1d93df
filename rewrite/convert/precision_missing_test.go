package convert_test

import (
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// TestPrecisionWithoutWeights converts a graph whose data file is missing: types and places change, and the sites stay.
func TestPrecisionWithoutWeights(t *testing.T) {
	read := func() *onnx.Model {
		m, err := onnx.Read(filepath.Join("..", "..", "models", "smollm2", "graph.onnx"), onnx.AllowMissingData())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	for _, to := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		old, m := read(), read()
		r, err := convert.Precision(m, to)
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for _, v := range old.Graph.Initializers() {
			if v.Const.External == nil {
				continue
			}
			w := m.Graph.Value(v.Name)
			if w == nil || w.Const == nil || w.Const.External == nil {
				t.Fatalf("%s: %q has lost its place", to, v.Name)
			}
			before, after := v.Const.External, w.Const.External
			switch {
			case w.Const.DataType == onnx.Float:
				if *after != *before {
					t.Errorf("%q stays float32 and has moved", v.Name)
				}
			case w.Const.DataType != to || after.Length != before.Length/2 || after.Offset != before.Offset ||
				after.Location != before.Location:
				t.Errorf("%q: %s, %+v, before %+v", v.Name, w.Const.DataType, after, before)
			default:
				changed++
			}
		}
		if changed != r.Missing || changed < 200 {
			t.Errorf("%s: %d tensors have changed, %d are missing: %+v", to, changed, r.Missing, r)
		}
		narrow := map[string]onnx.External{}
		for _, v := range m.Graph.Initializers() {
			if v.Const.DataType == to && v.Const.External != nil {
				narrow[v.Name] = *v.Const.External
			}
		}
		wide, err := m.Clone()
		if err != nil {
			t.Fatal(err)
		}
		if r, err = convert.Precision(wide, onnx.Float); err != nil || r.Missing != len(narrow) || r.Missing < 200 {
			t.Fatalf("back to float32: %+v, %v", r, err)
		}
		for name, half := range narrow {
			c := wide.Graph.Value(name).Const
			if c.DataType != onnx.Float || c.External.Length != 2*half.Length || c.External.Offset != 2*half.Offset ||
				c.External.Checksum != "" {
				t.Errorf("%q: %s, %+v, in %s %+v", name, c.DataType, c.External, to, half)
			}
		}
		if got, want := sites(t, m), sites(t, old); got != want {
			t.Errorf("%s:\n%s\nbefore\n%s", to, got, want)
		}
	}
}
