package generate

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// ChooseBesideLogits says whether likeliest tokens are chosen beside the logits, wherever these lie.
func (g *Generator) ChooseBesideLogits(beside bool) { g.feeds = beside }

// FeederModel is that for logits [rows, 1, vocabulary], a length and positions.
func FeederModel(logits, ids onnx.DataType, rows, vocabulary int64) *onnx.Model {
	value := func(name string, dt onnx.DataType, dims ...int64) *ort.Value {
		return &ort.Value{Name: name, DataType: dt, Dims: dims}
	}
	return feederModel(&steps{logits: value("logits", logits, rows, 1, vocabulary),
		ports: []port{{name: "input_ids"}, {name: "length"}, {name: "positions"}},
		fed: []*ort.Value{value("input_ids", ids, rows, 1), value("length", onnx.Int64, 1),
			value("positions", ids, rows, 1)}})
}
