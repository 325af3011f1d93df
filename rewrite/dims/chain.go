package dims

import (
	"errors"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// longestChain bounds the constants of a chain, chainTrials the trials to find one.
const (
	longestChain = 8
	chainTrials  = 1500
)

// chains lists options of several constants with which the model runs beyond a failed node, if no single one does. A
// mask that was computed at the old size throughout is an example: as soon as the positions at its start follow, the
// Expand at its end fails, and that must follow too. So a chain starts with a constant that moves the failure to a node
// before the failed one, and goes on with those that mend it there.
func (s *search) chains(r *reading, failed outcome) ([]option, error) {
	behind := map[*onnx.Node]bool{}
	for _, layer := range s.behind(failed.node) {
		for _, n := range layer {
			behind[n] = true
		}
	}
	most := min(chainTrials, s.left)
	stop := s.left - most
	var mend func(r *reading, at outcome, set map[slot]rat, depth int) (option, error)
	mend = func(r *reading, at outcome, set map[slot]rat, depth int) (option, error) {
		var later []func() (option, error)
		for _, o := range s.candidates(r, at) {
			if s.left <= stop {
				return option{}, nil
			}
			if o.whole() == 0 || o.how > 2 && !o.within(at.node) {
				continue
			}
			with, all := s.taking(r, o), maps.Clone(o.set)
			maps.Copy(all, set)
			x := s.try(with, s.size)
			switch {
			case errors.Is(x.err, errSteps):
				return option{}, x.err
			case x.err == nil || x.at > failed.at || x.node == failed.node && x.apart < failed.apart:
				if len(set) > 0 { // a single one was tried before
					return option{set: all, how: 2, chained: true}, nil
				}
				if x.node == failed.node {
					return option{set: all, how: o.how, chained: true}, nil
				}
			case x.node == nil || depth == 1 && !behind[x.node] || depth == longestChain:
			case depth == 1 && x.at < failed.at || depth > 1 && x.at < failed.at && x.further(at):
				later = append(later, func() (option, error) { return mend(with, x, all, depth+1) })
			}
		}
		for _, next := range later {
			if o, err := next(); err != nil || o.set != nil {
				return o, err
			}
		}
		return option{}, nil
	}
	o, err := mend(r, failed, nil, 1)
	if err != nil || o.set == nil {
		return nil, err
	}
	return []option{o}, nil
}

// within reports whether an option only changes inputs of a node.
func (o option) within(n *onnx.Node) bool {
	for at := range o.set {
		if at.node != n {
			return false
		}
	}
	return true
}

// further reports whether a trial failed later than another one, or at fewer axes.
func (x outcome) further(y outcome) bool { return x.at > y.at || x.at == y.at && x.apart < y.apart }

// apart counts the axes along which the operands of an elementwise op or an Expand do not broadcast, 0 for another
// op.
func apart(n *onnx.Node, s *reference.Scope) (count int) {
	if len(n.Inputs) < 2 || !elementwise[n.OpType] {
		return 0
	}
	var sizes []int
	for i, v := range n.Inputs {
		x, err := s.Value(v)
		if err != nil {
			return 0
		}
		shape := slices.Clone(x.Shape)
		if i == 1 && n.OpType == "Expand" {
			shape = nil
			for _, d := range x.I {
				shape = append(shape, int(max(d, 1)))
			}
		}
		slices.Reverse(shape)
		for i, d := range shape {
			switch {
			case i == len(sizes):
				sizes = append(sizes, d)
			case sizes[i] == 1:
				sizes[i] = d
			case d != 1 && d != sizes[i]:
				count++
			}
		}
	}
	return count
}

// elementwise are the ops whose operands broadcast, and Expand.
var elementwise = map[string]bool{"Add": true, "Sub": true, "Mul": true, "Div": true, "And": true, "Or": true,
	"Where": true, "Expand": true, "Equal": true, "Less": true, "LessOrEqual": true, "Greater": true,
	"GreaterOrEqual": true}
