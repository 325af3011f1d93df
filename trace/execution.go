package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Runner is an opened model.
type Runner interface {
	Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error)
	Close() error
}

// Open opens a piece of a model. The piece runs once.
type Open func(*onnx.Model) (Runner, error)

// Execution runs a model's main graph piece by piece. Each piece is a model whose inputs are outputs of earlier pieces.
// Every node runs once. A value is kept until all its readers have run and, if it is watched, until it is dropped.
type Execution struct {
	model   *onnx.Model
	open    Open
	place   map[*onnx.Node]int        // the index of each node
	holder  map[*onnx.Node]*onnx.Node // the main-graph node of each node, for nodes of bodies too
	done    map[*onnx.Node]bool
	values  map[*onnx.Value]*onnx.Tensor
	unread  map[*onnx.Value]int // the number of readers that have not run
	watched map[*onnx.Value]bool
	fixed   map[*onnx.Value]bool // computed only from constants; each piece computes those that it needs
	held    int64
	peak    int64
}

// Start begins a run that goes as far as the watched values need.
func Start(m *onnx.Model, open Open, inputs []*onnx.Tensor, watched []*onnx.Value) (*Execution, error) {
	e := &Execution{model: m, open: open, place: make(map[*onnx.Node]int, len(m.Graph.Nodes)),
		holder: make(map[*onnx.Node]*onnx.Node, len(m.Graph.Nodes)), done: map[*onnx.Node]bool{},
		values: map[*onnx.Value]*onnx.Tensor{}, unread: map[*onnx.Value]int{}, watched: map[*onnx.Value]bool{},
		fixed: fixedValues(m.Graph)}
	for i, n := range m.Graph.Nodes {
		e.place[n] = i
		n.Walk(func(inner *onnx.Node) { e.holder[inner] = n })
	}
	for _, t := range inputs {
		v := m.Graph.Value(t.Name)
		if v == nil || !v.IsInput {
			return nil, fmt.Errorf("%s has no input %q", m.Path, t.Name)
		}
		e.values[v] = t
		e.held += t.Size()
	}
	for _, v := range m.Graph.Inputs {
		if e.values[v] == nil && v.Const == nil {
			return nil, fmt.Errorf("%s: the input %q has no values", m.Path, v.Name)
		}
	}
	e.peak = e.held
	for _, v := range watched {
		e.watched[v] = true
	}
	for _, n := range e.missing(watched) {
		for _, v := range n.Reads() {
			e.unread[v]++
		}
	}
	return e, nil
}

// Value returns a value that is watched and not dropped, or that a later node reads. It returns nil for others.
func (e *Execution) Value(v *onnx.Value) *onnx.Tensor { return e.values[v] }

// Held returns the number of bytes of the values that are held.
func (e *Execution) Held() int64 { return e.held }

// Peak returns the most bytes of values held at once. The outputs of a running piece count twice, because its runner
// holds them as well.
func (e *Execution) Peak() int64 { return e.peak }

// Set replaces a held value by t for the nodes that have not run.
func (e *Execution) Set(v *onnx.Value, t *onnx.Tensor) {
	if old := e.values[v]; old != nil {
		e.held += t.Size() - old.Size()
		e.values[v] = t
	}
}

// Drop stops watching a value, and frees it unless later nodes read it.
func (e *Execution) Drop(v *onnx.Value) {
	delete(e.watched, v)
	e.release(v)
}

func (e *Execution) release(v *onnx.Value) {
	if t := e.values[v]; t != nil && e.unread[v] <= 0 && !e.watched[v] {
		e.held -= t.Size()
		delete(e.values, v)
	}
}

// fresh returns how many bytes of values Advance would add, counting values of known size.
func (e *Execution) fresh(to []*onnx.Value, sizes map[string]int64) (n int64) {
	_, outputs := e.ports(e.missing(to))
	for _, v := range outputs {
		n += sizes[v.Name]
	}
	return n
}

