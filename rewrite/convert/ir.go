package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// plainInitializersIR is the first IR version in which an initializer need not be an input as well, and in which one
// that is may be overridden by callers. Before it every initializer had to be listed, and onnxruntime takes all for
// constants.
const plainInitializersIR = 4

// PlainInitializers takes the initializers of a model of an old IR version out of its inputs, so that they stay
// constants when the version is raised. The result undoes it.
func PlainInitializers(m *onnx.Model) (undo func()) {
	if m.IRVersion >= plainInitializersIR || m.Graph == nil {
		return func() {}
	}
	inputs := m.Graph.Inputs
	var listed []*onnx.Value
	kept := slices.DeleteFunc(slices.Clone(inputs), func(v *onnx.Value) bool {
		if v.Const != nil {
			listed = append(listed, v)
		}
		return v.Const != nil
	})
	set := func(inputs []*onnx.Value, isInput bool) {
		m.Graph.Inputs = inputs
		for _, v := range listed {
			v.IsInput = isInput
		}
	}
	set(kept, false)
	return func() { set(inputs, true) }
}

// RaiseIR raises the IR version of a model to one that is newer. What was a constant stays one.
func RaiseIR(m *onnx.Model, version int64) {
	if version >= plainInitializersIR {
		PlainInitializers(m)
	}
	m.IRVersion = max(m.IRVersion, version)
}
