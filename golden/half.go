package golden

import "github.com/mojo-patch/mojo-patch/onnx"

// Half returns the type of half precision that a model has weights of, Undefined where it has none.
func Half(m *onnx.Model) onnx.DataType {
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			if v.Const.DataType.IsHalf() {
				return v.Const.DataType
			}
		}
	}
	return onnx.Undefined
}
