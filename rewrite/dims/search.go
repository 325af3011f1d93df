package dims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// search looks for the readings of one dimension, while the others keep their sizes.
type search struct {
	*analysis
	dim  int
	size int64                                  // the one that the model is tried at
	in   map[int64]map[string]*reference.Tensor // inputs by size
	seen map[string]bool
	left int // how many trials may follow
	// stuck is where the search ended that came furthest.
	stuck outcome
}

// A decision is a place where several options let the model run further.
type decision struct {
	before *reading
	others []option
}

// mostTrials and mostReadings bound the search for readings of a dimension.
const (
	mostTrials   = 6000
	mostReadings = 24
)

func (a *analysis) search(dim int) *search {
	return &search{analysis: a, dim: dim, size: 3 * a.dims[dim].Size, in: map[int64]map[string]*reference.Tensor{},
		seen: map[string]bool{}, left: mostTrials}
}

// try runs the model at a size of the dimension.
func (s *search) try(r *reading, n int64) outcome {
	in, ok := s.in[n]
	if !ok {
		var err error
		if in, err = s.prefix(n); err != nil {
			return outcome{err: err}
		}
		s.in[n] = in
	}
	s.left--
	return s.run(r, s.sizes(s.dim, n), in)
}

// prefix returns inputs at a size, of which smaller ones are the beginning.
func (s *search) prefix(n int64) (map[string]*reference.Tensor, error) {
	longest := 3*s.dims[s.dim].Size + 4
	in, err := s.inputs(1, s.sizes(s.dim, max(longest, n)))
	if err != nil {
		return nil, err
	}
	for _, p := range s.dims[s.dim].places {
		in[p.input.Name] = slice(in[p.input.Name], p.axis, 0, int(n))
	}
	return in, nil
}

// readings finds the readings with which the model runs at another size.
func (s *search) readings() ([]*reading, error) {
	first, decisions, err := s.complete(&reading{})
	if err != nil {
		return nil, err
	}
	list := []*reading{first}
	keys := map[string]bool{s.key(first): true}
	for i := 0; i < len(decisions) && len(list) < mostReadings; i++ {
		for _, o := range decisions[i].others {
			r, more, err := s.complete(decisions[i].before.with(s.dim, len(s.dims), o.set))
			if errors.Is(err, errSteps) {
				return nil, err
			}
			if err != nil || keys[s.key(r)] {
				continue
			}
			keys[s.key(r)] = true
			list = append(list, r)
			decisions = append(decisions, more...)
		}
	}
	if s.left <= 0 {
		return nil, errors.New("there are too many constants that may be its size")
	}
	return list, nil
}

