package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

var fusedRules map[string]rule

func init() {
	fusedRules = map[string]rule{
		fused.GLUName: broadcast, fused.BiasGELUName: broadcast,
		fused.RMSNormName: within(1, 1), fused.AddRMSNormName: within(2, 2), fused.AddLayerNormName: within(2, 2),
		fused.RotaryEmbeddingName: lastWhole("the channels that it rotates are divided", 0, 1, 2),
		fused.NormRotaryName:      lastWhole("the channels that it normalizes are divided", 0, 2, 3),
		fused.TopKRouterName:      lastWhole("it compares all experts, which are divided", 0),
		fused.GatedRMSNormName:    gatedNorm,
		fused.AttentionName:       attention, fused.LatentAttentionName: latentAttention,
		fused.PagedAttentionName: pagedAttention, fused.QPagedAttentionName: pagedAttention,
		fused.LinearAttentionName: linearAttention,
		fused.CausalConvName:      causalConv,
		fused.HalfLinearName:      halfLinear, fused.LinearName: linear,
	}
}

// lastWhole is the rule of ops that need all of the last axis, for a reason. The outputs and these inputs have the same
// leading axes; the others are whole.
func lastWhole(why string, inputs ...int) rule {
	return func(b *block, n *onnx.Node) error {
		l, _, _ := b.known(n)
		if r, err := b.rank(n.Inputs[0]); err != nil || l.Axis == r-1 {
			return errors.New(why)
		}
		values := make([]*onnx.Value, len(n.Inputs))
		for _, i := range inputs {
			values[i] = n.Inputs[i]
		}
		return b.aligned(n, values, n.Outputs)
	}
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
		if err := l.fits(groups, b.ranks); err != nil {
			return fmt.Errorf("its groups of channels: %w", err)
		}
		if err := b.take(n, 2, l.at(0)); err != nil {
			return err
		}
		b.set(n, fused.AttrGroups, l)
	}
	return b.aligned(n, n.Inputs[:2], n.Outputs)
}

// A place is an input or output of a node whose axis has heads or channels; without a layout it is whole.
type place struct {
	output      bool
	index, axis int
	layout      *Layout
}

func reads(input, axis int, l *Layout) place   { return place{false, input, axis, l} }
func writes(output, axis int, l *Layout) place { return place{true, output, axis, l} }
func whole(input int) place                    { return place{index: input} }

