package streams_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// grow adds blocks to a stream whose results overflow in float16.
func (d *decoder) grow(x *onnx.Value) *onnx.Value {
	for range 2 {
		h := d.Op("Relu", d.Op("MatMul", d.rmsNorm(x, 1), d.weight(1, width, width)))
		x = d.Op("Add", x, d.Op("MatMul", h, d.weight(10000, width, width)))
	}
	return x
}

// TestBridges scales streams that begin or end at a node that does not scale.
func TestBridges(t *testing.T) {
	for name, build := range map[string]func(*decoder){
		"it begins behind a Gelu": func(d *decoder) {
			table, x := d.embedding(1)
			d.head(d.rmsNorm(d.grow(d.Op("Gelu", x)), 0.2), table)
		},
		"it begins at an input": func(d *decoder) {
			x := d.Input("inputs_embeds", onnx.Float, "batch", "sequence", width)
			d.logits(d.Op("MatMul", d.rmsNorm(d.grow(x), 0.2), d.weight(0.3, width, 32)))
		},
		"a norm without weights before the head with its table": func(d *decoder) {
			ids := d.Input("input_ids", onnx.Int64, "batch", "sequence")
			table := d.weight(1, 1100, width)
			x := d.grow(d.Op("Gather", table, ids))
			mean := d.Op("ReduceMean", d.Op("Mul", x, x), []int64{-1})
			d.head(d.Op("Div", x, d.Op("Sqrt", d.Op("Add", mean, 1e-6))), table)
		},
		"a block reads it without a norm": func(d *decoder) {
			table, x := d.embedding(1)
			first := d.Op("MatMul", d.Op("Softmax", x), d.weight(1, width, width))
			d.head(d.rmsNorm(d.grow(d.Op("Add", x, first)), 0.2), table)
		},
		"a small value of it is an output": func(d *decoder) {
			table, x := d.embedding(1)
			first := d.Op("Add", x, d.Op("MatMul", d.rmsNorm(x, 1), d.weight(1, width, width)))
			d.Output(first)
			d.head(d.rmsNorm(d.grow(first), 0.2), table)
		},
		"its end is an output": func(d *decoder) {
			table, x := d.embedding(1)
			x = d.grow(x)
			d.Output(x)
			d.head(d.rmsNorm(x, 0.2), table)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder()
			build(d)
			s := safely(t, d.Model, streams.Options{})
			safe, brain := s.Report.Compare[0], s.Report.Compare[2]
			if safe.NotFinite > 0 || safe.FirstNaN != "" || safe.Error > brain.Error {
				t.Errorf("%+v, in bfloat16 %+v", safe, brain)
			}
		})
	}
}

// TestFixed scales a stream between weights that must not change.
func TestFixed(t *testing.T) {
	d := newDecoder()
	table, x := d.embedding(1)
	d.head(d.rmsNorm(d.grow(x), 0.2), table)
	fixed, want := map[string]bool{}, map[string][]float64{}
	for _, v := range d.Graph.Initializers() {
		if fixed[v.Name] = len(v.Const.Dims) == 2; fixed[v.Name] {
			half, err := golden.Convert(v.Const, onnx.Float16)
			if err != nil {
				t.Fatal(err)
			}
			want[v.Name], _ = golden.Float64s(half)
		}
	}
	s := safely(t, d.Model, streams.Options{Fixed: fixed})
	safe, brain := s.Report.Compare[0], s.Report.Compare[2]
	if len(want) != 5 || len(s.Report.Bridges) == 0 || safe.NotFinite > 0 || safe.Error > brain.Error {
		t.Errorf("%d weights, %d bridges, %+v, in bfloat16 %+v", len(want), len(s.Report.Bridges), safe, brain)
	}
	for name, list := range want {
		got, err := golden.Float64s(d.Graph.Value(name).Const)
		for i, x := range got {
			if math.Abs(x-list[i]) > math.Abs(x)*0x1p-10 || err != nil {
				t.Fatalf("%s: element %d is %g, want %g, %v", name, i, x, list[i], err)
			}
		}
	}
}
