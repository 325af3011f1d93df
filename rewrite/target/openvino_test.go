package target

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestOpenVINONorms(t *testing.T) {
	x, w := []int64{2, 3, 8}, []int64{8}
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	const norm = "SimplifiedLayerNormalization"
	for _, c := range []struct {
		name string
		site site
		ops  string
	}{
		{"float32", normSite("RMSNorm", 0, types(f32, f32), x, w), norm},
		{"scale after the cast", normSite("RMSNorm", 1, types(f16, f16), x, w), norm},
		{"bfloat16", normSite("RMSNorm", 0, types(bf16, bf16), x, w), norm},
		{"a wide scale", normSite("RMSNorm", 0, types(bf16, f32), x, w), "Cast " + norm + " Cast"},
		{"a narrow scale", normSite("RMSNorm", 1, types(f32, f16), x, w), "Cast " + norm + " Cast"},
		{"a sum", normSite("AddRMSNorm", 0, types(f32, f32, f32), x, x, w), "Add " + norm},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, openvino, c.site, c.ops) })
	}
	two := normSite("RMSNorm", 0, types(f32, f32), x, []int64{3, 8})
	two.attrs[0] = onnx.IntAttr("axis", -2)
	open(t, openvino, two, "axis -2 of X, [2, 3, 8]")
	open(t, openvino, normSite("RMSNorm", 0, types(f32, f32), w, w), "X, [8]")
	open(t, openvino, normSite("RMSNorm", 0, types(f32, f32), nil, w), "of unknown rank")
	open(t, openvino, gluSite("silu", 1, 0, 0, f32), "target openvino has nothing for mojo.GLU")
}

// TestOpenVINORotary: every rotation of three or four dimensions becomes the one form that OpenVINO recognizes, with
// tables of the same rank.
func TestOpenVINORotary(t *testing.T) {
	for _, x := range [][]int64{{2, 3, 5, 8}, {3, 5, 8}} {
		for _, r := range []int64{8, 4} {
			for _, wide := range []int64{r, r / 2} {
				for _, side := range []string{"first", "last"} {
					for _, layout := range []string{"halves", "interleaved"} {
						for interleaved := range int64(2) {
							s := rotarySite(interleaved, r, side, layout, x, []int64{5, wide})
							t.Run(fmt.Sprint(x, wide, side, r, layout, interleaved), func(t *testing.T) {
								checkRotateHalf(t, same(t, openvino, s.typed(f16, f16, f16)))
							})
						}
					}
				}
			}
		}
	}
	table := []int{2, 1, 5, 4}
	dynamic := rotarySite(0, 4, "first", "halves", []int64{-1, -1, -1, -1}, []int64{-1, 1, -1, 4},
		[]int{2, 3, 5, 9}, table, table)
	taken(t, openvino, dynamic, "Slice Slice Slice Slice Neg Concat Mul Mul Add Concat")
	open(t, openvino, rotarySite(0, 4, "last", "halves", []int64{-1, -1, -1, -1}, []int64{5, 4}),
		"the last dimension of X is")
	open(t, openvino, rotarySite(0, 8, "first", "halves", []int64{5, 8}, []int64{5, 8}), "but X is [5, 8]")
	open(t, openvino, rotarySite(0, 8, "first", "halves", []int64{2, 2, 2, 5, 8}, []int64{5, 8}),
		"but X is [2, 2, 2, 5, 8]")
}

// checkRotateHalf checks the form that OpenVINO expects: one Neg, of a Slice, and no product that reads a table
// directly.
func checkRotateHalf(t *testing.T, g *onnx.Graph) {
	t.Helper()
	negs := 0
	for _, n := range g.Nodes {
		switch n.OpType {
		case "Neg":
			negs++
			if p := n.Input(0).Producer; p == nil || p.OpType != "Slice" {
				t.Error("Neg reads no Slice")
			}
		case "Mul":
			if n.Input(1).IsInput {
				t.Errorf("a product reads the table %s as it is", n.Input(1).Name)
			}
		}
	}
	if negs != 1 {
		t.Errorf("%d times Neg: %s", negs, written(g))
	}
}

// TestOpenVINOAttention: two products, with a scale, a cap, an added mask and a softmax between them.
func TestOpenVINOAttention(t *testing.T) {
	const products = "Transpose MatMul Mul "
	const repeated = "Unsqueeze Expand Reshape "
	const given = "Identity " + repeated
	const bias, masked = "ReduceMax IsInf ", "Add Softmax MatMul Where"
	for _, c := range []struct {
		name string
		site attend
		ops  string
	}{
		{"no mask", attend{layouts: "hhhh"}, given + given + products + "Softmax MatMul"},
		{"a mask", attend{layouts: "hhhh", bias: true}, bias + given + given + products + masked},
		{"a cap, float16", attend{layouts: "hhhh", bias: true, softcap: 1.5, typ: f16}, "Cast " + bias + given + given +
			"Transpose MatMul Cast Mul Cast Mul Tanh Cast Mul Add Softmax MatMul Cast Where"},
		{"a cache, tokens first", attend{layouts: "tttt", keys: 5, bias: true},
			bias + "Transpose Transpose Transpose Concat " + repeated + "Concat " + repeated + products + masked +
				" Transpose"},
	} {
		t.Run(c.name, func(t *testing.T) { taken(t, openvino, c.site.site(), c.ops) })
	}
	for words, a := range map[string]attend{"cannot hold a sink": {layouts: "hhhh", sink: true},
		"is not added":                     {layouts: "hhhh", causal: 1},
		"Concat cannot write into a cache": {layouts: "hhhh", keys: 5, set: true},
		"are not adjacent":                 {layouts: "hhhh", order: "cyclic"}} {
		open(t, openvino, a.site(), words)
	}
}
