package parameters

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Layout is the order of the last two axes of an initializer relative to a linear layer's weight.
type Layout int

const (
	AnyLayout Layout = iota // its readers do not determine it
	OutIn                   // [out, in], as PyTorch stores them; also the rows of an embedding
	InOut                   // [in, out], as MatMul reads them
)

// LayoutOf finds the layout by the nodes that read the initializer. It is anyLayout if they contradict each other.
func LayoutOf(v *onnx.Value) Layout {
	found := AnyLayout
	contradiction := false
	rank := len(v.Const.Dims)
	seen := map[*onnx.Value]bool{}
	var visit func(v *onnx.Value, swapped bool)
	note := func(l Layout, swapped bool) {
		if swapped {
			l = OutIn + InOut - l
		}
		contradiction = contradiction || found != AnyLayout && found != l
		found = l
	}
	visit = func(v *onnx.Value, swapped bool) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		for _, u := range v.Uses() {
			switch n := u.Node; {
			case n.Is("MatMul") && u.Index == 1:
				note(InOut, swapped)
			case n.Is("MatMul"):
				note(OutIn, swapped)
			case n.Is("Gemm") && u.Index == 1 && n.AttrInt("transB", 0) != 0,
				n.Is("Gemm") && u.Index == 0 && n.AttrInt("transA", 0) == 0:
				note(OutIn, swapped)
			case n.Is("Gemm") && u.Index <= 1:
				note(InOut, swapped)
			case n.Is("Gather") && u.Index == 0 && rank == 2 && n.AttrInt("axis", 0) == 0:
				note(OutIn, swapped)
			case n.Domain == fused.Domain && fused.ExpertLayout(u.Index) != "" && n.OpType == fused.MoEName:
				if n.AttrString(fused.ExpertLayout(u.Index), "") == "in_out" {
					note(InOut, swapped)
				} else {
					note(OutIn, swapped)
				}
			case u.Index == 0 && n.Is("Transpose"):
				if swaps, ok := swapsLast(n); ok {
					visit(n.OutputValue(0), swapped != swaps)
				}
			case u.Index == 0 && (n.Is("Cast") || n.Is("Identity") || n.Is("Gather") || n.Is("GatherND") ||
				n.Is("Squeeze") || n.Is("Slice") || n.Is("Split")):
				for _, out := range n.Outputs {
					visit(out, swapped)
				}
			}
		}
	}
	visit(v, false)
	if contradiction {
		return AnyLayout
	}
	return found
}

// swapsLast reports whether a Transpose swaps the last two axes. ok is false if it also moves other axes.
func swapsLast(n *onnx.Node) (swaps, ok bool) {
	perm := n.AttrInts("perm")
	if perm == nil {
		return true, true // the default reverses two axes
	}
	k := len(perm)
	for i, p := range perm[:max(k-2, 0)] {
		if p != int64(i) {
			return false, false
		}
	}
	return k >= 2 && perm[k-2] == int64(k-1), true
}

// Squeezed removes dimensions of 1.
func Squeezed(dims []int64) []int64 {
	list := []int64{}
	for _, d := range dims {
		if d != 1 {
			list = append(list, d)
		}
	}
	return list
}
