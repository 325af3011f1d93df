package streams

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// ranges holds the largest magnitude of every float value of a model, over some inputs. It ignores infinities,
// NaN, and masked elements.
type ranges struct {
	greatest map[*onnx.Value]float64
	// masks holds, for masks and values with masked elements, the magnitude from which a negative element counts as
	// masked.
	masks map[*onnx.Value]float64
	// infinite holds the values with infinities or NaN.
	infinite map[*onnx.Value]bool
	// made holds the values computed only from constants and integers, such as masks.
	made map[*onnx.Value]bool
	// outer holds the value outside for each input of a body.
	outer map[*onnx.Value]*onnx.Value
	// ran holds the graphs that ran.
	ran map[*onnx.Graph]bool
}

func newRanges(m *onnx.Model, isFloat func(*onnx.Value) bool) *ranges {
	r := &ranges{greatest: map[*onnx.Value]float64{}, masks: map[*onnx.Value]float64{},
		infinite: map[*onnx.Value]bool{}, made: map[*onnx.Value]bool{}, outer: map[*onnx.Value]*onnx.Value{},
		ran: map[*onnx.Graph]bool{}}
	for _, n := range nodes(m.Graph) {
		r.findMade(n, isFloat)
		for _, b := range n.Borders() {
			if b.Input >= 0 {
				r.outer[b.Inner[0]] = n.Input(b.Input)
			}
		}
	}
	return r
}

// measure runs a model on inputs and returns its outputs.
func (r *ranges) measure(m *onnx.Model, inputs []*onnx.Tensor) ([]*reference.Tensor, error) {
	see := func(v *onnx.Value, t *onnx.Tensor) error {
		list, err := golden.Float64s(t)
		if err == nil {
			r.see(v, list, true)
		}
		return err
	}
	for _, n := range nodes(m.Graph) {
		for _, v := range n.Inputs {
			t := v.Constant()
			if _, seen := r.greatest[v]; seen || t == nil || !t.DataType.IsFloat() || t.Len() > fewElements {
				continue
			}
			if err := see(v, t); err != nil {
				return nil, err
			}
		}
	}
	for _, t := range inputs {
		if v := m.Graph.Value(t.Name); v != nil && t.DataType.IsFloat() {
			if err := see(v, t); err != nil {
				return nil, err
			}
		}
	}
	return run(m, inputs, func(n *onnx.Node, made []*reference.Tensor) error {
		r.look(n, made)
		return nil
	})
}

// run evaluates a model on inputs, converted to the declared types, and calls look with the results of each
// node.
func run(m *onnx.Model, inputs []*onnx.Tensor, look func(*onnx.Node, []*reference.Tensor) error) ([]*reference.Tensor,
	error) {
	graphs := numbers(m)
	o := reference.Options{Override: func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
		if _, ours := graphs[n.Graph]; !ours || n.Is("Constant") {
			return nil, nil
		}
		made, err := s.Op(n)
		if err == nil {
			err = look(n, made)
		}
		return made, err
	}}
	e, err := reference.New(m, o)
	if err != nil {
		return nil, err
	}
	given, err := asDeclared(m, inputs)
	if err != nil {
		return nil, err
	}
	computed, err := e.Run(given)
	if err != nil {
		return nil, err
	}
	var out []*reference.Tensor
	for _, v := range m.Graph.Outputs {
		out = append(out, computed[v.Name])
	}
	return out, nil
}

