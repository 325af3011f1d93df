package streams_test

import (
	"testing"

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
