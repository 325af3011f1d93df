package shard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Together evaluates the models of all ranks at the same time, each with its inputs, and returns the outputs of each.
// Collective operations exchange values between them.
func Together(models []*onnx.Model, o reference.Options, inputs []map[string]*reference.Tensor) (
	[]map[string]*reference.Tensor, error) {
	m := &meeting{ranks: len(models), exact: o.Exact, arrived: map[string][]*reference.Tensor{}}
	m.changed = sync.NewCond(&m.mu)
	outputs := make([]map[string]*reference.Tensor, len(models))
	var all sync.WaitGroup
	for rank, model := range models {
		all.Add(1)
		go func() {
			defer all.Done()
			mine := o
			mine.Override = func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
				return m.operation(rank, n, s)
			}
			e, err := reference.New(model, mine)
			if err == nil {
				outputs[rank], err = e.Run(inputs[rank])
			}
			m.leave(rank, err)
		}()
	}
	all.Wait()
	return outputs, m.err
}

// onParts evaluates the models of all ranks on the inputs and outputs of the whole: it divides the inputs with a
// layout, and joins the outputs with one. The ranks must have equal other outputs.
func onParts(models []*onnx.Model, o reference.Options, inputs map[string]*reference.Tensor,
	divided, joint map[string]Layout) (map[string]*reference.Tensor, error) {
	ranks := int64(len(models))
	given := make([]map[string]*reference.Tensor, ranks)
	for rank := range given {
		given[rank] = maps.Clone(inputs)
		for name, l := range divided {
			x, err := inputs[name], error(nil)
			if x == nil {
				continue
			}
			if given[rank][name], err = partOf(x, l, int64(rank), ranks); err != nil {
				return nil, fmt.Errorf("input %q: %w", name, err)
			}
		}
	}
	results, err := Together(models, o, given)
	if err != nil {
		return nil, err
	}
	outputs := results[0]
	for name, y := range outputs {
		parts := make([]*reference.Tensor, ranks)
		for rank := range parts {
			parts[rank] = results[rank][name]
		}
		if l, isJoint := joint[name]; isJoint {
			if outputs[name], err = joined(parts, l); err != nil {
				return nil, fmt.Errorf("output %q: %w", name, err)
			}
		} else if rank := slices.IndexFunc(parts, func(p *reference.Tensor) bool { return !same(p, y) }); rank >= 0 {
			return nil, fmt.Errorf("%q differs between the ranks 0 and %d", name, rank)
		}
	}
	return outputs, nil
}

// same reports whether two tensors have the same elements, NaN included.
func same(a, b *reference.Tensor) bool {
	return a.DataType == b.DataType && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.I, b.I) &&
		slices.EqualFunc(a.F, b.F, func(x, y float64) bool { return x == y || x != x && y != y })
}

// meeting is where ranks exchange values.
type meeting struct {
	mu      sync.Mutex
	changed *sync.Cond
	ranks   int
	exact   bool
	left    int // ranks that ended
	err     error
	arrived map[string][]*reference.Tensor // by the output of the operation
}

var errAlone = errors.New("another rank ended before this operation")

// leave records the end of a rank.
func (m *meeting) leave(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left++
	if err != nil && (m.err == nil || errors.Is(m.err, errAlone)) {
		m.err = fmt.Errorf("rank %d: %w", rank, err)
	}
	m.changed.Broadcast()
}

// collectives are the ops that plans use.
var collectives = []string{fused.AllReduceName, fused.AllGatherName, fused.AllReduceAddRMSNormName}

