package match

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// MaxDetour is the number of nodes within which a value may return to an earlier one.
const MaxDetour = 8

// Resolve goes back over nodes that pass their input on unchanged: single nodes, or several that undo each other, such
// as Unsqueeze and Squeeze, or a cast to a wider type and back.
func (g *View) Resolve(v *onnx.Value) *onnx.Value {
	if v == nil || v.Producer == nil || !mayHandOn(v.Producer.OpType) {
		return v
	}
	var path []*onnx.Value // each origin is the next element: a chain is followed only once
	for {
		if w, ok := g.through[v]; ok {
			v = w
			break
		}
		path = append(path, v)
		next := g.origin(v)
		if next == nil {
			break
		}
		v = next
	}
	for _, w := range path {
		g.through[w] = v
	}
	return v
}

// origin returns an earlier value with the same elements, shape and type as v, or nil. On the way the order of the
// elements is restored, and every type holds all numbers of v's.
func (g *View) origin(v *onnx.Value) *onnx.Value {
	t := g.Facts.DataType(v)
	reshaped, cast := false, false
	var moved []int64 // the axes of w in the order of v; nil if unchanged
	w := v
	for range MaxDetour {
		n := w.Producer
		if n == nil {
			return nil
		}
		in := g.HandsOn(n, w)
		if in == nil {
			return nil
		}
		switch n.OpType {
		case "Cast", "CastLike":
			cast = true
		case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
			if moved != nil {
				return nil
			}
			reshaped = true
		case "Transpose":
			if moved = compose(moved, n.AttrInts("perm")); moved == nil {
				return nil
			}
			if slices.IsSorted(moved) {
				moved = nil
			}
		}
		w = in
		u := g.Facts.DataType(w)
		if cast && (t == onnx.Undefined || t != u && !Widens(t, u)) {
			return nil
		}
		if moved == nil && (!cast || t == u) && (!reshaped || g.Facts.SameShape(v, w)) {
			return w
		}
	}
	return nil
}

// compose returns the permutation of two transpositions. The one by perm comes first; a nil moved means no other. It
// returns nil if perm is unknown or of another rank.
func compose(moved, perm []int64) []int64 {
	if perm == nil || moved == nil {
		return perm
	}
	if len(moved) != len(perm) {
		return nil
	}
	out := make([]int64, len(perm))
	for i, axis := range moved {
		if axis < 0 || axis >= int64(len(perm)) {
			return nil
		}
		out[i] = perm[axis]
	}
	return out
}

// mayHandOn reports whether an op may pass on its input: see HandsOn. It is called too often for a map.
func mayHandOn(op string) bool {
	switch op {
	case "Identity", "Cast", "CastLike", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Slice",
		"Concat", "Sum", "Max", "Min", "Mean", "Split", "Clip", "Dropout", "Mul", "Div", "Add", "Sub", "SequenceAt":
		return true
	}
	return false
}

// HandsOn returns the input whose elements a node passes on as out, all of them, perhaps in another shape, type or
// order of axes. It returns nil for other nodes.
func (g *View) HandsOn(n *onnx.Node, out *onnx.Value) *onnx.Value {
	in := n.Input(0)
	if in == nil || out.Output != 0 || !onnx.IsStandardDomain(n.Domain) {
		return nil
	}
	keeps := false
	switch n.OpType {
	case "Identity", "Cast", "CastLike", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose":
		keeps = true
	case "Expand":
		keeps = g.Facts.SameShape(in, out)
	case "Slice": // of all elements
		_, _, steps, ok := g.SliceOf(n)
		keeps = ok && !slices.ContainsFunc(steps, func(s int64) bool { return s != 1 }) && g.Facts.SameShape(in, out)
	case "Concat", "Sum", "Max", "Min", "Mean":
		keeps = len(n.Inputs) == 1
	case "Split":
		keeps = len(n.Outputs) == 1
	case "SequenceAt": // of a sequence built from tensors by a SequenceConstruct
		at, ok := g.Ints(n.Input(1))
		if !ok || len(at) != 1 || !Producer(in).Is("SequenceConstruct") {
			return nil
		}
		list := in.Producer.Inputs
		if at[0] < 0 {
			at = []int64{at[0] + int64(len(list))}
		}
		if at[0] < 0 || at[0] >= int64(len(list)) {
			return nil
		}
		return list[at[0]]
	case "Clip": // without bounds
		keeps = g.isBound(n, 1, math.Inf(-1)) && g.isBound(n, 2, math.Inf(1))
	case "Dropout": // without training_mode it is the identity
		keeps = n.Input(2) == nil && len(n.Outputs) == 1 && n.AttrInt("is_test", 1) == 1
	case "Mul", "Div", "Add", "Sub":
		return g.neutralOperand(n, out)
	}
	if !keeps {
		return nil
	}
	return in
}

