package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// flows are the ops that contain graphs.
var flows map[string]func(*analysis, *onnx.Node, *rules.Frame)

func init() { // here, because the functions refer back to the table
	flows = map[string]func(*analysis, *onnx.Node, *rules.Frame){"If": (*analysis).ifNode, "Loop": (*analysis).loop,
		"Scan": (*analysis).scan}
}

func (an *analysis) get(v *onnx.Value, fr *rules.Frame) *rules.Fact {
	if v != nil {
		if x := fr.Facts[v]; x != nil {
			return x
		}
	}
	return rules.Nothing
}

func (an *analysis) put(n *onnx.Node, i int, x *rules.Fact, fr *rules.Frame) {
	if v := n.OutputValue(i); v != nil {
		fr.Facts[v] = an.declared(v, x, fr)
	}
}

func subgraph(n *onnx.Node, name string) *onnx.Graph {
	if a := n.Attr(name); a != nil {
		return a.Graph
	}
	return nil
}

// ifNode sets the facts that both branches share, or the facts of the branch that is taken in a world.
func (an *analysis) ifNode(n *onnx.Node, fr *rules.Frame) {
	then, other := subgraph(n, "then_branch"), subgraph(n, "else_branch")
	for _, g := range []*onnx.Graph{then, other} {
		if g != nil {
			an.graph(g, fr)
		}
	}
	cond := an.get(n.Input(0), fr)
	for i := range n.Outputs {
		a, b := rules.Nothing, rules.Nothing
		if then != nil && i < len(then.Outputs) {
			a = an.get(then.Outputs[i], fr)
		}
		if other != nil && i < len(other.Outputs) {
			b = an.get(other.Outputs[i], fr)
		}
		x := an.agree(a, b)
		if !(cond.Same && cond.Value[0] == nil) {
			y := *x
			y.Same = false
			for w := range rules.AllWorlds {
				if t := cond.Value[w]; t != nil && len(t.I) == 1 && !an.symbols.table.Open(t.I[0]) {
					taken := b
					if t.I[0] != 0 {
						taken = a
					}
					y.Shape[w], y.Value[w] = taken.Shape[w], taken.Value[w]
				}
			}
			if t := cond.Value[rules.Proof]; t == nil || len(t.I) != 1 || an.symbols.table.Open(t.I[0]) {
				y.Follows = rules.Loose
			}
			x = an.newFact()
			*x = y
		}
		an.put(n, i, x, fr)
	}
}

// agree returns the facts that hold for both a and b.
func (an *analysis) agree(a, b *rules.Fact) *rules.Fact {
	if a == b {
		return a
	}
	x := an.newFact()
	if a.DataType == b.DataType {
		x.DataType = a.DataType
	}
	x.Same, x.Follows = a.Same && b.Same, max(a.Follows, b.Follows)
	for w := range rules.AllWorlds {
		if w > 0 && x.Same {
			x.Shape[w], x.Value[w] = x.Shape[0], x.Value[0]
			continue
		}
		x.Shape[w] = common(a.Shape[w], b.Shape[w])
		if s, t := a.Value[w], b.Value[w]; s == t || s != nil && t != nil && equalTensors(s, t) {
			x.Value[w] = s
		}
	}
	return x
}

// common returns the dimensions that two shapes share, nil if their ranks differ.
func common(s, t []int64) []int64 {
	if s == nil || len(s) != len(t) || rules.SameSlice(s, t) {
		if t == nil || len(s) != len(t) {
			return nil
		}
		return s
	}
	for i, d := range t {
		if s[i] != d {
			s = rules.With(s, i, -1)
		}
	}
	return s
}

// loop finds the facts of a Loop's body and outputs. A carried value keeps the dimensions that the body does not
// change: the body is repeated until its outputs match its inputs.
func (an *analysis) loop(n *onnx.Node, fr *rules.Frame) {
	g := subgraph(n, "body")
	if g == nil || len(g.Inputs) < 2 || len(n.Inputs) < 2 {
		an.leave(n, fr)
		return
	}
	carried := len(n.Inputs) - 2
	fr.Facts[g.Inputs[0]] = an.scalar(onnx.Int64)
	fr.Facts[g.Inputs[1]] = an.scalar(onnx.Bool)
	an.carry(g, g.Inputs[2:], 1, n.Inputs[2:], fr)
	trips := an.get(n.Input(0), fr)
	always := n.Input(1) == nil || an.isTrue(an.get(n.Input(1), fr)) && len(g.Outputs) > 0 &&
		an.isTrue(an.get(g.Outputs[0], fr))
	for i := range n.Outputs {
		if i+1 >= len(g.Outputs) {
			break
		}
		x := an.get(g.Outputs[i+1], fr)
		if i < carried {
			x = an.agree(an.withoutValue(x), an.withoutValue(an.get(n.Input(i+2), fr))) // no trip: the initial value
		} else {
			x = an.stacked(x, 0, func(w int) int64 {
				if t := trips.Value[w]; t != nil && always && len(t.I) == 1 {
					return max(t.I[0], 0)
				}
				return -1
			})
		}
		an.put(n, i, x, fr)
	}
}