func (s *search) key(r *reading) string {
	var parts []string
	for x, f := range r.factors {
		parts = append(parts, fmt.Sprintf("%p %d %d %v", x.node, x.input, x.part, f))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// complete adds to a reading what it lacks for the model to run.
func (s *search) complete(r *reading) (*reading, []decision, error) {
	x := s.try(r, s.size)
	if x.err == nil {
		return r, nil, nil
	}
	if errors.Is(x.err, errSteps) || x.node == nil || s.left <= 0 {
		return nil, nil, x.err
	}
	if s.stuck.err == nil || x.at >= s.stuck.at {
		s.stuck = x
	}
	key := s.key(r)
	if s.seen[key] {
		return nil, nil, x.err
	}
	s.seen[key] = true
	options, err := s.further(r, x)
	if err != nil {
		return nil, nil, err
	}
	for i, o := range options {
		made, decisions, err := s.complete(r.with(s.dim, len(s.dims), o.set))
		if errors.Is(err, errSteps) {
			return nil, nil, err
		}
		if err == nil {
			return made, append([]decision{{r, options[i+1:]}}, decisions...), nil
		}
	}
	return nil, nil, x.err
}

// further lists the options with which the model runs beyond the node that failed, the most likely first. If it runs
// beyond at any size with some of them, others are left out: they only divide at some sizes.
func (s *search) further(r *reading, failed outcome) ([]option, error) {
	var kept []option
	anywhere := map[int]bool{}
	for _, o := range s.candidates(r, failed.node) {
		with := r.with(s.dim, len(s.dims), o.set)
		x := s.try(with, s.size)
		if errors.Is(x.err, errSteps) {
			return nil, x.err
		}
		if x.err != nil && x.at <= failed.at {
			continue
		}
		if y := s.try(with, s.dims[s.dim].Size+1); y.err == nil || y.at > failed.at {
			anywhere[len(kept)] = true
		}
		kept = append(kept, o)
	}
	if len(anywhere) == 0 {
		return kept, nil
	}
	var list []option
	for i, o := range kept {
		if anywhere[i] {
			list = append(list, o)
		}
	}
	return list, nil
}

// candidates lists options of constants that a node depends on and that a reading leaves, the most likely and the
// nearest first.
func (s *search) candidates(r *reading, n *onnx.Node) []option {
	type found struct {
		option
		distance int
	}
	var list []found
	size := s.dims[s.dim].Size
	for distance, near := range s.behind(n) {
		for _, x := range near {
			for _, c := range s.byInput[x] {
				for _, o := range c.options(size) {
					taken := false
					for at := range o.set {
						f := r.factors[at]
						taken = taken || f != nil && f[s.dim].num != 0
					}
					if !taken {
						list = append(list, found{o, distance})
					}
				}
				if x == n {
					for _, o := range s.demanded(c, r) {
						list = append(list, found{o, distance})
					}
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.how, b.how), cmp.Compare(a.distance, b.distance))
	})
	options := make([]option, len(list))
	for i, x := range list {
		options[i] = x.option
	}
	return options
}

// behind lists nodes by their distance before a node.
func (s *search) behind(n *onnx.Node) (layers [][]*onnx.Node) {
	seen := map[*onnx.Node]bool{n: true}
	count := 0
	for layer := []*onnx.Node{n}; len(layer) > 0 && count < 400; {
		layers = append(layers, layer)
		count += len(layer)
		var next []*onnx.Node
		add := func(x *onnx.Node) {
			if x != nil && !seen[x] {
				seen[x] = true
				next = append(next, x)
			}
		}
		for _, x := range layer {
			for _, v := range x.Reads() {
				add(v.Producer)
			}
			if g := x.Graph; g != nil && g.Parent != nil { // what the node holding this graph reads
				for _, y := range s.model.Graph.Nodes {
					if s.place[y] == s.place[x] {
						add(y)
					}
				}
			}
		}
		layer = next
	}
	return layers
}

// demanded lists the factors that make the shape of a Reshape hold as many elements as there are.
func (s *search) demanded(c *constant, r *reading) (list []option) {
	if !c.node.Is("Reshape") || c.input != 1 || !c.hasSizes() {
		return nil
	}
	elements := int64(1)
	for _, e := range c.tensor.I {
		if e <= 0 {
			return nil
		}
		elements *= e
	}
	n := s.dims[s.dim].Size
	for k, e := range c.tensor.I {
		at := slot{c.node, c.input, k}
		// as many elements as the size times some, and as a sum with the size
		for _, grown := range []rat{ratio(e, n), ratio(elements/n, max(elements/e, 1))} {
			if _, usual := factors(e, n)[grown]; !usual && r.factors[at] == nil && grown.num > 0 {
				list = append(list, option{map[slot]rat{at: grown}, 4})
			}
		}
	}
	return list
}

// slice cuts a tensor along an axis.
func slice(t *reference.Tensor, axis, from, to int) *reference.Tensor {
	shape := slices.Clone(t.Shape)
	shape[axis] = to - from
	inner := 1
	for _, d := range t.Shape[axis+1:] {
		inner *= d
	}
	block := t.Shape[axis] * inner
	out := &reference.Tensor{DataType: t.DataType, Shape: shape}
	for start := 0; start < t.Len(); start += block {
		a, b := start+from*inner, start+to*inner
		if t.I != nil {
			out.I = append(out.I, t.I[a:b]...)
		} else {
			out.F = append(out.F, t.F[a:b]...)
		}
	}
	return out
}

// join puts tensors together along an axis.
func join(list []*reference.Tensor, axis int) *reference.Tensor {
	t := list[0]
	shape := slices.Clone(t.Shape)
	shape[axis] = 0
	inner, outer := 1, 1
	for i, d := range t.Shape {
		if i < axis {
			outer *= d
		} else if i > axis {
			inner *= d
		}
	}
	out := &reference.Tensor{DataType: t.DataType, Shape: shape}
	for _, x := range list {
		shape[axis] += x.Shape[axis]
	}
	for i := range outer {
		for _, x := range list {
			block := x.Shape[axis] * inner
			if t.I != nil {
				out.I = append(out.I, x.I[i*block:(i+1)*block]...)
			} else {
				out.F = append(out.F, x.F[i*block:(i+1)*block]...)
			}
		}
	}
	return out
}
