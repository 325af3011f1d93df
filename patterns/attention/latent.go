package attention

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A Latent tells how keys and values follow from latents. A linear map of C yields each head's values and first key
// channels. The channels of KPE follow in every head.
type Latent struct {
	C, KPE  *onnx.Value // [..., Width] and [..., Rotated] for each token, shared by all heads
	W       *onnx.Value // the constant matrix
	OutIn   bool        // W is [outputs, inputs]
	Heads   int64
	Width   int64 // of C
	Nope    int64 // channels of a head of keys that the map computes
	Rotated int64
	Values  int64        // channels of a head of values
	Nodes   []*onnx.Node // from C and KPE to keys and values

	world  *world
	k, v   operand
	tokens func(lengths) int64 // the tokens of C and KPE: the new ones, or all
}

// maxSteps bounds the values between latents and keys.
const maxSteps = 128

// FindLatent finds out how keys and values follow from latents, or why not. k and v have the axes batch, heads, tokens
// and channels, or with layout bsnh tokens before heads. FindLatent runs the nodes that move channels on numbers that
// identify each channel. past holds the cached keys before k; without it, the queries are the last tokens of k.
func FindLatent(g *match.View, k, v, past *onnx.Value, kLayout, vLayout string, queries [infer.Worlds]int64) (*Latent,
	*reason.Reason) {
	l := &Latent{k: operand{value: k, axes: LayoutAxes(kLayout)}, v: operand{value: v, axes: LayoutAxes(vLayout)}}
	var worlds [infer.Worlds]lengths
	for w := range worlds {
		batch, heads, tokens, width := l.sizes(g, l.k, w)
		_, _, _, values := l.sizes(g, l.v, w)
		worlds[w] = lengths{batch, queries[w], tokens - queries[w]}
		if l.tokens = lengths.keys; past != nil {
			worlds[w], l.tokens = lengths{batch, tokens, g.Facts.Size(past, w, 2)}, newTokens
		}
		if w > 0 && (heads != l.Heads || width != int64(l.k.width) || values != l.Values) || batch < 1 || tokens < 1 ||
			heads < 1 || values < 1 {
			return nil, reason.New(reason.Unknown, k.Producer, "the shape of keys and values is not known")
		}
		l.Heads, l.k.width, l.Values = heads, int(width), values
	}
	l.world = newWorld(g, worlds)
	l.world.Budget.Begin(k.Producer)
	product, x, w := l.findProduct(v)
	if product == nil {
		return nil, reason.New(reason.AttentionOther, v.Producer,
			"its values are not channels of a product of latents and a constant matrix")
	}
	if !l.readProduct(product, x, w) {
		return nil, reason.New(reason.AttentionOther, product, "its inputs are not one latent for each token")
	}
	if l.Nope < 1 {
		return nil, reason.New(reason.AttentionOther, product, "its outputs are only values, without keys")
	}
	return l, l.findShared(product)
}

func newTokens(n lengths) int64 { return n.queries }

// sizes returns the dimensions of an operand in a world, -1 if its rank is not 4.
func (l *Latent) sizes(g *match.View, o operand, w int) (batch, heads, tokens, width int64) {
	if rank, ok := g.Facts.Rank(o.value); !ok || rank != 4 {
		return -1, -1, -1, -1
	}
	heads, tokens = g.Facts.Size(o.value, w, 1), g.Facts.Size(o.value, w, 2)
	if o.axes == byRows {
		heads, tokens = tokens, heads
	}
	return g.Facts.Size(o.value, w, 0), heads, tokens, g.Facts.Size(o.value, w, 3)
}

// findProduct follows values back to a product with a constant matrix.
func (l *Latent) findProduct(v *onnx.Value) (product *onnx.Node, x, w *onnx.Value) {
	g := l.world.View
	for range maxChain {
		n := v.Producer
		if n == nil || n.Graph != g.Graph {
			return nil, nil, nil
		}
		if n.Is("MatMul") || n.Is("Gemm") {
			return n, n.Inputs[0], n.Inputs[1]
		}
		if v = movedFrom(g, n); v == nil {
			return nil, nil, nil
		}
	}
	return nil, nil, nil
}

// readProduct reads the product's matrix and its other operand.
func (l *Latent) readProduct(n *onnx.Node, x, w *onnx.Value) bool {
	g := l.world.View
	if n.Is("Gemm") {
		if n.Input(2) != nil || n.AttrFloat("alpha", 1) != 1 || n.AttrInt("transA", 0) != 0 {
			return false
		}
		l.OutIn = n.AttrInt("transB", 0) != 0
	}
	w = g.Resolve(w)
	if t := w.Producer; w.Constant() == nil && t != nil && t.Is("Transpose") {
		if rank, _ := g.Facts.Rank(w); rank != 2 || slices.Equal(t.AttrInts("perm"), []int64{0, 1}) {
			return false
		}
		w, l.OutIn = g.Resolve(t.Inputs[0]), !l.OutIn
	}
	rank, _ := g.Facts.Rank(x)
	for rank < 3 && x.Producer != nil && (x.Producer.Is("Reshape") || x.Producer.Is("Flatten")) { // all batches
		x = x.Producer.Inputs[0]
		rank, _ = g.Facts.Rank(x)
	}
	width, ok := l.perToken(x)
	last, known := g.Facts.Dim(x, rank-1)
	constant := w.Constant()
	if !ok || !known || last != width || constant == nil || len(constant.Dims) != 2 || !g.IsData(x) {
		return false
	}
	l.C, l.W, l.Width = x, w, width
	in, out := 0, 1
	if l.OutIn {
		in, out = 1, 0
	}
	l.Nope = constant.Dims[out]/l.Heads - l.Values
	return constant.Dims[in] == width && constant.Dims[out] == l.Heads*(l.Nope+l.Values)
}

