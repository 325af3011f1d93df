package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// The parts of a language model.
const (
	Embedding = "embedding"
	Tables    = "masks and positions" // inputs of all layers besides the embedded tokens
	Norm      = "norm"
	Attention = "attention"
	Mixer     = "mixer" // a recurrence instead of attention
	MLP       = "mlp"
	Experts   = "experts"
	Head      = "head"
)

// Block is the place of a node in a language model.
type Block struct {
	Layer int // -1 outside of layers
	Part  string
}

// String returns, for example, "layer 3 attention" or "head".
func (b Block) String() string {
	if b.Layer < 0 {
		return b.Part
	}
	return fmt.Sprintf("layer %d %s", b.Layer, b.Part)
}

// kinds maps an op to the part of a model that it is the core of, in any domain.
var kinds = map[string]string{
	fused.RMSNormName: Norm, fused.AddRMSNormName: Norm, "RMSNormalization": Norm, "LayerNormalization": Norm,
	"SimplifiedLayerNormalization": Norm, "SkipSimplifiedLayerNormalization": Norm, "SkipLayerNormalization": Norm,
	fused.AddLayerNormName: Norm, fused.NormQuantizeName: Norm,
	fused.AttentionName: Attention, fused.LatentAttentionName: Attention, "MultiHeadAttention": Attention,
	"GroupQueryAttention": Attention, fused.GatedRMSNormName: Mixer, fused.GLUName: MLP,
	fused.MoEName: Experts, fused.QMoEName: Experts,
	fused.LinearAttentionName: Mixer, fused.CausalConvName: Mixer, "CausalConvWithState": Mixer, "GatedDeltaNet": Mixer,
}

// Blocks finds the place of each main-graph node by the graph's structure. A block begins at a norm on the residual
// stream: a norm with no product since the previous norm, or with more than one. A norm with exactly one product since
// then normalizes queries, keys or latents.
func Blocks(m *onnx.Model) map[*onnx.Node]Block {
	w := &walk{graph: m.Graph, kind: map[*onnx.Node]string{}, nodes: map[*onnx.Node][]*onnx.Node{},
		at: map[*onnx.Node]state{}}
	for _, n := range m.Graph.Nodes {
		if kind, known := kinds[n.OpType]; known {
			w.kind[n] = kind
		}
	}
	matches, _ := patterns.Builtin().Find(m.Graph, infer.Analyze(m))
	for _, match := range matches {
		if kind, known := kinds[match.Op]; known {
			w.kind[match.Root], w.nodes[match.Root] = kind, match.Nodes
		}
	}
	w.follow()
	return w.blocks()
}

// state is a node's progress along the residual stream: the number of norms before it, and of products since the last
// norm.
type state struct{ norms, products int }

type walk struct {
	graph *onnx.Graph
	kind  map[*onnx.Node]string       // for nodes that are the core of a part
	nodes map[*onnx.Node][]*onnx.Node // the nodes of the match whose root is a core
	at    map[*onnx.Node]state
	first *onnx.Node // the first norm on the residual stream
}

func (w *walk) follow() {
	norms := 0
	for _, n := range w.graph.Nodes {
		s := w.before(n)
		switch kind := w.kind[n]; {
		case kind == Norm && s.products != 1: // on the residual stream
			if norms++; w.first == nil {
				w.first = n
			}
			s = state{norms: norms}
			for _, part := range w.nodes[n] {
				w.at[part] = s
			}
		case kind == Norm:
			delete(w.kind, n)
		case kind != "":
			s.products += 2
		case n.IsProduct():
			s.products++
		}
		w.at[n] = s
	}
}

// before returns the furthest state of a node's inputs.
func (w *walk) before(n *onnx.Node) (s state) {
	for _, v := range n.Reads() {
		if v.Producer == nil {
			continue
		}
		if t := w.at[v.Producer]; t.norms > s.norms || t.norms == s.norms && t.products > s.products {
			s = t
		}
	}
	return s
}

// span is the part of the graph after one norm of the residual stream, up to the next norm.
type span struct {
	layer    int
	kinds    map[string]bool
	products int
}

