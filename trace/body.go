package trace

import (
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// lookup returns the tensor of a value around a body, nil if the value is not available.
type lookup func(*onnx.Value) *onnx.Tensor

// all returns the tensors of values.
func (find lookup) all(values []*onnx.Value) (list []*onnx.Tensor) {
	for _, v := range values {
		list = append(list, find(v))
	}
	return list
}

// branchOf returns the name of the branch that an If takes.
func branchOf(n *onnx.Node, find lookup) (string, error) {
	holds, err := truth(find(n.Input(0)))
	return map[bool]string{true: "then_branch", false: "else_branch"}[holds], err
}

// loopStart returns the iteration limit of a Loop, whether it starts, and its initial state.
func loopStart(n *onnx.Node, find lookup) (limit int64, on bool, state []*onnx.Tensor, err error) {
	limit, on = math.MaxInt64, true
	if n.Input(0) != nil {
		list, err := numbers(find(n.Input(0)))
		if err != nil || len(list) != 1 {
			return 0, false, nil, errors.New("its number of iterations is not known")
		}
		limit = list[0]
	}
	if n.Input(1) != nil {
		if on, err = truth(find(n.Input(1))); err != nil {
			return 0, false, nil, err
		}
	}
	return limit, on, find.all(n.Inputs[min(2, len(n.Inputs)):]), nil
}

// iterationInputs returns the inputs of a Loop's body before its state: the iteration number, and true.
func iterationInputs(i int) ([]*onnx.Tensor, error) {
	going, err := onnx.NewTensor("", onnx.Bool, []int64{}, []byte{1})
	number := onnx.NewInt64s("", []int64{int64(i)})
	number.Dims = []int64{}
	return []*onnx.Tensor{number, going}, err
}

// scanStart returns a Scan's initial state, and the scanned inputs of each round.
func scanStart(n *onnx.Node, find lookup) (state []*onnx.Tensor, rounds [][]*onnx.Tensor, err error) {
	scanned := int(n.AttrInt("num_scan_inputs", 0))
	states := len(n.Inputs) - scanned
	if scanned < 1 || states < 0 {
		return nil, nil, fmt.Errorf("num_scan_inputs %d does not fit %d inputs", scanned, len(n.Inputs))
	}
	for k, v := range n.Inputs[states:] {
		along, err := places(find(v), attrAt(n, "scan_input_axes", k), attrAt(n, "scan_input_directions", k) == 1)
		if err != nil {
			return nil, nil, err
		}
		if k == 0 {
			rounds = make([][]*onnx.Tensor, len(along))
		}
		if len(along) != len(rounds) {
			return nil, nil, errors.New("its inputs have different numbers of places")
		}
		for at, t := range along {
			rounds[at] = append(rounds[at], t)
		}
	}
	return find.all(n.Inputs[:states]), rounds, nil
}

// bodyModel turns a body into a model. given are the tensors of the body's inputs. The model also takes
// outer, the values that the body reads from the graphs around it.
func bodyModel(m *onnx.Model, n *onnx.Node, name string, given []*onnx.Tensor, find lookup) (body *onnx.Model,
	outer []*onnx.Value, err error) {
	a := n.Attr(name)
	if a == nil || a.Graph == nil {
		return nil, nil, fmt.Errorf("it has no %s", name)
	}
	g := a.Graph
	if len(g.Inputs) != len(given) {
		return nil, nil, fmt.Errorf("%s has %d inputs, but got %d values", name, len(g.Inputs), len(given))
	}
	var ports []onnx.Port
	for k, v := range g.Inputs {
		if given[k] == nil {
			return nil, nil, fmt.Errorf("the input %q of %s is not a tensor", v.Name, name)
		}
		ports = append(ports, onnx.Port{Value: v, Type: rankOf(given[k])})
	}
	outer = computed(g.Reads())
	for _, v := range outer {
		t := find(v)
		if t == nil {
			return nil, nil, fmt.Errorf("%q, which %s reads, is not a tensor", v.Name, name)
		}
		ports = append(ports, onnx.Port{Value: v, Type: typeOf(t)})
	}
	body, err = m.Part(g.Nodes, ports, g.Outputs)
	return body, outer, err
}

// bodyInputs names tensors as the inputs of a body's model and checks that it has keep outputs. shared is the size of
// the tensors from outside the body, which both runs hold.
func bodyInputs(m *onnx.Model, name string, given []*onnx.Tensor, outer []*onnx.Value, find lookup, keep int) (
	inputs []*onnx.Tensor, shared int64, err error) {
	if len(m.Graph.Outputs) < keep {
		return nil, 0, fmt.Errorf("%s has %d outputs, expected %d", name, len(m.Graph.Outputs), keep)
	}
	for k, t := range given {
		inputs = append(inputs, t.Tied(m.Graph.Inputs[k].Name))
	}
	for k, v := range outer {
		t := find(v)
		shared += t.Size()
		inputs = append(inputs, t.Tied(m.Graph.Inputs[len(given)+k].Name))
	}
	return inputs, shared, nil
}
