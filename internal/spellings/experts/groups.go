package experts

import (
	"math"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// grouped keeps the scores of the experts in the best groups, and replaces the others.
func (r *routed) grouped(scores *onnx.Value) *onnx.Value {
	count, kept := 4, writer.Choose(r.Writer, 2, 3)
	if r.Chance(2) {
		count, kept = 2, 1
	}
	size := r.experts / count
	c := writer.Channels{Writer: r.Writer, Rank: 2, Size: r.experts}
	var parts *onnx.Value // [T, groups, experts of a group]
	if r.wrong("groups of every n-th expert") {
		parts = r.Op("Transpose", c.Reshaped(scores, int64(size), int64(count)),
			onnx.IntsAttr("perm", []int64{0, 2, 1}))
	} else {
		parts = c.Reshaped(scores, int64(count), int64(size))
	}
	args := []any{r.ofGroups(parts, size), r.Ints(int64(kept)), onnx.IntAttr("axis", r.LastAxis(2))}
	if r.Chance(2) {
		args = append(args, onnx.IntAttr("sorted", 0))
	}
	if r.wrong("the least groups") {
		args = append(args, onnx.IntAttr("largest", 0))
	}
	ids := r.Ops("TopK", 2, args...)[1]
	switch {
	case r.wrong("the groups behind the chosen ones"):
		ids = r.Op("Mod", r.Op("Add", ids, r.Ints(1)), r.Ints(int64(count)))
	case r.wrong("groups of the next token"):
		ids = r.nextRow(ids)
	}
	mask := r.spread(r.groupMask(ids, count, kept), count, size)
	if r.wrong("the chosen groups left out") {
		mask = r.Op("Not", mask)
	}
	fill := r.Floats(onnx.Float, []int{}, []float64{writer.Choose(r.Writer, 0, 0, math.Inf(-1))})
	switch {
	case r.Chance(4):
		return r.Product(scores, r.Cast(mask, onnx.Float))
	case r.Chance(2):
		return r.Op("Where", r.Op("Not", mask), fill, scores)
	}
	return r.Op("Where", mask, scores, fill)
}

// ofGroups returns a number for each group: its greatest score, or the sum of its two greatest.
func (r *routed) ofGroups(parts *onnx.Value, size int) *onnx.Value {
	axis := []int64{r.LastAxis(3)}
	switch {
	case size > 2 && r.wrong("groups by their mean"): // of two it is half their sum
		return r.Reduce("ReduceMean", parts, axis, false)
	case r.wrong("groups by their least"):
		return r.Reduce("ReduceMin", parts, axis, false)
	case size > 2 && r.wrong("groups by three scores"):
		best := r.Ops("TopK", 2, parts, r.Ints(3), onnx.IntAttr("axis", r.LastAxis(3)))
		return r.Reduce("ReduceSum", best[0], axis, false)
	case r.Chance(2):
		return r.Reduce("ReduceMax", parts, axis, false)
	}
	best := r.Ops("TopK", 2, parts, r.Ints(2), onnx.IntAttr("axis", r.LastAxis(3)))
	return r.Reduce("ReduceSum", best[0], axis, false)
}

// groupMask returns [T, groups], one for chosen groups.
func (r *routed) groupMask(ids *onnx.Value, count, kept int) *onnx.Value {
	if r.Chance(3) {
		hot := r.Op("OneHot", ids, r.Ints(int64(count)), r.Floats(onnx.Float, []int{2}, []float64{0, 1}))
		return r.Reduce("ReduceSum", hot, []int64{1}, false)
	}
	rows := r.Op("Slice", r.Op("Shape", ids), r.Ints(0), r.Ints(1))
	shape := r.Op("Concat", rows, r.Ints(int64(count)), onnx.IntAttr("axis", 0))
	var zeros *onnx.Value
	if r.Chance(2) {
		zeros = r.Op("ConstantOfShape", shape)
	} else {
		zeros = r.Op("Expand", r.Floats(onnx.Float, []int{}, []float64{0}), shape)
	}
	ones := r.Op("Expand", r.Floats(onnx.Float, []int{1}, []float64{1}), r.Op("Shape", ids))
	return r.Op("ScatterElements", zeros, ids, ones, onnx.IntAttr("axis", r.LastAxis(2)))
}

// spread expands a group mask to experts, as booleans.
func (r *routed) spread(mask *onnx.Value, count, size int) *onnx.Value {
	wide := r.Op("Unsqueeze", mask, r.Ints(r.LastAxis(3)))
	if r.Chance(2) {
		wide = r.Op("Expand", wide, r.Ints(1, int64(count), int64(size)))
	} else {
		wide = r.Op("Tile", wide, r.Ints(1, 1, int64(size)))
	}
	return r.Cast(r.Op("Reshape", wide, r.Ints(-1, int64(r.experts))), onnx.Bool)
}
