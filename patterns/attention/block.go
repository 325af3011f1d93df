package attention

import (
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Reading is a block of attention, as mojo.Attention would compute it.
type Reading struct {
	Q, K, V                    *onnx.Value
	QAxes, KAxes, VAxes, YAxes Axes
	PastKey, PastValue         *onnx.Value   // or nil
	PresentKey, PresentValue   *onnx.Value   // set with a past
	KeyValid, Sink             *onnx.Value   // or nil
	KeyHides                   bool          // KeyValid holds 0 for keys that exist
	Bias                       []*onnx.Value // tensors added to the scores
	BiasAxes                   Axes          // the axes of the scores that they are added to
	BiasParts                  []int64       // the dimensions of the heads in those scores, if several
	BiasScale                  float64       // factor of Bias, if scores are scaled after the addition; 0: none
	Detours                    []detour      // they add more biases
	// Choice holds truth values: the keys that each query sees or, with Hides, does not see. It may be nil.
	Choice *onnx.Value
	// SinkIs holds the sinks of all heads if no tensor does, such as 0 if 1 is added to a sum of exponentials. It may
	// be nil.
	SinkIs    []float64
	Hides     bool
	HeadScale *onnx.Value // a factor of the scores for each head, or nil
	// QueryScale is a factor of the scores that does not depend on keys, such as one by length. It may be nil. With
	// QueryDivides, the scores are divided by it.
	QueryScale        *onnx.Value
	QueryDivides      bool
	Y                 *onnx.Value
	Heads, KeyHeads   int64
	Width, ValueWidth int64 // of a head's keys and values
	Packed            bool  // Q also holds the keys and values, after the queries
	// OnTheRight promises that any padding follows the prompts and that a past has no padding.
	OnTheRight bool
	Rotary     *Rotary // nil if queries and keys are already rotated, or not at all

	Scale, Softcap   float64
	Causal           bool
	Window           int64
	Empty, HeadOrder string
	Anchor           *onnx.Node
	Nodes            []*onnx.Node

	// smaller reads the block as a smaller site, to be used if this one is refused. It is nil, or returns nil, if there
	// is no such reading. It may be called until the graph changes.
	smaller func() *Reading

	queriesAt int // the input of the first product that Q leads to
}

// block is a region while it is being read.
type block struct {
	*region
	arrangement
	way
	g        *match.View
	world    *world
	repeated bool // the model repeats keys for each head of queries
	factors  bool // masks with other numbers than those that hide keys are factors, not biases
	short    bool // the block is run at shorter lengths than its fixed ones
	straight bool // the detours of the scores add nothing
	keyHeads int
	site     *Reading
	scale    float64 // of the scores that the first product computes

	keyValid   *onnx.Value   // the padding mask that masks are computed from
	hides      bool          // true elements of masks hide keys
	otherData  bool          // masks are computed from other data
	bounded    bool          // masks are computed from tables
	masksGiven bool          // the op gets the masks: they do not follow from positions
	unproved   error         // why masks are not known to follow from positions
	biases     []*onnx.Value // added tensors that do more than hide keys
	sink       *reference.Tensor
	sinks      []float64 // of each head, or nil
	headScale  []float64 // of each head, besides the common scale
	weighs     bool      // the weights are a softmax of the scores

	hasNumbers bool // findBiases found tensors that do more than hide keys
	proof      *prover
	fixed      map[*onnx.Value]bool // memo of isFixed
}

// way selects one of the possible readings of a block.
type way struct {
	asBias Masks // as for Find
	joined bool  // keys and values are the model's concatenation of the cache and the new rows
}

// read reads a region with the first arrangement of its scores that makes it attention.
func read(g *match.View, r *region, w way) (*Reading, *reason.Reason) {
	list := []arrangement{{}}
	if r.op == nil {
		list = arrangements(g, r)
	}
	var first *reason.Reason
	for _, a := range list {
		if budgetOf(g).Spent() {
			break
		}
		site, weighs, why := readAs(g, r, a, w)
		if why == nil {
			return site, nil
		}
		if first == nil || weighs {
			first = why
		}
		if weighs {
			break
		}
	}
	if first == nil {
		first = reason.New(reason.Unknown, r.product, "the shape of the scores is not known")
	}
	return nil, first
}

// readAs is read with one arrangement of the scores; weighs is true if the weights are a softmax of the scores.
func readAs(g *match.View, r *region, a arrangement, w way) (site *Reading, weighs bool, why *reason.Reason) {
	if mayShorten(g, r, a) {
		if site, weighs, why = readWith(g, r, a, w, true); why == nil {
			return site, weighs, nil
		}
	}
	return readWith(g, r, a, w, false)
}

// readWith is readAs; with short, fixed lengths are replaced by shorter ones.
func readWith(g *match.View, r *region, a arrangement, w way, short bool) (site *Reading, weighs bool,
	why *reason.Reason) {
	b := &block{region: r, arrangement: a, g: g, way: w, short: short}
	try := func(change func(b *block)) {
		next := &block{region: b.region, arrangement: a, g: g, way: b.way, repeated: b.repeated, factors: b.factors,
			short: short, straight: b.straight}
		change(next)
		if other := next.read(); why == nil || other == nil {
			b, why = next, other
		}
	}
	why = b.read()
	if why != nil && b.keyHeads < b.heads && b.site.Y == nil {
		try(func(b *block) { b.repeated = true })
	}
	if why != nil && b.hasNumbers {
		try(func(b *block) { b.factors = true })
	}
	if other := r.around(); why != nil && other != nil && !short {
		try(func(b *block) { b.region, b.straight = other, true })
	}
	if why == nil && b.biasReadsCache() {
		try(func(b *block) { b.joined = true })
	}
	return b.site, b.weighs, why
}

func (b *block) read() *reason.Reason {
	b.site = &Reading{Anchor: b.anchor, queriesAt: b.queriesAt}
	for _, step := range []func() *reason.Reason{b.measure, b.readProduct, b.readSum, b.readWeights, b.checkSteps,
		b.readMask} {
		if why := step(); why != nil {
			return why
		}
		if b.world.Budget.Spent() {
			return givenUp(b.region)
		}
	}
	if !b.confirm() { // perhaps only its masks differ at lengths that were not tried
		b.site.Causal, b.site.Window, b.site.KeyValid = false, 0, nil
		if b.masksGiven || b.readBias() != nil || !b.confirm() {
			return b.other(b.anchor, "it computes another function at other lengths")
		}
	}
	b.site.BiasAxes = b.scoreAxes
	if b.straight {
		if why := b.readDetours(); why != nil {
			return why
		}
	}
	if !b.merged {
		b.site.BiasParts = b.headParts
	}
	return b.checkDims()
}

// biasReadsCache reports whether the bias is computed from keys or values that the op would concatenate.
func (b *block) biasReadsCache() bool {
	if b.site.PresentKey == nil {
		return false
	}
	from := slices.Clone(b.site.Bias)
	if b.site.Choice != nil {
		from = append(from, b.site.Choice)
	}
	for v := range onnx.Upstream(func(*onnx.Value) bool { return false }, from...) {
		if v == b.site.PresentKey || v == b.site.PresentValue {
			return true
		}
	}
	return false
}

// measure finds the lengths of the block in the worlds of shape inference.
func (b *block) measure() *reason.Reason {
	b.world = newWorld(b.g, b.lengths)
	if b.short {
		b.world.short = b.shortened()
	}
	if b.op != nil {
		if why := b.measureStandard(); why != nil {
			return why
		}
	}
	if b.tooMany(b.few()) {
		return b.tooManyScores()
	}
	b.findMask()
	b.findBiases()
	return nil
}

// maxScores bounds the scores of one run.
const maxScores = 1 << 22

func (b *block) tooManyScores() *reason.Reason {
	return b.other(b.product, "it has too many scores for a trial run")
}

func (b *block) tooMany(n lengths) bool { return int64(b.rowsOf(n)) > maxScores/max(n.keys(), 1) }

func (b *block) unknown(what string) *reason.Reason {
	return reason.New(reason.Unknown, b.product, "%s is not known", what)
}

func (b *block) other(at *onnx.Node, format string, args ...any) *reason.Reason {
	return reason.New(reason.AttentionOther, at, format, args...)
}

// givenUp is the reason if the budget is spent: the search finds nothing more.
func givenUp(r *region) *reason.Reason {
	return reason.New(reason.Limit, r.anchor, "the search stopped at its limit of steps")
}

// few returns lengths at which operands can be told apart.
func (b *block) few() lengths { return b.world.at(lengths{2, 3, 2}) }

// readProduct finds the queries and keys that the scores are products of.
func (b *block) readProduct() *reason.Reason {
	n := b.few()
	queries, keys := b.operandsOf(0), b.operandsOf(1)
	for _, k := range keys {
		for _, q := range queries {
			if b.world.Budget.Spent() {
				return givenUp(b.region)
			}
			if b.repeated && k.heads != b.heads || q.heads != b.heads || q.width != k.width || q.heads%k.heads != 0 ||
				!b.castable(k, b.g.Facts.DataType(q.value)) &&
					!(b.castable(k, b.g.Facts.DataType(k.value)) && b.castable(q, b.g.Facts.DataType(k.value))) {
				continue
			}
			env := values{}
			x, y := b.sample(q, n, n.queries, 1, env), b.sample(k, n, b.rows(k, n), 3, env)
			got, err := b.scoresOf(n, env)
			if err != nil {
				continue
			}
			for _, order := range []string{blocked, cyclic} {
				if scale, ok := factorOf(dots(x, y, order), got); ok {
					b.scale, b.keyHeads = scale, k.heads
					s := b.site
					s.Heads, s.KeyHeads = int64(b.heads), int64(k.heads)
					s.Width = int64(k.width)
					s.Q, s.QAxes, s.K, s.KAxes, s.HeadOrder = q.value, q.axes, k.value, k.axes, order
					if k.cache != nil {
						s.PastKey, s.PresentKey = k.cache.past, k.cache.present
					}
					return nil
				}
			}
		}
	}
	return b.other(b.product, "the scores are not products of queries and keys for each head")
}

// operandsOf lists the candidates for the queries, the keys or the values.
func (b *block) operandsOf(which int) []operand {
	if b.op != nil {
		return b.standardOperands(which)
	}
	heads := []int{1, b.heads}
	switch which {
	case 0:
		return b.operands(b.product.Inputs[b.queriesAt], heads[1:], func(n lengths) int64 { return n.queries })
	case 1:
		return b.operands(b.product.Inputs[1-b.queriesAt], heads, lengths.keys)
	}
	return b.operands(b.sum.Inputs[b.operand], heads, lengths.keys)
}

// scoresOf computes the first product.
func (b *block) scoresOf(n lengths, env values) ([]float64, error) {
	if b.op == nil {
		out, err := b.world.run(n, env, b.scores())
		if err != nil {
			return nil, err
		}
		if len(out[0].F) != b.rowsOf(n)*int(n.keys()) {
			return nil, b.unknown("the shape of the scores")
		}
		return arranged(out[0].F, b.scoreAxes, scores, b.sizes(n)), nil
	}
	q, err := b.standardInput(n, env, 0)
	if err != nil {
		return nil, err
	}
	k, err := b.standardInput(n, env, 1)
	if err != nil {
		return nil, err
	}
	return dots(q, k, blocked), nil
}

// rows returns the number of rows of an operand: the new keys if it has a cache, else all keys.
func (b *block) rows(o operand, n lengths) int64 {
	if o.cache != nil {
		return n.queries
	}
	return n.keys()
}

// castable reports whether an operand can be given to an op of type t: as it is or, without a cache, cast from a
// narrower type.
func (b *block) castable(o operand, t onnx.DataType) bool {
	from := b.g.Facts.DataType(o.value)
	if o.cache != nil {
		return from == t && b.g.Facts.DataType(o.cache.past) == t
	}
	return from == t || match.Widens(from, t)
}

// dots multiplies each row of queries with each row of keys.
func dots(q, k *tensor, order string) []float64 { return product("bmsh,bnlh->bmsl", q, k, order) }

// product is an Einsum of two tensors, the second of which has the heads of keys. In the equation, m stands for the
// heads of the first tensor, which are grouped.
func product(equation string, x, y *tensor, order string) []float64 {
	m, shape := "ng", []int{x.batch, y.heads, x.heads / y.heads, x.rows, x.width}
	if order == cyclic {
		m, shape[1], shape[2] = "gn", shape[2], shape[1]
	}
	out, err := probe.Op("Einsum", []*onnx.Attribute{
		onnx.StringAttr("equation", strings.ReplaceAll(equation, "m", m))}, nil,
		reference.NewFloats(onnx.Double, shape, x.data),
		reference.NewFloats(onnx.Double, []int{y.batch, y.heads, y.rows, y.width}, y.data))
	if err != nil {
		panic(err) // a bug here, which any test catches
	}
	return out[0].F
}

// readSum finds the values and the result.
func (b *block) readSum() *reason.Reason {
	n, s := b.few(), b.site
	results := b.results()
	for _, v := range b.operandsOf(2) {
		if v.heads != b.keyHeads || (v.cache == nil) != (s.PastKey == nil) {
			continue
		}
		for _, axes := range b.weightAxes {
			if b.world.Budget.Spent() {
				return givenUp(b.region)
			}
			env := values{}
			b.world.name(b.weights(), axes, true, b.heads, 0)
			x := b.sample(v, n, b.rows(v, n), 5, env)
			p := random(b.rowsOf(n)*int(n.keys()), 7)
			if b.op != nil {
				if b.standardSum(n, p, env) != nil {
					continue
				}
			} else if shape, ok := b.world.shape(b.weights(), n); ok {
				env[b.weights()] = reference.NewFloats(b.g.Facts.DataType(b.weights()), shape,
					arranged(p, scores, axes, b.sizes(n)))
			}
			want := weighted(p, x, b.heads, int(n.queries), s.HeadOrder)
			if y := b.resultOf(n, env, v, want, results); y != nil {
				b.weightAxes = []Axes{axes}
				s.ValueWidth = int64(v.width)
				s.V, s.VAxes, s.Y, s.YAxes = v.value, v.axes, y.value, y.axes
				if v.cache != nil {
					s.PastValue, s.PresentValue = v.cache.past, v.cache.present
				}
				return nil
			}
		}
	}
	return b.other(b.sum, "the result is not a weighted sum of values for each head")
}

// resultOf returns the result that equals the weighted sum of the values, nil if there is none.
func (b *block) resultOf(n lengths, env values, v operand, want *tensor, results []operand) *operand {
	s := b.site
	for _, y := range results {
		if b.world.Budget.Spent() {
			return nil
		}
		made := b.g.Facts.DataType(y.value)
		if y.width != v.width || y.heads != b.heads || !b.castable(v, made) || !b.castable(operand{value: s.Q}, made) ||
			!b.castable(operand{value: s.K, cache: v.cache}, made) {
			continue
		}
		env := b.withoutMask(n, env)
		for _, j := range b.joins {
			one, ok := b.constant(j.factor, n, 1)
			if !ok {
				return nil
			}
			env[j.factor] = one
		}
		got, err := b.world.run(n, env, y.value)
		if err != nil || len(got[0].F) != len(want.data) {
			continue
		}
		if f, ok := factorOf(arranged(want.data, byHeads, y.axes, want.sizes()), got[0].F); ok && math.Abs(f-1) < 1e-6 {
			return &y
		}
	}
	return nil
}

// tensorOf makes a random tensor for a value between the products.
func (b *block) tensorOf(v *onnx.Value, n lengths, seed uint64) (*reference.Tensor, bool) {
	shape, ok := b.world.shape(v, n)
	if !ok {
		return nil, false
	}
	return reference.NewFloats(b.g.Facts.DataType(v), shape, random(match.Elements(shape), seed)), true
}

// weighted sums the rows of values with the weights.
func weighted(p []float64, v *tensor, heads, queries int, order string) *tensor {
	weights := &tensor{data: p, batch: v.batch, heads: heads, rows: queries, width: v.rows}
	return &tensor{data: product("bmsl,bnlh->bmsh", weights, v, order), batch: v.batch, heads: heads, rows: queries,
		width: v.width}
}

// resultAxes are axes that only a result may have, besides those of operands.
var resultAxes = []Axes{"bs nh", "sb nh", "b n h s"}

// results lists the candidates for the result of the op, the farthest from the second product first.
func (b *block) results() []operand {
	kinds := append(slices.Clone(operandAxes), resultAxes)
	lists := make([][]operand, len(kinds))
	v, joins := b.sum.Outputs[0], 0
	for range maxChain {
		for i, kind := range kinds {
			var list []operand
			for _, a := range kind {
				list = append(list, b.as(v, a, []int{b.heads}, func(n lengths) int64 { return n.queries }, nil)...)
			}
			if joins == len(b.joins) {
				lists[i] = append(list, lists[i]...)
			}
		}
		next := soleReader(b.g, v)
		if next == nil || v.IsOutput() || !onnx.IsStandardDomain(next.Domain) || result(next) == nil {
			break
		}
		if b.joinOf(next) != nil {
			joins++
		} else if handed(b.g, next) != v {
			break
		}
		v = next.Outputs[0]
	}
	return slices.Concat(lists...)
}

// soleReader returns the node that alone reads the elements of a value, or nil.
func soleReader(g *match.View, v *onnx.Value) *onnx.Node {
	var sole *onnx.Node
	for _, n := range g.Readers(v) {
		switch {
		case n.Is("Shape"):
		case sole != nil:
			return nil
		default:
			sole = n
		}
	}
	return sole
}

// handed returns the value whose rows a node after the second product passes on: moved or, for queries that see no key,
// replaced.
func handed(g *match.View, n *onnx.Node) *onnx.Value {
	d := denseValues(g)
	switch {
	case !n.Is("Where") || d[n.Input(0)] || d[n.Input(1)] == d[n.Input(2)]:
		return movedFrom(g, n)
	case d[n.Input(1)]:
		return n.Input(1)
	}
	return n.Input(2)
}

// handed is handed for nodes that may be joins.
func (r *region) handed(g *match.View, n *onnx.Node) *onnx.Value {
	if j := r.joinOf(n); j != nil {
		return j.rows
	}
	return handed(g, n)
}

// nodesOf lists the nodes that compute the results of a site from its operands, without the nodes of masks, which other
// blocks share.
func nodesOf(g *match.View, r *region, s *Reading) []*onnx.Node {
	nodes := append(slices.Clone(r.Nodes), r.product)
	if r.sum != r.product {
		nodes = append(nodes, r.sum)
	}
	add := func(v, to *onnx.Value, from func(n *onnx.Node) *onnx.Value) {
		for v != nil && v != to && v.Producer != nil {
			nodes = append(nodes, v.Producer)
			v = from(v.Producer)
		}
	}
	operand := func(n *onnx.Node) *onnx.Value {
		if n.Is("Concat") {
			return n.Inputs[1]
		}
		return movedFrom(g, n)
	}
	add(r.product.Inputs[s.queriesAt], s.Q, operand)
	add(r.product.Inputs[1-s.queriesAt], s.K, operand)
	add(r.sum.Inputs[r.operand], s.V, operand)
	add(s.Y, r.sum.Outputs[0], func(n *onnx.Node) *onnx.Value { return r.handed(g, n) })
	return nodes
}
