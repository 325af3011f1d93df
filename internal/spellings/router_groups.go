package spellings

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// grouped keeps the scores of the experts in the best groups, and replaces the others.
func (r *routed) grouped(scores *onnx.Value) *onnx.Value {
	count, kept := 4, choose(r.writer, 2, 3)
	if r.chance(2) {
		count, kept = 2, 1
	}
	size := r.experts / count
	c := channels{r.writer, 2, r.experts}
	var parts *onnx.Value // [T, groups, experts of a group]
	if r.wrong("groups of every n-th expert") {
		parts = r.op("Transpose", c.reshaped(scores, int64(size), int64(count)),
			onnx.IntsAttr("perm", []int64{0, 2, 1}))
	} else {
		parts = c.reshaped(scores, int64(count), int64(size))
	}
	args := []any{r.ofGroups(parts, size), r.ints(int64(kept)), onnx.IntAttr("axis", r.lastAxis(2))}
	if r.chance(2) {
		args = append(args, onnx.IntAttr("sorted", 0))
	}
	if r.wrong("the least groups") {
		args = append(args, onnx.IntAttr("largest", 0))
	}
	ids := r.ops("TopK", 2, args...)[1]
	switch {
	case r.wrong("the groups behind the chosen ones"):
		ids = r.op("Mod", r.op("Add", ids, r.ints(1)), r.ints(int64(count)))
	case r.wrong("groups of the next token"):
		ids = r.nextRow(ids)
	}
	mask := r.spread(r.groupMask(ids, count, kept), count, size)
	if r.wrong("the chosen groups left out") {
		mask = r.op("Not", mask)
	}
	fill := r.floats(onnx.Float, []int{}, []float64{choose(r.writer, 0, 0, math.Inf(-1))})
	switch {
	case r.chance(4):
		return r.product(scores, r.cast(mask, onnx.Float))
	case r.chance(2):
		return r.op("Where", r.op("Not", mask), fill, scores)
	}
	return r.op("Where", mask, scores, fill)
}

// ofGroups returns a number for each group: its greatest score, or the sum of its two greatest.
func (r *routed) ofGroups(parts *onnx.Value, size int) *onnx.Value {
	axis := []int64{r.lastAxis(3)}
	switch {
	case size > 2 && r.wrong("groups by their mean"): // of two it is half their sum
		return r.reduce("ReduceMean", parts, axis, false)
	case r.wrong("groups by their least"):
		return r.reduce("ReduceMin", parts, axis, false)
	case size > 2 && r.wrong("groups by three scores"):
		best := r.ops("TopK", 2, parts, r.ints(3), onnx.IntAttr("axis", r.lastAxis(3)))
		return r.reduce("ReduceSum", best[0], axis, false)
	case r.chance(2):
		return r.reduce("ReduceMax", parts, axis, false)
	}
	best := r.ops("TopK", 2, parts, r.ints(2), onnx.IntAttr("axis", r.lastAxis(3)))
	return r.reduce("ReduceSum", best[0], axis, false)
}

// groupMask returns [T, groups], one for chosen groups.
func (r *routed) groupMask(ids *onnx.Value, count, kept int) *onnx.Value {
	if r.chance(3) {
		hot := r.op("OneHot", ids, r.ints(int64(count)), r.floats(onnx.Float, []int{2}, []float64{0, 1}))
		return r.reduce("ReduceSum", hot, []int64{1}, false)
	}
	rows := r.op("Slice", r.op("Shape", ids), r.ints(0), r.ints(1))
	shape := r.op("Concat", rows, r.ints(int64(count)), onnx.IntAttr("axis", 0))
	var zeros *onnx.Value
	if r.chance(2) {
		zeros = r.op("ConstantOfShape", shape)
	} else {
		zeros = r.op("Expand", r.floats(onnx.Float, []int{}, []float64{0}), shape)
	}
	ones := r.op("Expand", r.floats(onnx.Float, []int{1}, []float64{1}), r.op("Shape", ids))
	return r.op("ScatterElements", zeros, ids, ones, onnx.IntAttr("axis", r.lastAxis(2)))
}

// spread expands a group mask to experts, as booleans.
func (r *routed) spread(mask *onnx.Value, count, size int) *onnx.Value {
	wide := r.op("Unsqueeze", mask, r.ints(r.lastAxis(3)))
	if r.chance(2) {
		wide = r.op("Expand", wide, r.ints(1, int64(count), int64(size)))
	} else {
		wide = r.op("Tile", wide, r.ints(1, 1, int64(size)))
	}
	return r.cast(r.op("Reshape", wide, r.ints(-1, int64(r.experts))), onnx.Bool)
}
