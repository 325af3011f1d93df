package control

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var controlOps = map[string]op.Def{
	"If":   op.Anything(1, opIf),
	"Loop": op.Anything(0, opLoop),
	"Scan": op.Anything(1, opScan),
}

func graphOf(c *op.Call, name string) *onnx.Graph {
	a := c.Attr(name)
	if a == nil || a.Graph == nil {
		tensor.Fail("no graph in attribute %q", name)
	}
	return a.Graph
}

func opIf(c *op.Call) []*tensor.Tensor {
	name := tensor.Pick(c.Number(0, 0) != 0, "then_branch", "else_branch")
	out, err := c.Body(graphOf(c, name), nil)
	if err != nil {
		tensor.Fail("%s: %w", name, err)
	}
	return out
}

// opLoop runs the body at most M times while its condition holds; both are optional. The body takes the iteration
// number, the condition and the carried values. It returns the condition, the carried values and the values to stack.
func opLoop(c *op.Call) []*tensor.Tensor {
	g, trips, cond := graphOf(c, "body"), c.Integer(0, math.MaxInt64), c.Number(1, 1) != 0
	state := c.In[min(2, len(c.In)):]
	if carried := len(state); len(g.Outputs) < 1+carried || len(g.Inputs) != 2+carried {
		tensor.Fail("the body has %d inputs and %d outputs, which do not fit %d carried values",
			len(g.Inputs), len(g.Outputs), carried)
	}
	result, stacks := iterate(c, g, state, 1, func(i int, state, out []*tensor.Tensor) []*tensor.Tensor {
		if out != nil {
			if out[0].Len() != 1 || out[0].I == nil {
				tensor.Fail("iteration %d: the condition is %s, expected one bool", i-1, out[0])
			}
			cond = out[0].I[0] != 0
		}
		if !cond || int64(i) >= trips {
			return nil
		}
		round := tensor.NewInts(onnx.Int64, []int{}, []int64{int64(i)})
		going := tensor.NewInts(onnx.Bool, []int{}, []int64{1})
		return append([]*tensor.Tensor{round, going}, state...)
	})
	for k, s := range stacks {
		result = append(result, stack(c, s, 0, g.Outputs[1+len(state)+k]))
	}
	return result
}

// iterate runs a body until next returns no inputs. next gets the iteration number, the carried values and the body's
// last outputs, nil at first. The carried values are its outputs from first on; the outputs after them are stacked.
func iterate(c *op.Call, g *onnx.Graph, state []*tensor.Tensor, first int,
	next func(i int, state, out []*tensor.Tensor) []*tensor.Tensor) (_ []*tensor.Tensor, stacks [][]*tensor.Tensor) {
	behind := first + len(state)
	stacks = make([][]*tensor.Tensor, len(g.Outputs)-behind)
	meter := c.Frame.Meter
	live := meter.Live
	defer func() { meter.Live = live }()
	var out []*tensor.Tensor
	for i := 0; ; i++ {
		in := next(i, state, out)
		if in == nil {
			return slices.Clone(state), stacks
		}
		err := meter.Step()
		if err == nil {
			out, err = c.Body(g, in)
		}
		if err == nil {
			err = meter.Hold(out[behind:]...)
		}
		if err != nil {
			tensor.Fail("iteration %d: %w", i, err)
		}
		state = out[first:behind]
		for k := range stacks {
			stacks[k] = append(stacks[k], out[behind+k])
		}
	}
}

// stack joins tensors along a new axis. Without tensors it makes an empty one of the declared type of v.
func stack(c *op.Call, s []*tensor.Tensor, axis int64, v *onnx.Value) *tensor.Tensor {
	if len(s) == 0 {
		decl, _ := v.Type()
		shape := []int{0}
		for _, d := range decl.Dims {
			shape = append(shape, int(max(d.Value, 0)))
		}
		if tensor.IsFloatType(decl.DataType) {
			return tensor.ZeroFloats(decl.DataType, shape)
		}
		return tensor.ZeroInts(tensor.Pick(decl.DataType == onnx.Undefined, onnx.Int64, decl.DataType), shape)
	}
	at := c.Axis(axis, s[0].Rank()+1)
	s = tensor.Try(tensor.AllDense(s))
	parts := make([]*tensor.Tensor, len(s))
	for i, t := range s {
		if tensor.IsSequence(t) || t.DataType != s[0].DataType {
			tensor.Fail("%s and %s cannot be stacked", s[0], t)
		}
		parts[i] = t.WithShape(slices.Insert(slices.Clone(t.Shape), at, 1))
	}
	return tensor.Concat(parts, at)
}

// opScan runs the body along an axis of its scan inputs (the last num_scan_inputs). It rejects opset 8, which has a
// batch dimension.
func opScan(c *op.Call) []*tensor.Tensor {
	g := graphOf(c, "body")
	if c.Opset() < 9 {
		tensor.Fail("%w: Scan of opset 8", op.ErrUnsupported)
	}
	scans := int(c.Int("num_scan_inputs", 0))
	states := len(c.In) - scans
	if scans < 1 || states < 0 || len(g.Outputs) < states || len(g.Inputs) != len(c.In) || slices.Contains(c.In, nil) {
		tensor.Fail("num_scan_inputs %d does not fit %d inputs and a body of %d inputs and %d outputs",
			scans, len(c.In), len(g.Inputs), len(g.Outputs))
	}
	option := func(name string, i int) int64 {
		if v, ok := c.Ints(name); ok && i < len(v) {
			return v[i]
		}
		return 0
	}
	steps := -1
	pieces := make([][]*tensor.Tensor, scans)
	for k := range pieces {
		x := c.In[states+k]
		axis := c.Axis(option("scan_input_axes", k), x.Rank())
		if steps >= 0 && steps != x.Shape[axis] {
			tensor.Fail("scan inputs have %d and %d elements along their axes", steps, x.Shape[axis])
		}
		steps = x.Shape[axis]
		if steps > tensor.MaxSteps {
			tensor.Fail("%d steps are more than %d", steps, tensor.MaxSteps)
		}
		pieces[k] = tensor.WithoutAxis(tensor.Split(x, axis, slices.Repeat([]int64{1}, steps)), axis)
		if option("scan_input_directions", k) == 1 {
			slices.Reverse(pieces[k])
		}
	}
	result, stacks := iterate(c, g, c.In[:states], 0, func(i int, state, _ []*tensor.Tensor) []*tensor.Tensor {
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
		result = append(result, stack(c, s, option("scan_output_axes", k), g.Outputs[states+k]))
	}
	return result
}
