package patterns

import "github.com/mojo-patch/mojo-patch/onnx"

// builtinViews are the views that text cannot say: they take one argument, the tensor whose part the value is.
//
//	FirstHalf(x)   the first half of the last axis of x
//	SecondHalf(x)  the second half of it
//
// A half may be an output of a Split into two equal parts, or a Slice with step 1 whose bounds are constants or are
// computed from the shape.
var builtinViews = map[string]bool{"FirstHalf": true, "SecondHalf": true}

// half gives the tensor that v is a half of; why not otherwise.
func (g *graphView) half(v *onnx.Value, second bool) (x *onnx.Value, why string) {
	n := v.Producer
	switch {
	case n == nil:
		return nil, "a value that no node makes"
	case n.Is("Split"):
		return g.splitHalf(n, v.Output, second)
	case n.Is("Slice"):
		return g.sliceHalf(n, second)
	}
	return nil, n.OpType
}

func (g *graphView) splitHalf(n *onnx.Node, output int, second bool) (*onnx.Value, string) {
	x := n.Input(0)
	d, ok := g.facts.Dim(x, -1)
	switch {
	case len(n.Outputs) != 2 || (output == 1) != second:
		return nil, "another output of Split"
	case !g.isLastAxis(x, n.AttrInt("axis", 0)):
		return nil, "Split of another axis"
	case !ok:
		return nil, "Split of a last axis of unknown size"
	case d%2 != 0:
		return nil, "Split of an odd axis"
	}
	if sizes := n.AttrInts("split"); sizes != nil && (len(sizes) != 2 || sizes[0] != d/2) {
		return nil, "Split into unequal parts"
	}
	if s := n.Input(1); s != nil {
		if sizes, ok := g.ints(s); !ok || len(sizes) != 2 || sizes[0] != d/2 {
			return nil, "Split into unequal parts"
		}
	}
	return x, ""
}

func (g *graphView) sliceHalf(n *onnx.Node, second bool) (*onnx.Value, string) {
	x := n.Input(0)
	start, end, axis, step, ok := g.sliceBounds(n)
	if !ok {
		return nil, "Slice with unknown bounds"
	}
	d, known := g.facts.Dim(x, -1)
	switch {
	case !g.isLastAxis(x, axis):
		return nil, "Slice of another axis"
	case !known:
		return nil, "Slice of a last axis of unknown size"
	case step != 1:
		return nil, "Slice with steps"
	}
	start, end = clampIndex(start, d), clampIndex(end, d)
	if d%2 != 0 || !second && (start != 0 || end != d/2) || second && (start != d/2 || end != d) {
		return nil, "Slice of another part"
	}
	return x, ""
}

// sliceBounds reads a Slice of one axis, in the attribute form of opset 1 or the input form of opset 10.
func (g *graphView) sliceBounds(n *onnx.Node) (start, end, axis, step int64, ok bool) {
	one := func(name string, input int, def int64) (int64, bool) {
		list := n.AttrInts(name)
		if v := n.Input(input); v != nil {
			if list, ok = g.ints(v); !ok {
				return 0, false
			}
		} else if list == nil && def >= 0 {
			return def, true
		}
		if len(list) != 1 {
			return 0, false
		}
		return list[0], true
	}
	var ok1, ok2, ok3, ok4 bool
	start, ok1 = one("starts", 1, -1)
	end, ok2 = one("ends", 2, -1)
	axis, ok3 = one("axes", 3, 0)
	step, ok4 = one("steps", 4, 1)
	return start, end, axis, step, ok1 && ok2 && ok3 && ok4
}

func (g *graphView) isLastAxis(x *onnx.Value, axis int64) bool {
	if axis == -1 {
		return true
	}
	r, ok := g.facts.Rank(x)
	return ok && axis == int64(r-1)
}

func clampIndex(i, d int64) int64 {
	if i < 0 {
		i += d
	}
	return min(max(i, 0), d)
}
