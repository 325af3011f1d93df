package linear

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// site makes the op compute the row and the next state. Factors are computed once for each head.
func (w *wide) site() *site.Site {
	made := site.New(w.g, fused.LinearAttentionName, w.row.Producer)
	made.Anchor, made.Nodes = w.add, slices.SortedFunc(maps.Keys(w.made), func(a, b *onnx.Node) int {
		return w.g.Position(a) - w.g.Position(b)
	})
	log, shared := w.narrowed(made, w.log), w.narrowed(made, w.shared)
	if log == nil || shared == nil {
		return nil
	}
	log, shared = log.Cast(onnx.Float), shared.Cast(onnx.Float)
	inputs := make([]*site.Operand, fused.LinearAttentionDecay+1)
	row := func(name string, v *onnx.Value, width int) *site.Operand {
		o := made.Input(fused.NoRole, name, v).Cast(onnx.Float)
		return o.With("Reshape", name+"_row", name+"_shape", -1, 1, int64(width))
	}
	inputs[fused.LinearAttentionQ] = row("q", w.q.Value, w.q.heads*w.key)
	inputs[fused.LinearAttentionK] = row("k", w.k.Value, w.k.heads*w.key)
	x := made.Input(fused.NoRole, "x", w.x.Value).Cast(onnx.Float)
	x = x.With("Reshape", "x_heads", "x_shape", -1, int64(w.heads), int64(w.val))
	gate := shared.With("Reshape", "gate", "gate_shape", -1, int64(w.heads), 1)
	v := x.Then("Mul", "v_by_head", []*site.Operand{gate})
	inputs[fused.LinearAttentionV] = v.With("Reshape", "v", "v_shape", -1, 1, int64(w.heads*w.val))
	inputs[fused.LinearAttentionPast] = w.turned(made.Input(fused.NoRole, "past", w.state).Cast(onnx.Float),
		"past_turned", int64(w.heads), int64(w.key), 1)
	inputs[fused.LinearAttentionDecay] = log.With("Reshape", "decay", "decay_shape", -1, 1, int64(w.heads*w.channels))
	out := made.Compute(w.op(), fused.Lookup(made.Op).OutputNames(), inputs...)
	shape, _ := w.shapeIn(w.row, 0)
	dims := []int64{-1}
	for axis := 1; axis < len(shape); axis++ {
		d, ok := w.g.Facts.Dim(w.row, axis)
		if !ok {
			return nil
		}
		dims = append(dims, d)
	}
	out[0].Type, out[1].Type = onnx.Float, onnx.Float
	made.Output(w.row, out[0].With("Reshape", "row", "row_shape", dims...).Cast(w.g.Facts.DataType(w.row)))
	present := w.turned(out[1], "present_turned", int64(w.heads), int64(w.key))
	made.Output(w.next, present.Cast(w.g.Facts.DataType(w.next)))
	return made
}

// turned exchanges the channels of keys and values of a state. A state without an axis for values gets other sizes.
func (w *wide) turned(state *site.Operand, name string, sizes ...int64) *site.Operand {
	if rank, _ := w.g.Facts.Rank(w.next); rank == 4 {
		return state.Transpose(name, 0, 1, 3, 2)
	}
	return state.With("Reshape", name, name+"_shape", append([]int64{-1}, sizes...)...)
}

// everywhere lists the ops that compute each element from those in the same place.
var everywhere = []string{"Add", "Cast", "Clip", "Div", "Exp", "Greater", "Identity", "Less", "Log", "Max", "Min",
	"Mul", "Neg", "Sigmoid", "Softplus", "Sub", "Where"}

// narrowed copies the nodes between the gate and v without its repetitions: an Expand is left out, and a constant keeps
// one element of an axis along which all are equal. It returns nil if the nodes do more than compute elements in place.
func (w *wide) narrowed(made *site.Site, v *onnx.Value) *site.Operand {
	copies := map[*onnx.Value]*site.Operand{}
	var narrow func(v *onnx.Value) *site.Operand
	narrow = func(v *onnx.Value) *site.Operand {
		if o, ok := copies[v]; ok || v == nil {
			return o
		}
		o := w.narrowedOnce(made, v, narrow)
		copies[v] = o
		return o
	}
	return narrow(v)
}

func (w *wide) narrowedOnce(made *site.Site, v *onnx.Value, narrow func(*onnx.Value) *site.Operand) *site.Operand {
	n := v.Producer
	switch {
	case v == w.gate:
		return made.Input(fused.NoRole, "gate_source", v)
	case v.Constant() != nil:
		return unrepeated(made, v.Constant())
	case n == nil || n.Graph != w.g.Graph || n.Input(0) == nil:
		return nil
	case n.Is("Expand"):
		a, ok := w.g.Facts.Rank(v)
		b, also := w.g.Facts.Rank(n.Input(0))
		if !ok || !also || a != b {
			return nil
		}
		return narrow(n.Input(0))
	case n.Is("CastLike"): // its other input is read for its type only
		o := narrow(n.Input(0))
		if o == nil {
			return nil
		}
		o = made.Node("Cast", v.Name, []*site.Operand{o}, onnx.IntAttr("to", int64(w.g.Facts.DataType(v))))
		o.Type = w.g.Facts.DataType(v)
		return o
	case !slices.Contains(everywhere, n.OpType) && !n.Is("Unsqueeze"):
		return nil
	}
	var inputs []*site.Operand
	for i, in := range n.Inputs {
		o := (*site.Operand)(nil)
		if n.Is("Unsqueeze") && i == 1 && in.Constant() != nil {
			o = made.Constant("axes", in.Constant())
		} else if in != nil {
			if o = narrow(in); o == nil {
				return nil
			}
		}
		inputs = append(inputs, o)
	}
	o := made.Node(n.OpType, v.Name, inputs, n.Attributes...)
	o.Type = w.g.Facts.DataType(v)
	return o
}

// unrepeated returns a constant that has one element of each axis along which all elements are equal.
func unrepeated(made *site.Site, c *onnx.Tensor) *site.Operand {
	t, err := reference.FromONNX(c)
	if err != nil {
		return nil
	}
	if !t.IsFloat() {
		return made.Constant("number", c)
	}
	shape, list := slices.Clone(t.Shape), slices.Clone(t.F)
	for axis, d := range shape {
		inner := 1
		for _, x := range shape[axis+1:] {
			inner *= x
		}
		var kept []float64
		same := true
		for i, x := range list {
			at := i / inner % max(d, 1)
			first := i - at*inner
			if same = same && list[first] == x; at == 0 {
				kept = append(kept, x)
			}
		}
		if same && d > 0 {
			shape[axis], list = 1, kept
		}
	}
	small, err := reference.NewFloats(t.DataType, shape, list).ToONNX("")
	if err != nil {
		return nil
	}
	return made.Constant("number", small)
}
