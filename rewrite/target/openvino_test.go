package target

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

const f32, f16, bf16 = onnx.Float, onnx.Float16, onnx.BFloat16

// ulps gives a few units in the last place of a type.
func ulps(t onnx.DataType) float64 {
	return map[onnx.DataType]float64{f32: 1e-6, f16: 2e-3, bf16: 1.6e-2}[t]
}

func TestOpenVINONorms(t *testing.T) {
	x, w := []int64{2, 3, 8}, []int64{8}
	for _, c := range []trial{
		{"float32", "RMSNorm", normAttributes(-1, 0), all(f32, 2), [][]int64{x, w}, nil},
		{"scale after the cast", "RMSNorm", normAttributes(-1, 1), all(f16, 2), [][]int64{x, w}, nil},
		{"bfloat16", "RMSNorm", normAttributes(-1, 0), all(bf16, 2), [][]int64{x, w}, nil},
		{"a wide scale", "RMSNorm", normAttributes(-1, 0), []onnx.DataType{f16, f32}, [][]int64{x, w}, nil},
		{"a narrow scale", "RMSNorm", normAttributes(-1, 1), []onnx.DataType{f32, f16}, [][]int64{x, w}, nil},
		{"dimensions unknown", "RMSNorm", normAttributes(-1, 0), all(f32, 2), [][]int64{x, w}, [][]int64{{-1, -1, 8}, w}},
		{"a sum", "AddRMSNorm", normAttributes(-1, 0), all(f32, 3), [][]int64{x, x, w}, nil},
		{"a sum, a wide scale", "AddRMSNorm", normAttributes(-1, 0), []onnx.DataType{bf16, bf16, f32}, [][]int64{x, x, w}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := c.same(t, openvino, 2*max(ulps(c.types[0]), ulps(c.types[len(c.types)-1])))
			if !slices.Contains(ops, "SimplifiedLayerNormalization") {
				t.Errorf("wrote %v", ops)
			}
		})
	}
	two := trial{"two axes", "RMSNorm", normAttributes(-2, 0), all(f32, 2), [][]int64{x, {3, 8}}, nil}
	two.open(t, openvino, "last axis")
	row := trial{"one dimension", "RMSNorm", normAttributes(-1, 0), all(f32, 2), [][]int64{w, w}, nil}
	row.open(t, openvino, "rank 1")
	row.unknown = [][]int64{nil, w}
	row.open(t, openvino, "rank unknown")
}

// TestOpenVINORotary: every rotation of three and four dimensions becomes the one form that OpenVINO recognises, with
// tables that have as many.
func TestOpenVINORotary(t *testing.T) {
	const heads = 3
	for _, x := range [][]int64{{2, heads, 5, 8}, {heads, 5, 8}} {
		rows := x[len(x)-2]
		for _, r := range []int64{8, 4} {
			for _, wide := range []int64{r, r / 2} {
				for _, side := range []string{"first", "last"} {
					for _, layout := range []string{"halves", "interleaved"} {
						for interleaved := range int64(2) {
							c := trial{op: "RotaryEmbedding", attrs: rotaryAttributes(interleaved, r, side, layout), types: all(f16, 3),
								dims: [][]int64{x, {rows, wide}, {rows, wide}}}
							t.Run(fmt.Sprint(x, c.dims[1], side, layout, interleaved), func(t *testing.T) {
								c.same(t, openvino, 0)
								checkRotateHalf(t, c)
							})
						}
					}
				}
			}
		}
	}
}

// checkRotateHalf looks at the graph: one Neg of a Slice, and tables of the rank of X in the products.
func checkRotateHalf(t *testing.T, c trial) {
	t.Helper()
	m, call := c.model(t)
	if _, err := openvino.Write(call); err != nil {
		t.Fatal(err)
	}
	negs := 0
	for _, n := range m.Graph.Nodes {
		switch n.OpType {
		case "Neg":
			negs++
			if p := n.Input(0).Producer; p == nil || p.OpType != "Slice" {
				t.Error("Neg reads no Slice")
			}
		case "Mul":
			if n.Input(1).IsInput { // a table as it is
				t.Errorf("a product reads the table %s as it is, with 2 dimensions", n.Input(1).Name)
			}
		}
	}
	if negs != 1 {
		t.Errorf("%d times Neg", negs)
	}
}

func TestOpenVINORotaryOpen(t *testing.T) {
	table := []int64{5, 8}
	c := trial{op: "RotaryEmbedding", attrs: rotaryAttributes(0, 8, "first", "halves"), types: all(f32, 3), dims: [][]int64{{5, 8}, table, table}}
	c.open(t, openvino, "rank 2")
	c.dims[0] = []int64{2, 2, 2, 5, 8}
	c.open(t, openvino, "rank 5")
	c.attrs, c.dims[0] = rotaryAttributes(0, 8, "last", "halves"), []int64{2, 5, 12}
	c.unknown = [][]int64{{2, 5, -1}, table, table}
	c.open(t, openvino, "last dimension")
	c.unknown = [][]int64{{2, 5, 12}, nil, table}
	c.open(t, openvino, "rank of input 1")
}