// asDeclared returns inputs by name, in the types declared by a model.
func asDeclared(m *onnx.Model, inputs []*onnx.Tensor) (map[string]*reference.Tensor, error) {
	given := map[string]*reference.Tensor{}
	for _, t := range inputs {
		at := slices.IndexFunc(m.Graph.Inputs, func(v *onnx.Value) bool { return v.Name == t.Name })
		if at < 0 {
			return nil, fmt.Errorf("the model has no input %q", t.Name)
		}
		var err error
		if declared, ok := m.Graph.Inputs[at].Type(); ok && t.DataType.IsFloat() && declared.DataType.IsFloat() {
			if t, err = golden.Convert(t, declared.DataType); err != nil {
				return nil, err
			}
		}
		if given[t.Name], err = reference.FromONNX(t); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// see records the elements of a value, which may be a mask.
func (r *ranges) see(v *onnx.Value, list []float64, mayMask bool) {
	limit, ok := r.masks[v]
	if !ok {
		limit = math.Inf(1)
	}
	if level, is := maskLevel(list); is && mayMask {
		limit = min(limit, level)
		r.masks[v] = limit
	}
	r.greatest[v] = max(r.greatest[v], greatest(list, limit))
	r.infinite[v] = r.infinite[v] || !allFinite(list)
}

// look records the results of a node.
func (r *ranges) look(n *onnx.Node, made []*reference.Tensor) {
	r.ran[n.Graph] = true
	from := make([][]*onnx.Value, len(n.Outputs))
	for _, b := range n.Borders() {
		if b.Output >= 0 {
			from[b.Output] = b.Inner
		}
	}
	for i, v := range n.Outputs {
		if passesMasks(n) {
			from[i] = n.Inputs
		}
		limit, masked := 0.0, false
		for _, w := range from[i] {
			for r.outer[w] != nil {
				w = r.outer[w]
			}
			if m, ok := r.masks[w]; ok && (!masked || m < limit) {
				limit, masked = m, true
			}
		}
		if v == nil || i >= len(made) || made[i] == nil || !made[i].IsFloat() || made[i].F == nil {
			continue
		}
		if masked {
			r.masks[v] = limit
		}
		r.see(v, made[i].F, r.made[v])
	}
}

// maskLevel returns the magnitude from which an element of a mask hides something. A mask has numbers far below 0 and
// zeros. If the former exceed the numbers that models compute, small numbers may replace the zeros.
func maskLevel(list []float64) (level float64, ok bool) {
	least := 0.0
	for _, x := range list {
		least = min(least, max(x, -math.MaxFloat32))
	}
	if !(least <= -1e4) { // a list with NaN is no mask either
		return 0, false
	}
	for _, x := range list {
		if x > least/2 && x != 0 && (least > -1e30 || math.Abs(x) > greatestHalf) {
			return 0, false
		}
	}
	return -least / 2, true
}

// passesMasks reports whether elements of a mask stay (nearly) unchanged in the outputs of a node.
func passesMasks(n *onnx.Node) bool {
	return n.MovesElements() || slices.Contains([]string{"Add", "Sub", "Where", "Min", "Max", "Clip", "Cast", "Concat",
		"Expand", "Tile", "Identity"}, n.OpType)
}

func allFinite(list []float64) bool {
	return !slices.ContainsFunc(list, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
}

// A place finds a value in copies of its model.
type place struct {
	graph int
	name  string
}

// numbers numbers the graphs of a model.
func numbers(m *onnx.Model) map[*onnx.Graph]int {
	list := map[*onnx.Graph]int{}
	m.Graph.Walk(func(g *onnx.Graph) { list[g] = len(list) })
	return list
}

// finite lists the values with neither infinities nor masked elements.
func (r *ranges) finite(graphs map[*onnx.Graph]int) map[place]bool {
	names := map[place]bool{}
	for v := range r.greatest {
		_, masked := r.masks[v]
		names[place{graphs[v.Graph], v.Name}] = !masked && !r.made[v] && !r.infinite[v]
	}
	return names
}

// greatest returns the largest magnitude of the finite elements above -limit.
func greatest(list []float64, limit float64) (most float64) {
	for _, x := range list {
		if math.Abs(x) > most && x > -limit && !math.IsInf(x, 0) {
			most = math.Abs(x)
		}
	}
	return most
}

// findMade adds the results of a node to those computed only from constants and integers, except table rows chosen by
// integers, and integers themselves.
func (r *ranges) findMade(n *onnx.Node, isFloat func(*onnx.Value) bool) {
	table := n.Input(0).Constant()
	is := len(n.Subgraphs()) == 0 &&
		!(n.Is("Gather") && table != nil && table.DataType.IsFloat() && n.Input(1).Constant() == nil)
	for _, v := range n.Inputs {
		if v == nil || v.Constant() != nil || r.made[v] {
			continue
		}
		is = is && v.Producer == nil && v.IsInput && !isFloat(v)
	}
	for _, v := range n.Outputs {
		if v != nil {
			r.made[v] = is || !isFloat(v)
		}
	}
}
