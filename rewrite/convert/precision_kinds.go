package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func (p *precision) reads(n *onnx.Node) kind {
	k := constant
	for _, v := range n.Inputs {
		if p.isFloat(v) {
			k = max(k, p.kindOf(v))
		}
	}
	return k
}

func (p *precision) readsHalf(n *onnx.Node) bool {
	return slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return p.isFloat(v) && p.kindOf(v) == half })
}

// only reports whether the node has float32 inputs of these kinds, and all its other float32 inputs are constants.
func (p *precision) only(n *onnx.Node, kinds ...kind) bool {
	some := false
	for _, v := range n.Inputs {
		if !p.isFloat(v) {
			continue
		}
		k := p.kindOf(v)
		if k != constant && !slices.Contains(kinds, k) {
			return false
		}
		some = some || k != constant
	}
	return some
}

// reduced returns the kind of a reduction: stat if it is over the last axis.
func (p *precision) reduced(n *onnx.Node) kind {
	switch k := p.kindOf(n.Input(0)); {
	case k == score, k == index:
		return k
	case p.overLast(n):
		return stat
	}
	return sum
}

// added returns the kind of a scatter that sums. These sums are float32 like others: onnxruntime's CPU provider has no
// float16 kernel for them, although it loads such a model.
func (p *precision) added(n *onnx.Node) kind {
	switch k := p.reads(n); k {
	case constant, index:
		return index
	case score:
		return score
	}
	return sum
}

// overLast reports whether the axes of a reduction include the last one.
func (p *precision) overLast(n *onnx.Node) bool {
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		t, ok := p.facts.Constant(v)
		if !ok {
			return false
		}
		axes = t.I
	}
	if len(axes) == 0 {
		return n.AttrInt("noop_with_empty_axes", 0) == 0
	}
	rank, ok := p.facts.Rank(n.Input(0))
	return slices.Contains(axes, -1) || ok && slices.Contains(axes, int64(rank-1))
}

// elementwise returns the kind of the result of an elementwise op.
func (p *precision) elementwise(n *onnx.Node) kind {
	switch {
	case p.reads(n) == constant: // arithmetic on constants: frequencies
		return index
	case p.only(n, index):
		return index
	case p.only(n, index, stat):
		return stat
	case p.only(n, index, stat, score):
		return score
	case p.only(n, wide):
		return wide
	}
	if n.Is("Mul") || n.Is("Div") || n.Is("Sub") || n.Is("Add") {
		if k := p.scaled(n); k != constant {
			return k
		}
	}
	switch {
	case p.squares[n], sensitive[n.OpType]:
		return max(sum, p.reads(n))
	}
	return half
}

// scaled returns the kind of a sum or product of two values if one of them stays in float32, and constant otherwise.
func (p *precision) scaled(n *onnx.Node) kind {
	a, b := n.Input(0), n.Input(1)
	if !p.isFloat(a) || !p.isFloat(b) {
		return constant
	}
	ka, kb := p.kindOf(a), p.kindOf(b)
	switch {
	case ka == stat || kb == stat:
		return row
	case ka == score && p.perRow(a), kb == score && p.perRow(b): // the weights of experts
		return sum
	case ka == row && kb == row:
		return row
	case ka == constant && kb == row && !p.scalar(a):
		return p.weighted(n, 1, true)
	case ka == row && kb == constant && !p.scalar(b):
		return p.weighted(n, 0, false)
	case ka == row && kb == constant, ka == constant && kb == row:
		return row
	// attention scaling
	case ka == table && kb == constant && p.scalar(b), kb == table && ka == constant && p.scalar(a):
		return table
	}
	return constant
}

// weighted returns the kind of a norm's row times its weight: float32 if a Cast followed it, and half if a Cast
// preceded it. If there was no Cast, it is half if the weight comes first.
func (p *precision) weighted(n *onnx.Node, rowAt int, weightFirst bool) kind {
	out := n.OutputValue(0)
	switch {
	case n.Is("Add"), n.Is("Sub"): // the bias of a LayerNorm is float32 like its product
		return sum
	case slices.ContainsFunc(out.Uses(), func(u onnx.Use) bool { return u.Node.Is("Add") && p.bias(u) }):
		return row
	case p.castAfter[out]:
		return sum
	case p.gatedInFloat32(n.Input(rowAt)):
		return sum
	case p.castBefore[onnx.Use{Node: n, Index: rowAt}]:
		return half
	case weightFirst:
		return half
	}
	return sum
}

// gatedInFloat32 reports whether a norm's row is a product with a gate and the gated value stays in float32.
func (p *precision) gatedInFloat32(row *onnx.Value) bool {
	n := computedBy(row)
	return n != nil && slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
		x := p.gates[computedBy(v)]
		return x != nil && p.kindOf(x).float32()
	})
}

// bias reports whether the other input of the Add is a constant vector.
func (p *precision) bias(u onnx.Use) bool {
	other := u.Node.Input(1 - u.Index)
	return other != nil && p.kindOf(other) == constant && !p.scalar(other)
}

// perRow reports whether a value has one element for each row: its last axis is 1.
func (p *precision) perRow(v *onnx.Value) bool {
	d, ok := p.facts.Dim(v, -1)
	return ok && d == 1
}

func (p *precision) scalar(v *onnx.Value) bool {
	if t := v.Constant(); t != nil {
		return t.Len() == 1
	}
	rank, ok := p.facts.Rank(v)
	return ok && rank == 0
}

// moved returns the kind of moved elements: the kind of the inputs, or half if they differ.
func (p *precision) moved(n *onnx.Node) kind {
	k := constant
	for i, v := range n.Inputs {
		if !p.isFloat(v) || n.Is("Pad") && i > 0 {
			continue
		}
		switch of := p.kindOf(v); {
		case of == half:
			return half
		case of != constant && k == constant:
			k = of
		case of != constant && of != k:
			k = max(k, of)
		}
	}
	if k == constant && (n.Is("Where") || n.OpType == "Gather" && n.Input(1).Constant() == nil || n.Is("GatherND") ||
		n.Is("GatherElements")) {
		return half // a mask, rows of a table
	}
	return k
}