// operation computes a collective operation when all ranks have arrived at it. It returns nil for another node.
func (m *meeting) operation(rank int, n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
	if !isCollective(n) {
		return nil, nil
	}
	x, err := s.Value(n.Inputs[0])
	if err != nil {
		return nil, err
	}
	if x, err = x.Dense(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := n.Outputs[0].Name
	if m.arrived[key] == nil {
		m.arrived[key] = make([]*reference.Tensor, m.ranks)
	}
	m.arrived[key][rank] = x
	m.changed.Broadcast()
	for slices.Contains(m.arrived[key], nil) {
		if m.left > 0 {
			return nil, errAlone
		}
		m.changed.Wait()
	}
	if operation := n.AttrString(attrOperation, ""); operation == allGather {
		y, err := joined(m.arrived[key], Layout{})
		return []*reference.Tensor{y}, err
	} else if operation != "" && operation != allReduce {
		return nil, fmt.Errorf("node %q: %s is not evaluated", n.Label(), operation)
	}
	if n.OpType == fused.AllGatherName {
		y, err := joined(m.arrived[key], Layout{Axis: len(x.Shape) + int(n.AttrInt(fused.AttrAxis, 0))})
		return []*reference.Tensor{y}, err
	}
	y, err := m.sum(m.arrived[key])
	if err != nil || n.OpType != fused.AllReduceAddRMSNormName {
		return []*reference.Tensor{y}, err
	}
	return m.norm(n, s, y)
}

// norm adds and normalizes a sum as AddRMSNorm is defined.
func (m *meeting) norm(n *onnx.Node, s *reference.Scope, sum *reference.Tensor) ([]*reference.Tensor, error) {
	in := []*reference.Tensor{sum, nil, nil}
	site := fused.Site{Attributes: fused.Read[fused.AddRMSNorm](n.Attributes).Attributes(), Opset: fused.MinOpset}
	for i := range in {
		if i > 0 {
			var err error
			if in[i], err = s.Value(n.Inputs[i]); err != nil {
				return nil, err
			}
		}
		site.Types, site.Dims = append(site.Types, in[i].DataType), append(site.Dims, in[i].Dims())
	}
	definition, err := fused.Lookup(fused.AddRMSNormName).Function(site)
	if err != nil {
		return nil, err
	}
	add := onnx.New(edit.MinIRVersion, site.Opset).Graph.NewNode(fused.AddRMSNormName, nil, site.Attributes...)
	add.Domain, add.Overload, add.Outputs = fused.Domain, definition.Overload, make([]*onnx.Value, len(n.Outputs))
	e := reference.NewForOpset(site.Opset, []*onnx.Function{definition}, reference.Options{Exact: m.exact})
	return e.Op(add, in)
}

// sum adds in the order of ranks: in float32, rounded once, unless the evaluation is exact.
func (m *meeting) sum(parts []*reference.Tensor) (*reference.Tensor, error) {
	total := slices.Clone(parts[0].F)
	for r, p := range parts[1:] {
		if !slices.Equal(p.Shape, parts[0].Shape) || p.DataType != parts[0].DataType || len(p.F) != len(total) {
			return nil, fmt.Errorf("rank 0 adds %s, rank %d %s", parts[0], r+1, p)
		}
		for i, x := range p.F {
			total[i] += x
			if !m.exact {
				total[i] = float64(float32(total[i]))
			}
		}
	}
	if !m.exact {
		prove.RoundAll(parts[0].DataType, total)
	}
	return reference.NewFloats(parts[0].DataType, parts[0].Shape, total), nil
}

// joined puts the parts of a value together.
func joined(parts []*reference.Tensor, l Layout) (*reference.Tensor, error) {
	ranks := int64(len(parts))
	first := parts[0]
	if !hasNumbers(first) || l.Axis >= len(first.Shape) {
		return nil, fmt.Errorf("%s cannot be joined along axis %d", first, l.Axis)
	}
	shape := slices.Clone(first.Shape)
	_, count, units := l.share(0, ranks)
	size := l.all(int64(shape[l.Axis]) / count * units)
	shape[l.Axis] = int(size)
	if err := l.fits(size, ranks); err != nil {
		return nil, err
	}
	whole := sized(first, shape)
	for r, p := range parts {
		expected := slices.Clone(shape)
		expected[l.Axis] = int(l.size(size, int64(r), ranks))
		if !slices.Equal(p.Shape, expected) || p.DataType != first.DataType {
			return nil, fmt.Errorf("rank 0 has %s, rank %d %s", first, r, p)
		}
		l.pieces(shape, int64(r), ranks, func(ofWhole, ofPart, n int64) {
			moveTo(whole.F, ofWhole, p.F, ofPart, n)
			moveTo(whole.I, ofWhole, p.I, ofPart, n)
		})
	}
	for r, p := range parts { // elements that several ranks have must be equal
		if mine, err := partOf(whole, l, int64(r), ranks); err != nil || !same(mine, p) {
			return nil, fmt.Errorf("rank %d has other elements than the ranks that share them (%v)", r, err)
		}
	}
	return whole, nil
}

// partOf returns a rank's part of a value.
func partOf(t *reference.Tensor, l Layout, rank, ranks int64) (*reference.Tensor, error) {
	if !hasNumbers(t) || l.Axis >= len(t.Shape) {
		return nil, fmt.Errorf("%s cannot be divided along axis %d", t, l.Axis)
	}
	size := int64(t.Shape[l.Axis])
	if err := l.fits(size, ranks); err != nil {
		return nil, err
	}
	shape := slices.Clone(t.Shape)
	shape[l.Axis] = int(l.size(size, rank, ranks))
	part := sized(t, shape)
	l.pieces(t.Shape, rank, ranks, func(ofWhole, ofPart, n int64) {
		moveTo(part.F, ofPart, t.F, ofWhole, n)
		moveTo(part.I, ofPart, t.I, ofWhole, n)
	})
	return part, nil
}

// pieces calls move for each piece of adjacent elements in a rank's part of a value of this shape: where the piece
// begins in the whole and in the part, and its number of elements.
func (l Layout) pieces(shape []int, rank, ranks int64, move func(ofWhole, ofPart, n int64)) {
	size, inner := int64(shape[l.Axis]), int64(match.Elements(shape[l.Axis+1:]))
	ofPart := int64(0)
	for o := range int64(match.Elements(shape[:l.Axis])) {
		for _, s := range l.slices(size, rank, ranks) {
			move((o*size+s.start)*inner, ofPart, s.size*inner)
			ofPart += s.size * inner
		}
	}
}

// hasNumbers reports whether the elements of a tensor are in memory.
func hasNumbers(t *reference.Tensor) bool { return t.F != nil || t.I != nil }

// sized returns a tensor of the same type with room for another shape.
func sized(like *reference.Tensor, shape []int) *reference.Tensor {
	n := match.Elements(shape)
	if like.I != nil {
		return reference.NewInts(like.DataType, shape, make([]int64, n))
	}
	return reference.NewFloats(like.DataType, shape, make([]float64, n))
}

func moveTo[T any](to []T, at int64, from []T, first, n int64) {
	if to != nil {
		copy(to[at:at+n], from[first:])
	}
}
