package attention

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// The attributes of onnxruntime's op GroupQueryAttention describe all but the lengths of its sequences. The nodes that
// compute these are run, like masks.

// A Rotary is a rotation of queries and keys by the positions of their tokens.
type Rotary struct {
	Cos, Sin    *onnx.Value // [positions, pairs of channels]
	Interleaved bool
}

// The inputs of GroupQueryAttention.
const (
	groupPast      = 3 // of keys; the next is that of values
	groupLengths   = 5 // of each sequence with its new tokens, minus 1
	groupTotal     = 6 // the greatest of these
	groupTables    = 7 // cosines, then sines
	groupPositions = 9
	groupBias      = 10
	groupSink      = 11
)

func isGroupQuery(n *onnx.Node) bool {
	return n.OpType == "GroupQueryAttention" && n.Domain == onnx.Microsoft
}

// readGroupQuery reads a node. It returns nil, nil if inputs or outputs are missing.
func readGroupQuery(g *match.View, n *onnx.Node) (*Reading, *reason.Reason) {
	if n.Input(0) == nil || n.Input(groupLengths) == nil || n.Input(groupTotal) == nil || n.OutputValue(0) == nil {
		return nil, nil
	}
	b := &block{g: g, region: &region{anchor: n, product: n, sum: n}}
	b.Sides = []*onnx.Value{n.Input(groupLengths), n.Input(groupTotal)}
	for _, step := range []func() *reason.Reason{b.groupAttributes, b.measureGroup, b.groupKeys} {
		if why := step(); why != nil {
			return nil, why
		}
	}
	return b.site, nil
}
func (b *block) groupAttributes() *reason.Reason {
	n := b.anchor
	rotates := n.AttrInt("do_rotary", 0) != 0
	for _, other := range []struct {
		is   bool
		what string
	}{
		{n.AttrInt("sliding_window_cache", 0) != 0, "its cache holds only a window"},
		{n.AttrInt("kv_cache_bit_width", 0) != 0 || n.Input(12) != nil || n.Input(13) != nil,
			"its cache holds integers"},
		{n.AttrInt("qk_output", 0) != 0, "its scores are an output"},
		{n.Input(14) != nil || n.Input(15) != nil, "it normalizes queries and keys"},
		{rotates && n.Input(groupPositions) != nil, "it reads only the first position of a prompt"},
	} {
		if other.is {
			return b.other(n, "%s", other.what)
		}
	}
	number := func(name string) float64 {
		if a := n.Attr(name); a != nil {
			return float64(a.Float)
		}
		return 0
	}
	s := &Reading{Anchor: n, Nodes: []*onnx.Node{n}, Q: n.Input(0), K: n.Input(1), V: n.Input(2), Y: n.OutputValue(0),
		QAxes: "b s nh", KAxes: "b s nh", VAxes: "b s nh", YAxes: "b s nh", HeadOrder: blocked, Empty: zero,
		Heads: n.AttrInt("num_heads", 0), KeyHeads: n.AttrInt("kv_num_heads", 0), Causal: n.AttrInt("causal", 1) != 0,
		Window: max(n.AttrInt("local_window_size", -1), 0), Scale: number("scale"), Softcap: number("softcap"),
		Sink: n.Input(groupSink), Packed: n.Input(1) == nil, PastKey: n.Input(groupPast),
		PastValue: n.Input(groupPast + 1), PresentKey: n.OutputValue(1), PresentValue: n.OutputValue(2),
		OnTheRight: true}
	if n.AttrInt("smooth_softmax", 0) > 0 && s.Sink == nil {
		s.SinkIs = make([]float64, s.Heads)
	}
	if v := n.Input(groupBias); v != nil {
		s.Bias = []*onnx.Value{v}
	}
	if rotates {
		s.Rotary = &Rotary{n.Input(groupTables), n.Input(groupTables + 1), n.AttrInt("rotary_interleaved", 0) != 0}
	}
	b.site = s
	return nil
}

// measureGroup finds the lengths of the node in the worlds of shape inference.
func (b *block) measureGroup() *reason.Reason {
	s, facts := b.site, b.g.Facts
	rank, _ := facts.Rank(s.Q)
	width, ok := facts.Dim(s.Q, 2)
	heads := s.Heads
	if s.Packed {
		heads += 2 * s.KeyHeads
	}
	if rank != 3 || !ok || s.KeyHeads < 1 || s.Heads%s.KeyHeads != 0 || width%heads != 0 {
		return b.unknown("the head dimension")
	}
	if s.Scale == 0 {
		s.Scale = 1 / math.Sqrt(float64(width/heads))
	}
	b.world = newWorld(b.g, [infer.Worlds]lengths{})
	for w := range b.world.worlds {
		n := lengths{facts.Size(s.Q, w, 0), facts.Size(s.Q, w, 1), 0}
		if s.PastKey != nil {
			n.past = facts.Size(s.PastKey, w, 2)
		}
		if n.batch < 1 || n.queries < 1 || n.past < 0 {
			return b.unknown("the shape of the queries or of the cache")
		}
		b.world.worlds[w] = n
	}
	return nil
}

// groupKeys finds the mask that the lengths are sums of.
func (b *block) groupKeys() *reason.Reason {
	b.findMask()
	s := b.site
	switch {
	case b.otherData:
		return b.other(b.anchor, "the lengths of its sequences are not computed from a mask that covers its cache and "+
			"the new tokens: each sequence may have another length")
	case b.keyValid == nil:
	case !isGiven(b.keyValid):
		return b.other(b.anchor, "the lengths of its sequences are computed from a mask that other nodes compute")
	case s.Window > 0 && s.PastKey != nil:
		return b.other(b.anchor, "its window counts only tokens that exist. In a batch of prompts of "+
			"different lengths, mojo.Attention would also count the padding between them")
	}
	for _, p := range b.examples() {
		env := values{}
		if b.keyValid != nil {
			env[b.keyValid] = b.valid(b.keyValid, p.lengths, p.padding)
		}
		out, err := b.world.run(p.lengths, env, b.Sides...)
		if err != nil {
			return b.other(b.anchor, "the lengths of its sequences cannot be computed: %w", err)
		}
		if want := b.lastKeys(p); !slices.Equal(out[0].I, want) || !slices.Equal(out[1].I, []int64{p.keys()}) {
			return b.other(b.anchor, "the lengths of its sequences are %v of %v, not %v of %d", out[0].I, out[1].I,
				want, p.keys())
		}
	}
	s.KeyValid = b.keyValid
	return nil
}

// lastKeys returns, for each sequence, the number of keys that exist minus 1.
func (b *block) lastKeys(p example) []int64 {
	list := make([]int64, p.batch)
	for i := range list {
		list[i] = p.keys() - 1
		for j := range p.keys() {
			if b.keyValid != nil && p.padding != nil && p.padding(int64(i), j) {
				list[i]--
			}
		}
	}
	return list
}
