package shard

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

var fusedRules map[string]rule

func init() {
	fusedRules = map[string]rule{
		fused.GLUName: broadcast, fused.BiasGELUName: broadcast,
		fused.RMSNormName: norm(1), fused.AddRMSNormName: norm(2), fused.AddLayerNormName: norm(2),
		fused.RotaryEmbeddingName: rotary(3), fused.NormRotaryName: normRotary,
		fused.TopKRouterName: router, fused.GatedRMSNormName: gatedNorm,
		fused.AttentionName: attention, fused.LatentAttentionName: latentAttention,
		fused.PagedAttentionName: pagedAttention, fused.LinearAttentionName: linearAttention,
		fused.CausalConvName: causalConv,
		fused.HalfLinearName: halfLinear, fused.LinearName: linear,
	}
}

// norm is the rule of ops that normalize the last axes of their first inputs.
func norm(inputs int) rule {
	return func(b *block, n *onnx.Node) error {
		l, _, _ := b.known(n)
		r, err := b.rank(n.Inputs[0])
		if err != nil {
			return err
		}
		if l.Axis >= r+int(n.AttrInt(fused.AttrAxis, -1)) {
			return fmt.Errorf("it normalizes axis %d, which is divided", l.Axis)
		}
		return b.aligned(n, n.Inputs[:inputs], n.Outputs)
	}
}

// rotary is the rule of ops that rotate the channels of each head.
func rotary(inputs int) rule {
	return func(b *block, n *onnx.Node) error {
		l, _, _ := b.known(n)
		if r, err := b.rank(n.Inputs[0]); err != nil || l.Axis == r-1 {
			return errors.New("the channels that it rotates are divided")
		}
		return b.aligned(n, n.Inputs[:inputs], n.Outputs)
	}
}

// normRotary has the scale of the norm as its second input.
func normRotary(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	if r, err := b.rank(n.Inputs[0]); err != nil || l.Axis == r-1 {
		return errors.New("the channels that it normalizes are divided")
	}
	inputs := []*onnx.Value{n.Inputs[0], nil, n.Inputs[2], n.Inputs[3]}
	return b.aligned(n, inputs, n.Outputs)
}

func router(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	if r, err := b.rank(n.Inputs[0]); err != nil || l.Axis == r-1 {
		return errors.New("it compares all experts, which are divided")
	}
	return b.aligned(n, n.Inputs[:1], n.Outputs)
}

// gatedNorm normalizes groups of channels; a rank may have some of the groups.
func gatedNorm(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	if l.Axis == r-1 {
		groups := n.AttrInt(fused.AttrGroups, 1)
		if l.Runs != nil || groups%l.parts(b.ranks) != 0 {
			return fmt.Errorf("its %d groups of channels cannot be divided", groups)
		}
		if err := b.take(n, 2, l.at(0)); err != nil {
			return err
		}
		b.set(n, onnx.IntAttr(fused.AttrGroups, groups/l.parts(b.ranks)))
	}
	return b.aligned(n, n.Inputs[:2], n.Outputs)
}

// A place is an input or output of a node whose axis has heads or channels.
type place struct {
	output      bool
	index, axis int
	layout      *Layout // nil: whole
}

