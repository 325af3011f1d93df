package reference

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var controlOps = map[string]opDef{
	"If":   anything(1, opIf),
	"Loop": anything(0, opLoop),
	"Scan": anything(1, opScan),
}

// body runs a subgraph on the inputs, in its own scope inside the enclosing one.
func (c *call) body(g *onnx.Graph, in []*Tensor) ([]*Tensor, error) {
	sc := &scope{values: make(map[*onnx.Value]*Tensor, len(g.Nodes)+len(in)), parent: c.scope}
	for i, v := range g.Inputs {
		if i < len(in) {
			sc.values[v] = in[i]
		} else if v.Const == nil {
			fail("the body has %d inputs, got %d", len(g.Inputs), len(in))
		}
	}
	return c.e.evalGraph(g, sc, c.frame)
}

func (c *call) graph(name string) *onnx.Graph {
	a := c.attr(name)
	if a == nil || a.Graph == nil {
		fail("no graph in attribute %q", name)
	}
	return a.Graph
}

func opIf(c *call) []*Tensor {
	name := pick(c.number(0, 0) != 0, "then_branch", "else_branch")
	out, err := c.body(c.graph(name), nil)
	if err != nil {
		fail("%s: %w", name, err)
	}
	return out
}

// opLoop runs the body at most M times while its condition holds; both are optional. The body takes the iteration
// number, the condition and the carried values. It returns the condition, the carried values and the values to stack.
func opLoop(c *call) []*Tensor {
	g, trips, cond := c.graph("body"), c.integer(0, math.MaxInt64), c.number(1, 1) != 0
	state := c.in[min(2, len(c.in)):]
	if carried := len(state); len(g.Outputs) < 1+carried || len(g.Inputs) != 2+carried {
		fail("the body has %d inputs and %d outputs, which do not fit %d carried values",
			len(g.Inputs), len(g.Outputs), carried)
	}
	result, stacks := c.iterate(g, state, 1, func(i int, state, out []*Tensor) []*Tensor {
		if out != nil {
			if out[0].Len() != 1 || out[0].I == nil {
				fail("iteration %d: the condition is %s, expected one bool", i-1, out[0])
			}
			cond = out[0].I[0] != 0
		}
		if !cond || int64(i) >= trips {
			return nil
		}
		round, going := NewInts(onnx.Int64, []int{}, []int64{int64(i)}), NewInts(onnx.Bool, []int{}, []int64{1})
		return append([]*Tensor{round, going}, state...)
	})
	for k, s := range stacks {
		result = append(result, c.stack(s, 0, g.Outputs[1+len(state)+k]))
	}
	return result
}

// iterate runs a body until next returns no inputs. next gets the iteration number, the carried values and the body's
// last outputs, nil at first. The carried values are its outputs from first on; the outputs after them are stacked.
func (c *call) iterate(g *onnx.Graph, state []*Tensor, first int, next func(i int, state, out []*Tensor) []*Tensor) (
	_ []*Tensor, stacks [][]*Tensor) {
	behind := first + len(state)
	stacks = make([][]*Tensor, len(g.Outputs)-behind)
	meter := c.frame.meter
	live := meter.live
	defer func() { meter.live = live }()
	var out []*Tensor
	for i := 0; ; i++ {
		in := next(i, state, out)
		if in == nil {
			return slices.Clone(state), stacks
		}
		err := meter.step()
		if err == nil {
			out, err = c.body(g, in)
		}
		if err == nil {
			err = meter.hold(out[behind:]...)
		}
		if err != nil {
			fail("iteration %d: %w", i, err)
		}
		state = out[first:behind]
		for k := range stacks {
			stacks[k] = append(stacks[k], out[behind+k])
		}
	}
}

// stack joins tensors along a new axis. Without tensors it makes an empty one of the declared type of v.
func (c *call) stack(s []*Tensor, axis int64, v *onnx.Value) *Tensor {
	if len(s) == 0 {
		decl, _ := v.Type()
		shape := []int{0}
		for _, d := range decl.Dims {
			shape = append(shape, int(max(d.Value, 0)))
		}
		if isFloat(decl.DataType) {
			return newFloats(decl.DataType, shape)
		}
		return newInts(pick(decl.DataType == onnx.Undefined, onnx.Int64, decl.DataType), shape)
	}
	at := c.axis(axis, s[0].Rank()+1)
	s = try(allDense(s))
	parts := make([]*Tensor, len(s))
	for i, t := range s {
		if t.isSeq || t.DataType != s[0].DataType {
			fail("%s and %s cannot be stacked", s[0], t)
		}
		parts[i] = t.WithShape(slices.Insert(slices.Clone(t.Shape), at, 1))
	}
	return concat(parts, at)
}

// opScan runs the body along an axis of its scan inputs (the last num_scan_inputs). It rejects opset 8, which has a
// batch dimension.
func opScan(c *call) []*Tensor {
	g := c.graph("body")
	if c.opset() < 9 {
		fail("%w: Scan of opset 8", ErrUnsupported)
	}
	scans := int(c.int("num_scan_inputs", 0))
	states := len(c.in) - scans
	if scans < 1 || states < 0 || len(g.Outputs) < states || len(g.Inputs) != len(c.in) || slices.Contains(c.in, nil) {
		fail("num_scan_inputs %d does not fit %d inputs and a body of %d inputs and %d outputs",
			scans, len(c.in), len(g.Inputs), len(g.Outputs))
	}
	option := func(name string, i int) int64 {
		if v, ok := c.ints(name); ok && i < len(v) {
			return v[i]
		}
		return 0
	}
	steps := -1
	pieces := make([][]*Tensor, scans)
	for k := range pieces {
		x := c.in[states+k]
		axis := c.axis(option("scan_input_axes", k), x.Rank())
		if steps >= 0 && steps != x.Shape[axis] {
			fail("scan inputs have %d and %d elements along their axes", steps, x.Shape[axis])
		}
		steps = x.Shape[axis]
		if steps > maxSteps {
			fail("%d steps are more than %d", steps, maxSteps)
		}
		pieces[k] = withoutAxis(split(x, axis, slices.Repeat([]int64{1}, steps)), axis)
		if option("scan_input_directions", k) == 1 {
			slices.Reverse(pieces[k])
		}
	}
	result, stacks := c.iterate(g, c.in[:states], 0, func(i int, state, _ []*Tensor) []*Tensor {
		if i == steps {
			return nil
		}
		in := slices.Clone(state)
		for k := range pieces {
			in = append(in, pieces[k][i])
		}
		return in
	})
	for k, s := range stacks {
		if option("scan_output_directions", k) == 1 {
			slices.Reverse(s)
		}
		result = append(result, c.stack(s, option("scan_output_axes", k), g.Outputs[states+k]))
	}
	return result
}
