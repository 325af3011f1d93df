package trace

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The ways in which the values of a pair are found equal.
const (
	ByPort       = "port"       // inputs and outputs of the models with the same name
	ByProvenance = "provenance" // fused nodes record the nodes that they replaced
	ByStructure  = "structure"  // equal nodes compute them from equal values
	ByWeights    = "weights"    // they belong to nodes of one op that are the only ones with these weights
	ByUse        = "use"        // equal nodes compute equal values from them
	ByName       = "name"       // same name, and computed from a common pair
)

// Pair is a value of one model and the value of the other model that should be equal.
type Pair struct {
	A, B *onnx.Value
	By   string
}

// Align pairs the values of two models' main graphs, in the order of the first model's nodes. It starts with the
// certain pairs: the models' inputs and outputs, the nodes that fused nodes record as their source, and equal nodes
// that read equal values. Past an op that only one model has, it continues from nodes that read the same weights, and
// from equal nodes with equal results. Names come last, and only for values with a common pair upstream: exporters
// often give different values of two models the same name.
//
// Constants and the values of subgraphs and functions are not paired. known lists pairs of inputs and outputs whose
// names differ.
func Align(a, b *onnx.Model, known ...Pair) []Pair {
	x := &aligner{sides: [2]*side{newSide(a), newSide(b)}, table: map[string]int{},
		partner: map[*onnx.Value]*onnx.Value{}, by: map[*onnx.Value]string{}, number: map[*onnx.Value]int{}}
	for _, p := range known {
		x.pair(p.A, p.B, ByPort)
	}
	for _, v := range a.Graph.Inputs {
		x.pair(v, valueOf(b.Graph.Inputs, v.Name), ByPort)
	}
	for _, v := range a.Graph.Outputs {
		x.pair(v, valueOf(b.Graph.Outputs, v.Name), ByPort)
	}
	x.provenance()
	for changed := true; changed; {
		changed = x.structure()
		changed = x.weights() || changed
		changed = x.use() || changed
		if !changed {
			changed = x.names()
		}
	}
	var pairs []Pair
	for _, n := range a.Graph.Nodes {
		for _, v := range n.Outputs {
			if w := x.partner[v]; v != nil && w != nil {
				pairs = append(pairs, Pair{v, w, x.by[v]})
			}
		}
	}
	return pairs
}

func valueOf(list []*onnx.Value, name string) *onnx.Value {
	for _, v := range list {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// side is one of the two models, with cached results for the search.
type side struct {
	model *onnx.Model
	keys  map[*onnx.Node]string // op and attributes
	reads map[*onnx.Node][]*onnx.Value
}

func newSide(m *onnx.Model) *side {
	s := &side{model: m, keys: make(map[*onnx.Node]string, len(m.Graph.Nodes)),
		reads: make(map[*onnx.Node][]*onnx.Value, len(m.Graph.Nodes))}
	for _, n := range m.Graph.Nodes {
		s.keys[n] = nodeKey(n)
		s.reads[n] = n.Inputs
		if len(n.Subgraphs()) > 0 {
			s.reads[n] = n.Reads()
		}
	}
	return s
}

type aligner struct {
	sides   [2]*side
	table   map[string]int // value numbers by computation
	number  map[*onnx.Value]int
	last    int
	partner map[*onnx.Value]*onnx.Value // in both directions
	by      map[*onnx.Value]string      // how the first model's values were paired
}

// pair pairs two values unless one has a partner, one is a constant, or their types differ.
func (x *aligner) pair(a, b *onnx.Value, by string) bool {
	if a == nil || b == nil || x.partner[a] != nil || x.partner[b] != nil || a.Constant() != nil ||
		b.Constant() != nil || !alike(a, b) {
		return false
	}
	x.partner[a], x.partner[b], x.by[a] = b, a, by
	x.last++
	x.number[a], x.number[b] = x.last, x.last
	return true
}

// alike reports whether the declared types allow two values to be equal.
func alike(a, b *onnx.Value) bool {
	s, known := a.Type()
	t, other := b.Type()
	if !known || !other {
		return true
	}
	if s.DataType != t.DataType && !(s.DataType.IsFloat() && t.DataType.IsFloat()) {
		return false
	}
	if !s.HasShape || !t.HasShape {
		return true
	}
	return slices.EqualFunc(s.Dims, t.Dims, func(c, d onnx.Dim) bool {
		return c.Value < 0 || d.Value < 0 || c.Value == d.Value
	})
}

// structure pairs the values that equal nodes compute from equal values.
func (x *aligner) structure() bool {
	var first [2]map[int]*onnx.Value
	for i, s := range x.sides {
		first[i] = map[int]*onnx.Value{}
		for _, n := range s.model.Graph.Nodes {
			x.numberOutputs(s, n, first[i])
		}
	}
	changed := false
	for _, n := range x.sides[0].model.Graph.Nodes {
		for _, v := range n.Outputs {
			if v != nil && x.partner[v] == nil && first[0][x.number[v]] == v {
				changed = x.pair(v, first[1][x.number[v]], ByStructure) || changed
			}
		}
	}
	return changed
}

// numberOutputs numbers the outputs of a node. Two values have the same number if they are computed in the same way.
// Paired values keep the number of the pair.
func (x *aligner) numberOutputs(s *side, n *onnx.Node, first map[int]*onnx.Value) {
	key := s.keys[n] + x.arguments(s, n)
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		own := key + "#" + digits(i)
		if x.partner[v] != nil {
			x.table[own] = x.number[v]
			continue
		}
		number, known := x.table[own]
		if !known {
			x.last++
			number = x.last
			x.table[own] = number
		}
		x.number[v] = number
		if first[number] == nil {
			first[number] = v
		}
	}
}

// arguments writes the numbers of a node's inputs.
func (x *aligner) arguments(s *side, n *onnx.Node) string {
	text := "("
	for _, v := range s.reads[n] {
		text += x.argument(v) + ","
	}
	return text
}

func (x *aligner) argument(v *onnx.Value) string {
	if v == nil {
		return ""
	}
	if t := v.Constant(); t != nil {
		return digits(x.constant(v, t))
	}
	if x.number[v] == 0 { // an input without a partner, or a value without a producer
		x.last++
		x.number[v] = x.last
	}
	return digits(x.number[v])
}

func (x *aligner) constant(v *onnx.Value, t *onnx.Tensor) int {
	if n := x.number[v]; n != 0 {
		return n
	}
	key := tensorKey(t)
	if x.table[key] == 0 {
		x.last++
		x.table[key] = x.last
	}
	x.number[v] = x.table[key]
	return x.number[v]
}
