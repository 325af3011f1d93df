package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// DeclareFixed declares the numbers of input and output dimensions that ops fix but the model only names.
// onnxruntime-genai's builder names the width of a head in a cache kv_cache_dim, and GroupQueryAttention requires one
// number there.
func DeclareFixed(m *onnx.Model) {
	if !slices.ContainsFunc(m.Graph.Nodes, widthIsNamed) {
		return
	}
	f := Analyze(m)
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		t, ok := v.Type()
		if !ok || !t.HasShape {
			continue
		}
		t.Dims = slices.Clone(t.Dims)
		for i, d := range t.Dims {
			if n, known := f.Dim(v, i); known && d.Param != "" {
				t.Dims[i] = onnx.Dim{Value: n}
			}
		}
		v.SetType(t)
	}
}

// widthIsNamed reports whether a node reads a cache whose last dimension is not a number.
func widthIsNamed(n *onnx.Node) bool {
	if n.OpType != "GroupQueryAttention" || n.Domain != onnx.Microsoft {
		return false
	}
	past := n.Input(3)
	if past == nil {
		return false
	}
	t, ok := past.Type()
	return ok && len(t.Dims) == 4 && t.Dims[3].Param != ""
}