// carry repeats a body whose inputs are carried values, first those of init, until they are stable. Output first+i of
// the body is the next value of input i.
func (an *analysis) carry(g *onnx.Graph, inputs []*onnx.Value, first int, init []*onnx.Value, fr *rules.Frame) {
	state := make([]*rules.Fact, min(len(inputs), len(init)))
	for i := range state {
		state[i] = an.withoutValue(an.get(init[i], fr))
	}
	for round := 0; ; round++ {
		for i, x := range state {
			fr.Facts[inputs[i]] = x
		}
		an.graph(g, fr)
		stable := true
		for i, x := range state {
			if first+i >= len(g.Outputs) {
				continue
			}
			y := an.get(g.Outputs[first+i], fr)
			for w := range rules.AllWorlds {
				if x.Shape[w] == nil {
					continue
				}
				if s := common(x.Shape[w], y.Shape[w]); s == nil || !rules.SameSlice(s, x.Shape[w]) {
					if round == 2 { // does not settle
						s = nil
					}
					z := *x
					z.Shape[w], z.Same = s, false
					state[i], x = &z, &z
					stable = false
				}
			}
		}
		if stable || round > 2 {
			return
		}
	}
}

// scan finds the facts of a Scan's body and outputs (opset 9 and later).
func (an *analysis) scan(n *onnx.Node, fr *rules.Frame) {
	g := subgraph(n, "body")
	scans := int(n.AttrInt("num_scan_inputs", 0))
	carried := len(n.Inputs) - scans
	if g == nil || carried < 0 || len(g.Inputs) < len(n.Inputs) || fr.Opset < 9 {
		an.leave(n, fr)
		return
	}
	axes, outAxes := n.AttrInts("scan_input_axes"), n.AttrInts("scan_output_axes")
	var length [rules.AllWorlds]int64
	for i := range scans {
		x := an.withoutValue(an.get(n.Inputs[carried+i], fr))
		y := *x
		y.Same = false
		for w := range rules.AllWorlds {
			length[w] = -1
			a, ok := rules.Axis(pick(axes, i), len(x.Shape[w]))
			if x.Shape[w] == nil || !ok {
				y.Shape[w] = nil
				continue
			}
			length[w] = x.Shape[w][a]
			y.Shape[w] = append(append([]int64{}, x.Shape[w][:a]...), x.Shape[w][a+1:]...)
		}
		fr.Facts[g.Inputs[carried+i]] = &y
	}
	an.carry(g, g.Inputs[:carried], 0, n.Inputs[:carried], fr)
	for i := range n.Outputs {
		if i >= len(g.Outputs) {
			break
		}
		x := an.withoutValue(an.get(g.Outputs[i], fr))
		if i >= carried {
			x = an.stacked(x, pick(outAxes, i-carried), func(w int) int64 {
				if scans == 0 {
					return -1
				}
				return length[w]
			})
		}
		an.put(n, i, x, fr)
	}
}

func pick(v []int64, i int) int64 {
	if i < len(v) {
		return v[i]
	}
	return 0
}

// stacked returns the facts of values x stacked along a new axis of the given length.
func (an *analysis) stacked(x *rules.Fact, at int64, length func(world int) int64) *rules.Fact {
	y := &rules.Fact{DataType: x.DataType}
	for w := range rules.AllWorlds {
		if x.Shape[w] == nil {
			continue
		}
		if a, ok := rules.Axis(at, len(x.Shape[w])+1); ok {
			s := append([]int64{}, x.Shape[w][:a]...)
			y.Shape[w] = append(append(s, length(w)), x.Shape[w][a:]...)
		}
	}
	return y
}

func (an *analysis) scalar(t onnx.DataType) *rules.Fact {
	return &rules.Fact{DataType: t, Shape: everywhere([]int64{}), Same: true}
}

func (an *analysis) withoutValue(x *rules.Fact) *rules.Fact {
	y := *x
	y.Value = [rules.AllWorlds]*reference.Tensor{}
	return &y
}

func (an *analysis) isTrue(x *rules.Fact) bool {
	for _, t := range x.Value {
		if t == nil || len(t.I) != 1 || t.I[0] == 0 || an.symbols.table.Open(t.I[0]) {
			return false
		}
	}
	return true
}

// leave sets the outputs of a node to their declared facts.
func (an *analysis) leave(n *onnx.Node, fr *rules.Frame) {
	for i := range n.Outputs {
		an.put(n, i, rules.Nothing, fr)
	}
}