// Advance runs the nodes that the values need and that have not run, as one piece.
func (e *Execution) Advance(to ...*onnx.Value) error {
	nodes := e.missing(to)
	if len(nodes) == 0 {
		return nil
	}
	inputs, outputs := e.ports(nodes)
	var ports []onnx.Port
	var tensors []*onnx.Tensor
	for _, v := range inputs {
		t := e.values[v]
		ports = append(ports, onnx.Port{Value: v, Type: typeOf(t)})
		tensors = append(tensors, t)
	}
	part, err := e.model.Part(nodes, ports, outputs)
	if err != nil {
		return fmt.Errorf("%s: %w", e.model.Path, err)
	}
	made, err := run(e.open, part, tensors)
	if err != nil {
		return fmt.Errorf("%s, nodes %q to %q: %w", e.model.Path, nodes[0].Label(), nodes[len(nodes)-1].Label(), err)
	}
	fresh := int64(0)
	for i, v := range outputs {
		e.values[v] = made[i]
		fresh += made[i].Size()
	}
	e.held += fresh
	e.peak = max(e.peak, e.held+fresh)
	for _, n := range nodes {
		e.done[n] = !slices.ContainsFunc(n.Outputs, func(v *onnx.Value) bool { return e.fixed[v] })
		for _, v := range n.Reads() {
			e.unread[v]--
			e.release(v)
		}
	}
	return nil
}

func run(open Open, m *onnx.Model, inputs []*onnx.Tensor) (outputs []*onnx.Tensor, err error) {
	r, err := open(m)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if outputs, err = r.Run(inputs); err == nil && len(outputs) != len(m.Graph.Outputs) {
		err = fmt.Errorf("%d values were requested, but %d were computed", len(m.Graph.Outputs), len(outputs))
	}
	return outputs, err
}

// rankOf returns the type of t with open dimensions.
func rankOf(t *onnx.Tensor) onnx.Type {
	ty := typeOf(t)
	for i := range ty.Dims {
		ty.Dims[i].Value = -1
	}
	return ty
}

func typeOf(t *onnx.Tensor) onnx.Type { return onnx.TensorType(t.DataType, t.Dims) }

// missing lists the nodes that values need and that have not run, in graph order. Nodes that read only constants never
// count as run.
func (e *Execution) missing(to []*onnx.Value) []*onnx.Node {
	chosen := map[*onnx.Node]bool{}
	queue := []*onnx.Node{}
	take := func(n *onnx.Node) {
		if n = e.holder[n]; n != nil && !chosen[n] && !e.done[n] {
			chosen[n] = true
			queue = append(queue, n)
		}
	}
	for _, v := range to {
		if e.values[v] == nil && v.Producer != nil {
			take(v.Producer)
		}
	}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, v := range n.Reads() {
			if v.Producer != nil && e.values[v] == nil {
				take(v.Producer)
			}
		}
		for _, v := range n.Outputs { // pieces can pass on only tensors, so readers of others join the piece
			if v != nil && isSequence(v) {
				for _, u := range v.Uses() {
					take(u.Node)
				}
			}
		}
	}
	nodes := make([]*onnx.Node, 0, len(chosen))
	for n := range chosen {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *onnx.Node) int { return cmp.Compare(e.place[a], e.place[b]) })
	return nodes
}

// ports lists the held values that a piece reads, and the values that it computes for later use.
func (e *Execution) ports(nodes []*onnx.Node) (inputs, outputs []*onnx.Value) {
	within := map[*onnx.Value]int{} // how often nodes of the piece read it
	for _, n := range nodes {
		for _, v := range n.Reads() {
			if within[v]++; within[v] == 1 && e.values[v] != nil {
				inputs = append(inputs, v)
			}
		}
	}
	for _, n := range nodes {
		for _, v := range n.Outputs {
			if v != nil && (e.watched[v] || e.unread[v] > within[v] && !e.fixed[v]) && !isSequence(v) {
				outputs = append(outputs, v)
			}
		}
	}
	return inputs, outputs
}

// fixedValues returns the values that nodes compute only from constants.
func fixedValues(g *onnx.Graph) map[*onnx.Value]bool {
	fixed := map[*onnx.Value]bool{}
	for _, n := range g.Nodes {
		varies := func(v *onnx.Value) bool { return v.Constant() == nil && !fixed[v] }
		if n.IsRandom() || slices.ContainsFunc(n.Reads(), varies) {
			continue
		}
		for _, v := range n.Outputs {
			if v != nil {
				fixed[v] = true
			}
		}
	}
	return fixed
}

// isSequence reports whether the producing op makes a value a sequence or an optional.
func isSequence(v *onnx.Value) bool {
	n := v.Producer
	if n == nil || !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	switch n.OpType {
	case "SplitToSequence", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceMap",
		"Optional":
		return true
	case "Identity":
		return n.Input(0) != nil && isSequence(n.Input(0))
	case "If", "Loop", "Scan":
		for _, g := range n.Subgraphs() {
			i := v.Output
			if n.OpType == "Loop" {
				i++ // the body returns the condition first
			}
			if i < len(g.Outputs) && isSequence(g.Outputs[i]) {
				return true
			}
		}
	}
	return false
}
