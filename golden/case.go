package golden

import (
	"fmt"
	"os"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Case is one set of inputs of a model with their outputs. The tensors have the names of the model's inputs and
// outputs.
type Case struct {
	Inputs, Outputs []*onnx.Tensor
	Follows         []Follow // inputs that are not among Inputs: see WithOwnPasts
}

// Load reads the cases of path: an .npz file (see the package comment for its keys), a folder with ONNX test data
// (test_data_set_0, test_data_set_1, …), or one such test_data_set folder. The model m provides names by position for
// .pb files without names, and the types that .npz cannot express; it may be nil.
func Load(path string, m *onnx.Model) ([]Case, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read recorded cases: %w", err)
	}
	load := loadNPZ
	if info.IsDir() {
		load = loadDir
	}
	cases, err := load(path, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cases, nil
}

// Input returns the case's input of this name, or nil.
func (c Case) Input(name string) *onnx.Tensor { return byName(c.Inputs, name) }

// Output returns the case's output of this name, or nil.
func (c Case) Output(name string) *onnx.Tensor { return byName(c.Outputs, name) }

func byName(list []*onnx.Tensor, name string) *onnx.Tensor {
	for _, t := range list {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// inputValues lists the inputs of the model that a caller must supply: those without a default.
func inputValues(m *onnx.Model) []*onnx.Value {
	if m == nil {
		return nil
	}
	var list []*onnx.Value
	for _, v := range m.Graph.Inputs {
		if v.Const == nil {
			list = append(list, v)
		}
	}
	return list
}

func outputValues(m *onnx.Model) []*onnx.Value {
	if m == nil {
		return nil
	}
	return m.Graph.Outputs
}

// declared returns the type that the model declares for the input or output of this name, or Undefined.
func declared(values []*onnx.Value, name string) onnx.DataType {
	for _, v := range values {
		if v.Name == name {
			t, _ := v.Type()
			return t.DataType
		}
	}
	return onnx.Undefined
}
