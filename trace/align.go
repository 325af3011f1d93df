package trace

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// What the values of a pair were found equal by.
const (
	ByPort       = "port"       // inputs and outputs of the models, by their names
	ByProvenance = "provenance" // fused nodes say what they stand for
	ByStructure  = "structure"  // equal nodes make them of equal values
	ByWeights    = "weights"    // nodes of one op, the only ones with these weights, read or make them
	ByUse        = "use"        // equal nodes make equal values of them
	ByName       = "name"       // their names are the same, and so is something that they are computed from
)

// Pair is a value of one model and the value of the other one that is computed to be the same.
type Pair struct {
	A, B *onnx.Value
	By   string
}

// Align pairs the values of two models' main graphs, in the order of the first one's nodes. What is sure comes first:
// the models' inputs and outputs, what fused nodes say of the nodes that they stand for, and equal nodes that read
// equal values. Where that ends, at an op that only one model has, nodes that read the same weights pick up the thread,
// and equal nodes whose results are the same. Names are asked last, and only of values with something in common
// upstream: exporters give different values of two models one name as often as not.
//
// Constants are not paired, nor are values of subgraphs and functions. Known are pairs of inputs and outputs that have
// other names.
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

// side is one of the two models, with what the search asks of it again and again.
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
	table   map[string]int // numbers of values by how they are computed
	number  map[*onnx.Value]int
	last    int
	partner map[*onnx.Value]*onnx.Value // both ways
	by      map[*onnx.Value]string      // of the first model's values
}

// pair makes two values a pair, unless one of them has a partner, or they cannot be the same.
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

// alike reports whether two values can be the same as far as their declared types go.
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

// structure pairs the values that equal nodes make of equal values.
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

// numberOutputs numbers what a node makes: two values have one number where they are computed in the same way. Values
// of a pair keep the number of the pair.
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

// arguments writes the numbers of what a node reads.
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
	if x.number[v] == 0 { // an input without a partner, or what no node makes
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