// give takes and holds the values of a node.
func (b *block) give(n *onnx.Node, places []place) error {
	for _, p := range places {
		var err error
		switch {
		case p.output && p.layout == nil:
			v := n.OutputValue(p.index)
			if v != nil && b.isHeld(v) {
				err = fmt.Errorf("%q is divided", v.Name)
			}
		case p.layout == nil:
			err = b.whole(n, p.index)
		case p.output:
			if v := n.OutputValue(p.index); v != nil {
				err = b.hold(v, p.layout.at(p.axis))
			}
		default:
			err = b.take(n, p.index, p.layout.at(p.axis))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *block) isHeld(v *onnx.Value) bool {
	_, held := b.held[v]
	return held
}

func headAxis(n *onnx.Node, layout string) int {
	if n.AttrString(layout, "bnsh") == "bsnh" {
		return 2
	}
	return 1
}

// heads errs unless the node's values are divided by heads of queries, or of keys, one by one.
func (b *block) heads(n *onnx.Node, axes map[*onnx.Value]int) error {
	for v, axis := range axes {
		if l, held := b.held[v]; held && v != nil && (l.Axis != axis || l.Runs != nil) {
			return fmt.Errorf("%q is divided along axis %d, which has no heads", v.Name, l.Axis)
		}
	}
	return nil
}

// groups returns the layouts of heads of queries, and of the heads of keys that they share; nil for keys that all ranks
// need.
func (b *block) groups(n *onnx.Node, heads, keys int64, cyclic bool) (q, k *Layout, err error) {
	switch {
	case heads%b.ranks != 0:
		return nil, nil, fmt.Errorf("%d heads cannot be divided by %d ranks", heads, b.ranks)
	case keys == 1 || cyclic && heads/b.ranks%keys == 0:
		return &Layout{}, nil, nil
	case cyclic:
		return nil, nil, fmt.Errorf("%d heads share %d heads of keys in turn", heads, keys)
	case keys%b.ranks == 0:
		return &Layout{}, &Layout{}, nil
	case b.ranks%keys == 0:
		return &Layout{}, &Layout{Copies: b.ranks / keys}, nil
	}
	return nil, nil, fmt.Errorf("%d heads of keys cannot be divided by %d ranks", keys, b.ranks)
}

func attention(b *block, n *onnx.Node) error {
	qa, ka, va := headAxis(n, fused.AttrQLayout), headAxis(n, fused.AttrKLayout), headAxis(n, fused.AttrVLayout)
	ya := headAxis(n, fused.AttrYLayout)
	heads, ok := b.facts.Dim(n.Inputs[0], qa)
	keys, known := b.facts.Dim(n.Inputs[1], ka)
	if !ok || !known {
		return errors.New("the numbers of its heads are not known")
	}
	if err := b.heads(n, map[*onnx.Value]int{n.Inputs[0]: qa, n.Inputs[1]: ka, n.Inputs[2]: va,
		n.Outputs[0]: ya}); err != nil {
		return err
	}
	q, k, err := b.groups(n, heads, keys, n.AttrString(fused.AttrHeadOrder, "blocked") == "cyclic")
	if err != nil {
		return err
	}
	places := []place{{false, 0, qa, q}, {false, 1, ka, k}, {false, 2, va, k}, {false, 3, 0, nil}, {false, 4, 1, k},
		{false, 5, 1, k}, {false, 6, 0, nil}, {false, 8, 0, q}, {true, 0, ya, q}, {true, 1, 1, k}, {true, 2, 1, k}}
	if bias := n.Input(fused.AttentionBias); bias != nil {
		r, err := b.rank(bias)
		if err != nil {
			return err
		}
		p := place{false, fused.AttentionBias, r - 3, nil}
		if size, ok := b.size(bias, max(r-3, 0)); r >= 3 && (!ok || size != 1) {
			p.layout = q
		}
		places = append(places, p)
	}
	return b.give(n, places)
}

func latentAttention(b *block, n *onnx.Node) error {
	qa, ya := headAxis(n, fused.AttrQLayout), headAxis(n, fused.AttrYLayout)
	heads, ok := b.facts.Dim(n.Inputs[0], qa)
	if !ok {
		return errors.New("the number of its heads is not known")
	}
	if err := b.heads(n, map[*onnx.Value]int{n.Inputs[0]: qa, n.Outputs[0]: ya}); err != nil {
		return err
	}
	q, _, err := b.groups(n, heads, 1, false)
	if err != nil {
		return err
	}
	wa := 1
	if n.AttrString(fused.AttrWLayout, "in_out") == "out_in" {
		wa = 0
	}
	return b.give(n, []place{{false, 0, qa, q}, {false, 1, 0, nil}, {false, 2, 0, nil}, {false, 3, wa, q},
		{false, 4, 0, nil}, {false, 5, 0, nil}, {false, 6, 0, nil}, {true, 0, ya, q}, {true, 1, 0, nil}})
}

func pagedAttention(b *block, n *onnx.Node) error {
	heads, ok := b.facts.Dim(n.Inputs[0], 1)
	keys, known := b.facts.Dim(n.Inputs[1], 1)
	if !ok || !known {
		return errors.New("the numbers of its heads are not known")
	}
	if err := b.heads(n, map[*onnx.Value]int{n.Inputs[0]: 1, n.Inputs[1]: 1, n.Inputs[2]: 1, n.Outputs[0]: 1}); err != nil {
		return err
	}
	q, k, err := b.groups(n, heads, keys, n.AttrString(fused.AttrHeadOrder, "blocked") == "cyclic")
	if err != nil {
		return err
	}
	return b.give(n, []place{{false, 0, 1, q}, {false, 1, 1, k}, {false, 2, 1, k}, {false, 3, 2, k}, {false, 4, 2, k},
		{false, 5, 0, nil}, {false, 6, 0, nil}, {false, 7, 0, nil}, {false, 8, 0, nil}, {false, 9, 0, q},
		{true, 0, 1, q}, {true, 1, 2, k}, {true, 2, 2, k}})
}

// linearAttention is divided by heads of the state; heads of keys and queries that several of them share are held
// several times.
func linearAttention(b *block, n *onnx.Node) error {
	layouts := map[string]*Layout{}
	attrs := []string{fused.AttrQHeads, fused.AttrKHeads, fused.AttrVHeads}
	widest := max(n.AttrInt(attrs[0], 1), n.AttrInt(attrs[2], 1))
	for _, name := range attrs {
		heads := n.AttrInt(name, 1)
		switch {
		case heads%b.ranks == 0:
			layouts[name] = &Layout{}
			b.set(n, onnx.IntAttr(name, heads/b.ranks))
		case heads == 1 && widest > 1 && name != fused.AttrVHeads:
			layouts[name] = nil
		case b.ranks%heads == 0 && heads < widest && name != fused.AttrVHeads:
			layouts[name] = &Layout{Copies: b.ranks / heads}
			b.set(n, onnx.IntAttr(name, 1))
		default:
			return fmt.Errorf("%s=%d cannot be divided by %d ranks", name, heads, b.ranks)
		}
	}
	q, k, v := layouts[fused.AttrQHeads], layouts[fused.AttrKHeads], layouts[fused.AttrVHeads]
	if err := b.heads(n, map[*onnx.Value]int{n.Inputs[0]: 2, n.Inputs[1]: 2, n.Inputs[2]: 2, n.Outputs[0]: 2}); err != nil {
		return err
	}
	places := []place{{false, 0, 2, q}, {false, 1, 2, k}, {false, 2, 2, v}, {false, 3, 1, v}, {false, 4, 2, v},
		{true, 0, 2, v}, {true, 1, 1, v}}
	if beta := n.Input(5); beta != nil {
		r, err := b.rank(beta)
		if err != nil {
			return err
		}
		p := place{false, 5, r - 1, v}
		if size, ok := b.size(beta, -1); ok && size == 1 {
			p.layout = nil
		}
		places = append(places, p)
	}
	return b.give(n, places)
}

func causalConv(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	if l.Axis != 1 {
		return fmt.Errorf("axis %d is divided, which has no channels", l.Axis)
	}
	return b.give(n, []place{{false, 0, 1, &l}, {false, 1, 0, &l}, {false, 2, 0, &l}, {false, 3, 1, &l},
		{true, 0, 1, &l}, {true, 1, 1, &l}})
}

func halfLinear(b *block, n *onnx.Node) error {
	return b.product(n, 0, 1, 2, n.AttrString(fused.AttrLayout, "out_in") == "out_in")
}

// Panels of rows and blocks of columns of quantized matrices are not divided.
const (
	panelRows    = 16
	superColumns = 256
	floatColumns = 128
)

// linear divides a quantized matrix by whole panels of rows, or by whole blocks of columns.
func linear(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	if l.Axis < r-1 {
		return errors.New("only some of its rows are on a rank")
	}
	const weights, bias = 5, 6 // the inputs 1 to 5 are of the matrix
	rows, columns := n.AttrInt(fused.AttrN, 0), n.AttrInt(fused.AttrK, 0)
	if output {
		if l.Copies > 1 || l.Runs != nil || rows%(panelRows*b.ranks) != 0 {
			return fmt.Errorf("%d rows in panels of %d cannot be divided by %d ranks", rows, panelRows, b.ranks)
		}
		for i := 1; i <= weights; i++ {
			if err := b.take(n, i, Layout{}); err != nil {
				return err
			}
		}
		if err := errors.Join(b.whole(n, 0), b.take(n, bias, Layout{})); err != nil {
			return err
		}
		b.set(n, onnx.IntAttr(fused.AttrN, rows/b.ranks))
		return b.hold(n.Outputs[0], l)
	}
	unit := int64(32)
	switch {
	case n.Input(4) != nil:
		unit = superColumns
	case n.AttrString(fused.AttrCode, "") == "e4m3":
		unit = floatColumns
	}
	if l.Copies > 1 || l.Runs != nil || columns%(unit*b.ranks) != 0 {
		return fmt.Errorf("%d columns in blocks of %d cannot be divided by %d ranks", columns, unit, b.ranks)
	}
	for i := 1; i <= weights; i++ {
		if err := b.take(n, i, Layout{Axis: 1}); err != nil {
			return err
		}
	}
	if err := b.only(n, bias); err != nil {
		return err
	}
	b.set(n, onnx.IntAttr(fused.AttrK, columns/b.ranks))
	return b.sum(n.Outputs[0])
}