// perToken returns the number of elements of a value for each token; ok is false if it is not one number.
func (l *Latent) perToken(v *onnx.Value) (n int64, ok bool) {
	rank, known := l.world.View.Facts.Rank(v)
	for w, at := range l.world.worlds {
		elements := int64(1)
		for axis := range rank {
			elements *= l.world.View.Facts.Size(v, w, axis)
		}
		tokens := at.batch * l.tokens(at)
		if !known || elements < 1 || elements%tokens != 0 || w > 0 && elements/tokens != n {
			return 0, false
		}
		n = elements / tokens
	}
	return n, true
}

// findShared finds the channels of keys that do not come from the product.
func (l *Latent) findShared(product *onnx.Node) *reason.Reason {
	g, out := l.world.View, product.Outputs[0]
	l.Rotated = int64(l.k.width) - l.Nope
	made := map[*onnx.Value]bool{}
	for v := range onnx.Downstream(func(*onnx.Value) bool { return false }, out) {
		made[v] = true
	}
	steps := 0
	for v := range onnx.Upstream(func(v *onnx.Value) bool { return v == out }, l.k.value) {
		if steps++; steps > maxSteps {
			break
		}
		if n, ok := l.perToken(v); !ok || n != l.Rotated || made[v] || !g.IsData(v) || l.Rotated < 1 {
			continue
		}
		if why := l.follows(out, v); why == nil {
			l.KPE = v
			l.collect()
			return nil
		}
	}
	return reason.New(reason.AttentionOther, l.k.value.Producer, "its keys are not %d channels "+
		"per head of a product with latents, followed by channels that all heads share", l.Nope)
}

// follows returns a reason unless keys and values are channels of the product and of shared, in the right order.
func (l *Latent) follows(product, shared *onnx.Value) *reason.Reason {
	n := l.world.at(lengths{2, 3, 2})
	env, next := values{}, 1
	number := func(v *onnx.Value) (first int, ok bool) {
		shape, ok := l.world.shape(v, n)
		if !ok {
			return 0, false
		}
		list := make([]float64, match.Elements(shape))
		for i := range list {
			list[i] = float64(next + i)
		}
		env[v] = reference.NewFloats(l.world.View.Facts.DataType(v), shape, list)
		first, next = next, next+len(list)
		return first, true
	}
	of, ok := number(product)
	pe, known := number(shared)
	other := reason.New(reason.AttentionOther, shared.Producer, "the heads of keys do not share it")
	if !ok || !known {
		return other
	}
	got, err := l.world.run(n, env, l.k.value, l.v.value)
	if err != nil {
		return other
	}
	heads, nope, rotated, width := int(l.Heads), int(l.Nope), int(l.Rotated), int(l.Nope+l.Values)
	same := func(o operand, t *reference.Tensor, channels int, want func(token, h, c int) int) bool {
		list := &tensor{batch: int(n.batch), heads: heads, rows: int(l.tokens(n)), width: channels}
		if len(t.F) != list.batch*list.heads*list.rows*list.width {
			return false
		}
		list.from(o.axes, t.F)
		for b := range list.batch {
			for h := range heads {
				for i := range list.rows {
					for c, x := range list.row(b, h, i) {
						if x != float64(want(b*list.rows+i, h, c)) {
							return false
						}
					}
				}
			}
		}
		return true
	}
	if same(l.k, got[0], nope+rotated, func(token, h, c int) int {
		if c < nope {
			return of + (token*heads+h)*width + c
		}
		return pe + token*rotated + c - nope
	}) && same(l.v, got[1], int(l.Values), func(token, h, c int) int {
		return of + (token*heads+h)*width + nope + c
	}) {
		return nil
	}
	return other
}

// collect lists the nodes that compute keys and values.
func (l *Latent) collect() {
	stop := func(v *onnx.Value) bool { return v == l.C || v == l.KPE }
	seen := map[*onnx.Node]bool{}
	for v := range onnx.Upstream(stop, l.k.value, l.v.value) {
		if n := v.Producer; n != nil && !seen[n] {
			seen[n] = true
			l.Nodes = append(l.Nodes, n)
		}
	}
}

// HeadsOf runs the nodes. It returns the keys and values of the given tokens per sequence, computed from latents.
func (l *Latent) HeadsOf(batch, tokens int64, c, kPE []float64) (keys, values *reference.Tensor, err error) {
	n := lengths{batch, tokens, 0}
	env := map[*onnx.Value]*reference.Tensor{}
	for i, v := range []*onnx.Value{l.C, l.KPE} {
		shape, ok := l.world.shape(v, n)
		if !ok {
			return nil, nil, &probe.MissingError{Value: v}
		}
		env[v] = reference.NewFloats(l.world.View.Facts.DataType(v), shape, [][]float64{c, kPE}[i])
	}
	got, err := l.world.run(n, env, l.k.value, l.v.value)
	if err != nil {
		return nil, nil, err
	}
	return got[0], got[1], nil
}