// isBound reports whether an input of Clip is omitted or is this number.
func (g *View) isBound(n *onnx.Node, i int, want float64) bool {
	if n.Input(i) == nil {
		return n.Attr("min") == nil && n.Attr("max") == nil // as in opsets before 11
	}
	x, _, ok := g.Scalar(n.Input(i))
	return ok && x == want
}

// neutralOperand returns x of x * 1, x / 1, x + 0 and x - 0.
func (g *View) neutralOperand(n *onnx.Node, out *onnx.Value) *onnx.Value {
	if len(n.Inputs) != 2 {
		return nil
	}
	neutral := 0.0
	if n.OpType == "Mul" || n.OpType == "Div" {
		neutral = 1
	}
	for i, v := range n.Inputs {
		if i == 0 && !notation.Commutative[n.OpType] {
			continue
		}
		other := n.Inputs[1-i]
		if x, _, ok := g.Scalar(v); ok && x == neutral && g.Facts.SameShape(other, out) {
			return other
		}
	}
	return nil
}

// Widens reports whether type u holds every number of type t.
func Widens(t, u onnx.DataType) bool {
	switch t {
	case onnx.Float16, onnx.BFloat16:
		return u == onnx.Float || u == onnx.Double
	case onnx.Float:
		return u == onnx.Double
	}
	return false
}

// SliceOf reads the starts, axes and steps of a Slice, in the attribute form of opset 1 or the input form of opset 10.
func (g *View) SliceOf(n *onnx.Node) (starts, axes, steps []int64, ok bool) {
	list := func(name string, input int) ([]int64, bool) {
		if v := n.Input(input); v != nil {
			return g.Ints(v)
		}
		return n.AttrInts(name), true
	}
	starts, ok1 := list("starts", 1)
	axes, ok2 := list("axes", 3)
	steps, ok3 := list("steps", 4)
	for i := range starts {
		if n.Input(3) == nil && n.Attr("axes") == nil {
			axes = append(axes, int64(i))
		}
		if n.Input(4) == nil && n.Attr("steps") == nil {
			steps = append(steps, 1)
		}
	}
	return starts, axes, steps, ok1 && ok2 && ok3 && len(starts) > 0 && len(axes) == len(starts) &&
		len(steps) == len(starts)
}

// reductions lists the ops that reduce axes named by an attribute or, since opset 18, by an input.
var reductions = onnx.Words(`
	ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum
	ReduceLogSumExp
`)

// isOpType compares op types; a Sum of two is an Add.
func isOpType(n *onnx.Node, op string) bool {
	return n.OpType == op || op == "Add" && n.OpType == "Sum" && len(n.Inputs) == 2
}

// AttributeInputs maps attributes of older opsets to the inputs that replace them, so that one spelling serves all.
var AttributeInputs = map[string]map[string]int{
	"ReduceMean": {"axes": 1}, "ReduceSum": {"axes": 1}, "ReduceMax": {"axes": 1}, "ReduceMin": {"axes": 1},
	"ReduceProd": {"axes": 1}, "ReduceSumSquare": {"axes": 1}, "ReduceL1": {"axes": 1}, "ReduceL2": {"axes": 1},
	"ReduceLogSum": {"axes": 1}, "ReduceLogSumExp": {"axes": 1},
	"Squeeze": {"axes": 1}, "Unsqueeze": {"axes": 1}, "Split": {"split": 1},
	"Slice": {"starts": 1, "ends": 2, "axes": 3, "steps": 4},
	"Clip":  {"min": 1, "max": 2}, "TopK": {"k": 1}, "Pad": {"pads": 1, "value": 2}, "Tile": {"repeats": 1},
	"Dropout": {"ratio": 1},
}

// attributeDefaults are the ONNX standard's defaults of attributes that patterns use.
var attributeDefaults = map[string]map[string]any{
	"Softmax": {"axis": -1.0}, "LogSoftmax": {"axis": -1.0}, "Gelu": {"approximate": "none"},
	"Swish": {"alpha": 1.0}, "SwiGLU": {"alpha": 1.0}, "Split": {"axis": 0.0},
	"TopK": {"axis": -1.0, "largest": 1.0, "sorted": 1.0}, "Gather": {"axis": 0.0}, "GatherElements": {"axis": 0.0},
	"LeakyRelu": {"alpha": 0.01}, "Elu": {"alpha": 1.0},
	"Gemm":               {"alpha": 1.0, "beta": 1.0, "transA": 0.0, "transB": 0.0},
	"LayerNormalization": {"axis": -1.0, "epsilon": 1e-5, "stash_type": 1.0},
	"RMSNormalization":   {"axis": -1.0, "epsilon": 1e-5, "stash_type": 1.0}, "RotaryEmbedding": {"interleaved": 0.0},
	"SimplifiedLayerNormalization": {"axis": -1.0, "epsilon": 1e-5, "stash_type": 1.0},
	"Clip":                         {"min": "none", "max": "none"}, "com.microsoft.QuickGelu": {"alpha": 1.702},
}
