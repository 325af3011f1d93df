package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var controlOps = map[string]opDef{
	"If":   anything(1, opIf),
	"Loop": anything(0, opLoop),
	"Scan": anything(1, opScan),
}

// body runs a subgraph on the inputs, in a scope of its own that sees the enclosing one.
func (c *call) body(g *onnx.Graph, in []*Tensor) ([]*Tensor, error) {
	sc := &scope{values: make(map[*onnx.Value]*Tensor, len(g.Nodes)+len(in)), parent: c.scope}
	for i, v := range g.Inputs {
		if i < len(in) {
			sc.values[v] = in[i]
		} else if v.Const == nil {
			return nil, fmt.Errorf("the body has %d inputs, got %d", len(g.Inputs), len(in))
		}
	}
	return c.e.evalGraph(g, sc, c.frame)
}

func (c *call) graph(name string) (*onnx.Graph, error) {
	if a := c.attr(name); a != nil && a.Graph != nil {
		return a.Graph, nil
	}
	return nil, fmt.Errorf("no graph in attribute %q", name)
}

func opIf(c *call) ([]*Tensor, error) {
	name := pick(c.number(0, 0) != 0, "then_branch", "else_branch")
	if c.err != nil {
		return nil, c.err
	}
	g, err := c.graph(name)
	if err != nil {
		return nil, err
	}
	out, err := c.body(g, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// opLoop runs the body at most M times while its condition holds; both may be left out. The body takes the iteration
// number, the condition and the carried values, and returns the condition, the carried values and what is stacked.
func opLoop(c *call) ([]*Tensor, error) {
	g, err := c.graph("body")
	if err != nil {
		return nil, err
	}
	trips := c.integer(0, math.MaxInt64)
	cond := c.number(1, 1) != 0
	if c.err != nil {
		return nil, c.err
	}
	var state []*Tensor
	if len(c.in) > 2 {
		state = slices.Clone(c.in[2:])
	}
	carried := len(state)
	if len(g.Outputs) < 1+carried || len(g.Inputs) != 2+carried {
		return nil, fmt.Errorf("the body has %d inputs and %d outputs, which do not fit %d carried values",
			len(g.Inputs), len(g.Outputs), carried)
	}
	stacks := make([][]*Tensor, len(g.Outputs)-1-carried)
	meter := c.frame.meter
	live := meter.live
	defer func() { meter.live = live }()
	for i := int64(0); i < trips && cond; i++ {
		if err := meter.step(); err != nil {
			return nil, err
		}
		in := append([]*Tensor{NewInts(onnx.Int64, []int{}, []int64{i}), NewInts(onnx.Bool, []int{}, []int64{1})},
			state...)
		out, err := c.body(g, in)
		if err != nil {
			return nil, fmt.Errorf("iteration %d: %w", i, err)
		}
		if out[0].Len() != 1 || out[0].I == nil {
			return nil, fmt.Errorf("iteration %d: the condition is %s, expected one bool", i, out[0])
		}
		cond = out[0].I[0] != 0
		state = out[1 : 1+carried]
		for k := range stacks {
			stacks[k] = append(stacks[k], out[1+carried+k])
		}
		if err := meter.hold(out[1+carried:]...); err != nil {
			return nil, fmt.Errorf("iteration %d: %w", i, err)
		}
	}
	result := slices.Clone(state)
	for k, s := range stacks {
		t, err := c.stack(s, 0, g.Outputs[1+carried+k])
		if err != nil {
			return nil, err
		}
		result = append(result, t)
	}
	return result, nil
}

// stack joins tensors along a new axis. Of no tensors it makes an empty one, after the declared type of v.
func (c *call) stack(s []*Tensor, axis int64, v *onnx.Value) (*Tensor, error) {
	if len(s) == 0 {
		decl, _ := v.Type()
		shape := []int{0}
		for _, d := range decl.Dims {
			shape = append(shape, int(max(d.Value, 0)))
		}
		if isFloat(decl.DataType) {
			return c.newFloats(decl.DataType, shape), nil
		}
		return c.newInts(pick(decl.DataType == onnx.Undefined, onnx.Int64, decl.DataType), shape), nil
	}
	at := c.axis(axis, s[0].Rank()+1)
	if c.err != nil {
		return nil, c.err
	}
	s, err := allDense(s)
	if err != nil {
		return nil, err
	}
	parts := make([]*Tensor, len(s))
	for i, t := range s {
		if t.isSeq || t.DataType != s[0].DataType {
			return nil, fmt.Errorf("%s and %s cannot be stacked", s[0], t)
		}
		parts[i] = t.withShape(slices.Insert(slices.Clone(t.Shape), at, 1))
	}
	r, err := concat(c, parts, at)
	if err != nil {
		return nil, err
	}
	return r[0], nil
}

// opScan runs the body along an axis of its scan inputs (the last num_scan_inputs); opset 8 had a batch dimension and
// is refused.
func opScan(c *call) ([]*Tensor, error) {
	g, err := c.graph("body")
	if err != nil {
		return nil, err
	}
	if c.opset() < 9 {
		return nil, fmt.Errorf("%w: Scan of opset 8", ErrUnsupported)
	}
	scans := int(c.int("num_scan_inputs", 0))
	states := len(c.in) - scans
	outs := len(g.Outputs) - states
	if scans < 1 || states < 0 || outs < 0 || len(g.Inputs) != len(c.in) || slices.Contains(c.in, nil) {
		return nil, fmt.Errorf("num_scan_inputs %d does not fit %d inputs and a body of %d inputs and %d outputs",
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
		if c.err != nil {
			return nil, c.err
		}
		if steps >= 0 && steps != x.Shape[axis] {
			return nil, fmt.Errorf("scan inputs have %d and %d elements along their axes", steps, x.Shape[axis])
		}
		steps = x.Shape[axis]
		if steps > maxSteps {
			return nil, fmt.Errorf("%d steps are more than %d", steps, maxSteps)
		}
		parts, err := split(x, axis, slices.Repeat([]int64{1}, steps))
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			pieces[k] = append(pieces[k], p.withShape(slices.Delete(slices.Clone(p.Shape), axis, axis+1)))
		}
		if option("scan_input_directions", k) == 1 {
			slices.Reverse(pieces[k])
		}
	}
	state := slices.Clone(c.in[:states])
	stacks := make([][]*Tensor, outs)
	meter := c.frame.meter
	live := meter.live
	defer func() { meter.live = live }()
	for i := range steps {
		if err := meter.step(); err != nil {
			return nil, err
		}
		in := slices.Clone(state)
		for k := range pieces {
			in = append(in, pieces[k][i])
		}
		out, err := c.body(g, in)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		state = out[:states]
		for k := range stacks {
			stacks[k] = append(stacks[k], out[states+k])
		}
		if err := meter.hold(out[states:]...); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	result := slices.Clone(state)
	for k, s := range stacks {
		if option("scan_output_directions", k) == 1 {
			slices.Reverse(s)
		}
		t, err := c.stack(s, option("scan_output_axes", k), g.Outputs[states+k])
		if err != nil {
			return nil, err
		}
		result = append(result, t)
	}
	return result, nil
}
