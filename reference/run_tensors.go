package reference

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// RunTensors is Run for ONNX tensors, by name. It returns the outputs in graph order.
func (e *Evaluator) RunTensors(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	in := make(map[string]*Tensor, len(inputs))
	for _, t := range inputs {
		v, err := FromONNX(t)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		in[t.Name] = v
	}
	out, err := e.Run(in)
	if err != nil {
		return nil, err
	}
	list := make([]*onnx.Tensor, len(e.model.Graph.Outputs))
	for i, v := range e.model.Graph.Outputs {
		if list[i], err = out[v.Name].ToONNX(v.Name); err != nil {
			return nil, fmt.Errorf("output %q: %w", v.Name, err)
		}
	}
	return list, nil
}