// give takes and holds the values of a node. A value that is divided in another way is an error.
func (b *block) give(n *onnx.Node, places ...place) error {
	for _, p := range places {
		if !p.output && p.layout != nil {
			b.wants[onnx.Use{Node: n, Index: p.index}] = *p.layout
		}
	}
	for _, p := range places {
		var err error
		switch v := n.OutputValue(p.index); {
		case p.output && p.layout == nil:
			if v != nil && b.isHeld(v) {
				err = fmt.Errorf("%q is divided", v.Name)
			}
		case p.layout == nil:
			err = b.whole(n, p.index)
		case p.output:
			if v != nil {
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

// groups returns the layouts of heads of queries, and of the heads of keys that they share; nil for keys that all ranks
// need.
func groups(ranks, heads, keys int64, cyclic bool) (q, k *Layout, err error) {
	uneven := func(units int64) bool { return units > ranks && units%ranks != 0 }
	switch {
	case keys == 1 && uneven(heads):
		return &Layout{Units: heads}, nil, nil
	case cyclic && heads%keys == 0 && uneven(heads/keys):
		return &Layout{Units: heads / keys}, nil, nil
	case keys == 1 && heads%ranks == 0, cyclic && heads%ranks == 0 && heads/ranks%keys == 0:
		return &Layout{}, nil, nil
	case cyclic:
		return nil, nil, fmt.Errorf("%d heads share %d heads of keys in turn", heads, keys)
	case uneven(keys) && heads%keys == 0:
		return &Layout{Units: keys}, &Layout{Units: keys}, nil
	case heads%ranks == 0 && keys%ranks == 0:
		return &Layout{}, &Layout{}, nil
	case heads%ranks == 0 && ranks%keys == 0:
		return &Layout{}, &Layout{Copies: ranks / keys}, nil
	case keys > 1 && keys < ranks && heads%keys == 0:
		if of, ofKeys := share(heads, keys, ranks); of != nil {
			return &Layout{Units: heads, Ranges: of}, &Layout{Units: keys, Ranges: ofKeys}, nil
		}
	}
	return nil, nil, fmt.Errorf("%d heads that share %d of keys cannot be divided by %d ranks", heads, keys, ranks)
}

// share divides heads of queries, in order, over more ranks than there are heads of keys: a rank has equally many for
// each of its heads of keys, and none has more than necessary. It returns nil for fewer heads than ranks.
func share(heads, keys, ranks int64) (queries, ofKeys [][2]int64) {
	group := heads / keys
	for most := (heads + ranks - 1) / ranks; most <= heads; most++ {
		failed := map[[2]int64]bool{}
		var rest func(from, ranks int64) bool
		rest = func(from, ranks int64) bool {
			at := [2]int64{from, ranks}
			if ranks == 0 || failed[at] {
				return from == heads && !failed[at]
			}
			for i := range 2 * most { // first with one head of keys
				n := most - i%most
				first, last := from/group, (from+n-1)/group
				here, there := (first+1)*group-from, from+n-last*group
				isEqual := first == last || i >= most && here == there && (last == first+1 || here == group)
				if isEqual && from+n <= heads && rest(from+n, ranks-1) {
					queries = append(queries, [2]int64{from, n})
					ofKeys = append(ofKeys, [2]int64{first, last - first + 1})
					return true
				}
			}
			failed[at] = true
			return false
		}
		if rest(0, ranks) {
			slices.Reverse(queries)
			slices.Reverse(ofKeys)
			return queries, ofKeys
		}
	}
	return nil, nil
}

func attention(b *block, n *onnx.Node) error {
	qa, ka, va := headAxis(n, fused.AttrQLayout), headAxis(n, fused.AttrKLayout), headAxis(n, fused.AttrVLayout)
	q, k, err := b.groupsOf(n, qa, ka)
	if err != nil {
		return err
	}
	places := []place{reads(fused.AttentionQ, qa, q), reads(fused.AttentionK, ka, k), reads(fused.AttentionV, va, k),
		whole(fused.AttentionKeyValid), reads(fused.AttentionPastKey, 1, k), reads(fused.AttentionPastValue, 1, k),
		whole(fused.AttentionPastLength), reads(fused.AttentionSink, 0, q),
		writes(0, headAxis(n, fused.AttrYLayout), q), writes(1, 1, k), writes(2, 1, k)}
	if bias := n.Input(fused.AttentionBias); bias != nil {
		r, err := b.rank(bias)
		if err != nil {
			return err
		}
		p := whole(fused.AttentionBias)
		if size, ok := b.size(bias, max(r-3, 0)); r >= 3 && (!ok || size != 1) {
			p = reads(fused.AttentionBias, r-3, q)
		}
		places = append(places, p)
	}
	return b.give(n, places...)
}

// groupsOf is groups for a node whose first two inputs are queries and keys with heads along these axes.
func (b *block) groupsOf(n *onnx.Node, queryAxis, keyAxis int) (q, k *Layout, err error) {
	heads, ok := b.facts.Dim(n.Inputs[0], queryAxis)
	keys, known := b.facts.Dim(n.Inputs[1], keyAxis)
	if !ok || !known {
		return nil, nil, errors.New("the numbers of its heads are not known")
	}
	q, k, err = groups(b.ranks, heads, keys, n.AttrString(fused.AttrHeadOrder, "blocked") == "cyclic")
	if err == nil && k == nil && keys == 1 && b.holdsKey {
		k = &Layout{Copies: b.ranks}
	}
	return q, k, err
}

func latentAttention(b *block, n *onnx.Node) error {
	qa := headAxis(n, fused.AttrQLayout)
	heads, ok := b.facts.Dim(n.Inputs[0], qa)
	if !ok {
		return errors.New("the number of its heads is not known")
	}
	q, _, err := groups(b.ranks, heads, 1, false)
	if err != nil {
		return err
	}
	wa := 1
	if n.AttrString(fused.AttrWLayout, "in_out") == "out_in" {
		wa = 0
	}
	return b.give(n, reads(fused.LatentAttentionQ, qa, q), whole(fused.LatentAttentionC),
		whole(fused.LatentAttentionKPE), reads(fused.LatentAttentionW, wa, q), whole(fused.LatentAttentionKeyValid),
		whole(fused.LatentAttentionPast), whole(fused.LatentAttentionPastLength),
		writes(0, headAxis(n, fused.AttrYLayout), q), writes(1, 0, nil))
}

// pagedAttention is the rule of PagedAttention and QPagedAttention, whose pools have scales for each block and head.
func pagedAttention(b *block, n *onnx.Node) error {
	q, k, err := b.groupsOf(n, 1, 1)
	if err != nil {
		return err
	}
	places := []place{reads(fused.PagedAttentionQ, 1, q), reads(fused.PagedAttentionK, 1, k),
		reads(fused.PagedAttentionV, 1, k), reads(fused.PagedAttentionKeyCache, 2, k),
		reads(fused.PagedAttentionValueCache, 2, k), whole(fused.PagedAttentionCumulativeSequenceLength),
		whole(fused.PagedAttentionPastSeqlens), whole(fused.PagedAttentionBlockTable),
		writes(0, 1, q), writes(1, 2, k), writes(2, 2, k)}
	if n.OpType == fused.PagedAttentionName {
		return b.give(n, append(places, whole(fused.PagedAttentionSlotMapping),
			reads(fused.PagedAttentionSink, 0, q))...)
	}
	return b.give(n, append(places, reads(fused.QPagedAttentionKeyScale, 1, k),
		reads(fused.QPagedAttentionValueScale, 1, k), whole(fused.QPagedAttentionSlotMapping),
		reads(fused.QPagedAttentionSink, 0, q), writes(3, 1, k), writes(4, 1, k))...)
}

// linearHeads are the attributes of linear attention with numbers of heads.
var linearHeads = []string{fused.AttrQHeads, fused.AttrKHeads, fused.AttrVHeads}

// linearGroups returns the layouts of the heads of linear attention, by attribute; without one, all ranks need them.
// Heads of keys and queries that several of the state share are held several times.
func linearGroups(ranks int64, n *onnx.Node) (map[string]*Layout, error) {
	layouts := map[string]*Layout{}
	widest := max(n.AttrInt(fused.AttrQHeads, 1), n.AttrInt(fused.AttrVHeads, 1))
	units := n.AttrInt(fused.AttrVHeads, 1) // the least number of heads that not all others share
	for _, name := range linearHeads {
		if heads := n.AttrInt(name, 1); heads > 1 {
			units = min(units, heads)
		}
	}
	all, shared, _ := groups(ranks, widest, units, false)
	ranged := shared != nil && shared.Ranges != nil
	for _, name := range linearHeads {
		heads := n.AttrInt(name, 1)
		switch {
		case heads == 1 && widest > 1 && name != fused.AttrVHeads: // all ranks need it
		case units > ranks && units%ranks != 0 && heads%units == 0:
			layouts[name] = &Layout{Units: units}
		case ranged && heads == widest:
			layouts[name] = all
		case ranged && heads == units && name != fused.AttrVHeads:
			layouts[name] = shared
		case heads%ranks == 0:
			layouts[name] = &Layout{}
		case ranks%heads == 0 && heads < widest && name != fused.AttrVHeads:
			layouts[name] = &Layout{Copies: ranks / heads}
		default:
			return nil, fmt.Errorf("%s=%d cannot be divided by %d ranks", name, heads, ranks)
		}
	}
	return layouts, nil
}

// linearAttention is divided by heads of the state.
func linearAttention(b *block, n *onnx.Node) error {
	layouts, err := linearGroups(b.ranks, n)
	if err != nil {
		return err
	}
	for name, l := range layouts {
		b.set(n, name, *l)
	}
	q, k, v := layouts[fused.AttrQHeads], layouts[fused.AttrKHeads], layouts[fused.AttrVHeads]
	places := []place{reads(fused.LinearAttentionQ, 2, q), reads(fused.LinearAttentionK, 2, k),
		reads(fused.LinearAttentionV, 2, v), reads(fused.LinearAttentionPast, 1, v),
		reads(fused.LinearAttentionDecay, 2, v), writes(0, 2, v), writes(1, 1, v)}
	if beta := n.Input(fused.LinearAttentionBeta); beta != nil {
		r, err := b.rank(beta)
		if err != nil {
			return err
		}
		p := reads(fused.LinearAttentionBeta, r-1, v)
		if size, ok := b.size(beta, -1); ok && size == 1 {
			p = whole(fused.LinearAttentionBeta)
		}
		places = append(places, p)
	}
	return b.give(n, places...)
}

func causalConv(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	if l.Axis != 1 {
		return fmt.Errorf("axis %d is divided, which has no channels", l.Axis)
	}
	return b.give(n, reads(fused.CausalConvX, 1, &l), reads(fused.CausalConvWeight, 0, &l),
		reads(fused.CausalConvBias, 0, &l), reads(fused.CausalConvPast, 1, &l), writes(0, 1, &l), writes(1, 1, &l))
}
