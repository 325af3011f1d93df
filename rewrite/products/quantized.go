package products

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// isQuantizedProjection is isProjection for mojo.Linear.
func isQuantizedProjection(n *onnx.Node) bool {
	return n.Domain == fused.Domain && n.OpType == fused.LinearName && len(n.Inputs) > fused.LinearScale &&
		!slices.ContainsFunc(n.Inputs[1:], func(w *onnx.Value) bool {
			return w != nil && (!w.IsConstant() || w.Producer != nil || len(w.Uses()) != 1 || w.IsOutput() ||
				w.Graph != n.Graph)
		})
}

// quantizedKind is equal for products whose panels can be stacked: one format, one width, the same inputs.
func quantizedKind(n *onnx.Node) string {
	isRows := func(a *onnx.Attribute) bool { return a.Name == fused.AttrN }
	attrs := slices.DeleteFunc(slices.Clone(n.Attributes), isRows)
	kind := n.Overload + onnx.AttributesKey(attrs)
	for _, w := range n.Inputs[1:] {
		if w != nil {
			kind += fmt.Sprint(" ", w.Const.DataType)
		} else {
			kind += " -"
		}
	}
	return kind + " " + edit.FormatOf(n)
}

// wholePanels drops products whose last panel is partial, because another product's would follow.
func wholePanels(group []*onnx.Node) []*onnx.Node {
	whole := slices.DeleteFunc(slices.Clone(group), func(n *onnx.Node) bool {
		return n.AttrInt(fused.AttrN, 0)%blocks.PanelRows != 0
	})
	if last := group[len(group)-1]; len(whole) > 0 && !slices.Contains(whole, last) {
		whole = append(whole, last)
	}
	return whole
}

// mergeQuantized replaces several mojo.Linear of one value by one, with stacked panels, and a Split.
func (m *merger) mergeQuantized(g *onnx.Graph, group []*onnx.Node) error {
	first := group[0]
	var columns []int64
	var matrices []edit.MergedMatrix
	total := int64(0)
	for _, n := range group {
		rows := fused.Read[fused.Linear](n.Attributes).N
		columns = append(columns, rows)
		matrices = append(matrices, edit.MergedMatrix{Codes: n.Input(fused.LinearCodes).Name, N: rows})
		total += rows
	}
	named, err := json.Marshal(matrices)
	if err != nil {
		return err
	}
	product, err := m.together(g, group, nil)
	if err != nil {
		return err
	}
	m.edit.SetAttr(product, onnx.IntAttr(fused.AttrN, total))
	product.Metadata = []onnx.Entry{{Key: edit.MetaFormat, Value: edit.FormatOf(first)},
		{Key: edit.MetaMatrices, Value: string(named)}}
	m.split(g, product, columns, group)
	return nil
}