func (w *walk) blocks() map[*onnx.Node]Block {
	spans := w.spans()
	near := w.nearest()
	stream := w.embedded()
	blocks := make(map[*onnx.Node]Block, len(w.graph.Nodes))
	for _, n := range w.graph.Nodes {
		s := spans[w.at[n].norms]
		switch {
		case s.layer < 0 && w.at[n].norms > 0:
			blocks[n] = Block{-1, Head}
		case w.at[n].norms == 0 && !stream[n]:
			blocks[n] = Block{-1, Tables}
		case w.at[n].norms == 0 && (w.at[n].products == 0 || s.layer < 0):
			blocks[n] = Block{-1, Embedding}
		case w.kind[n] == Norm || len(s.kinds) == 0:
			blocks[n] = Block{s.layer, Norm}
		default:
			part := cmp.Or(near[n], s.main())
			if part == MLP && s.kinds[Experts] {
				part = Experts // the shared expert
			}
			blocks[n] = Block{s.layer, part}
		}
	}
	return blocks
}

// main returns the part for nodes of the span that are connected to no core.
func (s *span) main() string {
	for _, part := range []string{MLP, Experts, Attention, Mixer} {
		if s.kinds[part] {
			return part
		}
	}
	return Norm
}

// spans finds the parts after each norm, and its layer.
func (w *walk) spans() []*span {
	var spans []*span
	at := func(i int) *span {
		for len(spans) <= i {
			spans = append(spans, &span{kinds: map[string]bool{}})
		}
		return spans[i]
	}
	at(0)
	for _, n := range w.graph.Nodes {
		s := at(w.at[n].norms)
		if n.IsProduct() {
			s.products++
		}
		if kind := w.kind[n]; kind != "" && kind != Norm {
			s.kinds[kind] = true
		}
	}
	layer, mixes, feeds := -1, false, false
	for i, s := range spans {
		if len(s.kinds) == 0 && i > 0 && i < len(spans)-1 && s.products >= 2 {
			s.kinds[MLP] = true // an MLP without a gate
		}
		mix, feed := s.kinds[Attention] || s.kinds[Mixer], s.kinds[MLP] || s.kinds[Experts]
		if mix && (layer < 0 || mixes || feeds) || feed && !mix && (layer < 0 || feeds) {
			layer++
			mixes, feeds = false, false
		}
		mixes, feeds = mixes || mix, feeds || feed
		s.layer = layer
	}
	for i := len(spans) - 1; i >= 0 && len(spans[i].kinds) == 0; i-- { // only the head, or no layers at all
		if spans[i].layer = -1; i == 0 || len(spans[i-1].kinds) > 0 {
			break
		}
	}
	return spans
}

// nearest finds the part of each node: that of the next core downstream before the next norm, else that of the last
// core upstream.
func (w *walk) nearest() map[*onnx.Node]string {
	near := map[*onnx.Node]string{}
	core := func(n *onnx.Node) string {
		if kind := w.kind[n]; kind != Norm {
			return kind
		}
		return ""
	}
	for i := len(w.graph.Nodes) - 1; i >= 0; i-- {
		n := w.graph.Nodes[i]
		near[n] = core(n)
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			for _, u := range v.Uses() {
				if near[n] == "" && u.Node.Graph == w.graph && w.at[u.Node].norms == w.at[n].norms {
					near[n] = near[u.Node]
				}
			}
		}
	}
	for _, n := range w.graph.Nodes {
		for _, v := range n.Reads() {
			if near[n] == "" && v.Producer != nil && w.at[v.Producer].norms == w.at[n].norms {
				near[n] = near[v.Producer]
			}
		}
	}
	return near
}

// embedded returns the nodes upstream of the first norm, or all nodes if there is no norm. The other nodes before the
// first norm compute masks and position tables.
func (w *walk) embedded() map[*onnx.Node]bool {
	stream := map[*onnx.Node]bool{}
	if w.first == nil {
		for _, n := range w.graph.Nodes {
			stream[n] = true
		}
		return stream
	}
	from := slices.Clone(w.first.Inputs)
	for _, n := range w.nodes[w.first] { // the first norm's root is its last node
		from = append(from, n.Inputs...)
	}
	for v := range onnx.Upstream(func(v *onnx.Value) bool { return v.Producer == nil }, from...) {
		if v.Producer != nil {
			stream[v.Producer] = true
		}
	}
	return stream
}
