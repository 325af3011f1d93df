package attention

import (
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The standard's op Attention (opset 23) and onnxruntime's MultiHeadAttention hold both products and all steps between
// them in one node. It is run like nodes are: if keys and values are rows of an identity matrix, queries act as scores,
// and the result is the weights.

// wholeOp is such an op. Its first inputs are queries, keys and values; its outputs are the result and the cache's
// presents.
type wholeOp struct {
	domain, name    string
	heads, keyHeads string // the attributes that hold the numbers of heads
	mask, past      int    // indexes of inputs; the cache's values follow its keys
	unread          []unreadInput
	scores          int // index of the optional output of scores
}

// unreadInput is an input that a node must not have here.
type unreadInput struct {
	input int
	what  string
}

var wholeOps = []*wholeOp{
	{"", "Attention", "q_num_heads", "kv_num_heads", 3, 4, []unreadInput{{6, "the lengths of its keys"}}, 3},
	{onnx.Microsoft, "MultiHeadAttention", "num_heads", "num_heads", 5, 6, []unreadInput{{3, "biases of its inputs"},
		{4, "a key_padding_mask"}, {8, "the length of its past"}, {9, "a cache_indirection"}}, 3},
}

// wholeOpOf returns the op of a node, nil for other nodes.
func wholeOpOf(n *onnx.Node) *wholeOp {
	for _, op := range wholeOps {
		if n.OpType == op.name && (n.Domain == op.domain || op.domain == "" && onnx.IsStandardDomain(n.Domain)) {
			return op
		}
	}
	return nil
}

// regions returns the region of a node of the op.
func (op *wholeOp) regions(n *onnx.Node) ([]*region, *reason.Reason) {
	if n.Input(0) == nil || n.Input(1) == nil || n.Input(2) == nil || n.Outputs[0] == nil {
		return nil, nil
	}
	r := &region{anchor: n, product: n, sum: n, operand: 2, op: op}
	if v := n.Input(op.mask); v != nil {
		r.Sides = append(r.Sides, v)
	}
	for _, u := range op.unread {
		if n.Input(u.input) != nil {
			return []*region{r}, reason.New(reason.AttentionOther, n, "it has an input for %s", u.what)
		}
	}
	if v := n.OutputValue(op.scores); v != nil && (v.IsOutput() || len(v.Uses()) > 0) {
		return []*region{r}, reason.New(reason.AttentionRead, n, "its scores are read outside the block")
	}
	return []*region{r}, nil
}

// standardHeads returns the number of heads of an input, and whether heads come before rows.
func (b *block) standardHeads(input int) (heads int64, byHeads bool) {
	attr := b.op.heads
	if input > 0 {
		attr = b.op.keyHeads
	}
	if rank, ok := b.g.Facts.Rank(b.product.Inputs[input]); ok && rank == 4 {
		heads, _ = b.g.Facts.Dim(b.product.Inputs[input], 1)
		return heads, true
	}
	return b.product.AttrInt(attr, 0), false
}

// measureStandard is measure for a node of such an op.
func (b *block) measureStandard() *reason.Reason {
	heads, byHeads := b.standardHeads(0)
	keyHeads, keysByHeads := b.standardHeads(1)
	if heads < 1 || keyHeads < 1 || heads%keyHeads != 0 {
		return b.unknown("the number of heads")
	}
	b.heads, b.scoreAxes, b.weightAxes = int(heads), scores, []Axes{scores}
	for w := range b.world.worlds {
		rows := func(input int, byHeads bool) int64 {
			axis := 1
			if byHeads {
				axis = 2
			}
			return b.g.Facts.Size(b.product.Inputs[input], w, axis)
		}
		queries, keys := rows(0, byHeads), rows(1, keysByHeads)
		batch := b.g.Facts.Size(b.product.Inputs[0], w, 0)
		past := int64(0)
		if v := b.product.Input(b.op.past); v != nil {
			past = b.g.Facts.Size(v, w, 2)
		}
		if batch < 1 || queries < 1 || keys < 1 || past < 0 {
			return b.unknown("the shape of the queries and keys")
		}
		b.world.worlds[w] = lengths{batch, queries, past + keys - queries}
	}
	return nil
}

// standardOperands lists the operands that an input may be. Keys and values have the node's cache.
func (b *block) standardOperands(input int) []operand {
	past := b.product.Input(b.op.past + input - 1)
	heads, _ := b.standardHeads(input)
	if input == 0 || past == nil {
		length := lengths.keys
		if input == 0 {
			length = func(n lengths) int64 { return n.queries }
		}
		return b.operands(b.product.Inputs[input], []int{int(heads)}, length)
	}
	var list []operand
	for _, o := range b.operands(b.product.Inputs[input], []int{int(heads)},
		func(n lengths) int64 { return n.queries }) {
		if o.cache == nil && int64(o.heads) == heads {
			o.cache = &cache{past, b.product.OutputValue(input)}
			list = append(list, o)
		}
	}
	return list
}

// standardInput evaluates an input, appended to the cache.
func (b *block) standardInput(n lengths, env values, input int) (*tensor, error) {
	out, err := b.world.run(n, env, b.product.Inputs[input])
	if err != nil {
		return nil, err
	}
	heads, byHeads := b.standardHeads(input)
	t := &tensor{batch: int(n.batch), heads: int(heads)}
	if byHeads {
		t.rows, t.width = out[0].Shape[2], out[0].Shape[3]
	} else {
		t.rows, t.width = out[0].Shape[1], out[0].Shape[2]/t.heads
	}
	t.from(standardAxes(byHeads), out[0].F)
	if past := b.product.Input(b.op.past + input - 1); input > 0 && past != nil {
		p := env[past]
		t = behind(&tensor{p.F, t.batch, t.heads, p.Shape[2], t.width}, t)
	}
	return t, nil
}

// standardWeights is weigh for a node of such an op.
func (b *block) standardWeights(n lengths, scores []float64, env values) ([]float64, error) {
	keys, factor := int(n.keys()), 1.0
	if a := b.product.Attr("scale"); a == nil || a.Float == 0 { // it follows from the width, which differs here
		heads, byHeads := b.standardHeads(0)
		width, _ := b.g.Facts.Dim(b.product.Inputs[0], -1)
		if !byHeads {
			width /= heads
		}
		factor = math.Sqrt(float64(keys)) / math.Sqrt(float64(width))
	}
	q := &tensor{make([]float64, len(scores)), int(n.batch), b.heads, int(n.queries), keys}
	for i, x := range scores {
		q.data[i] = x * factor
	}
	given := maps.Clone(env)
	b.give(given, 0, q)
	for _, input := range []int{1, 2} {
		heads, _ := b.standardHeads(input)
		whole := &tensor{data: make([]float64, n.batch*heads*n.keys()*n.keys()), batch: int(n.batch), heads: int(heads),
			rows: keys, width: keys}
		for i := 0; i < len(whole.data); i += keys * keys {
			for j := range keys {
				whole.data[i+j*keys+j] = 1
			}
		}
		if past := b.product.Input(b.op.past + input - 1); past != nil {
			given[past] = whole.part(0, int(n.past)).as(byHeads, b.g.Facts.DataType(past))
			whole = whole.part(int(n.past), keys)
		}
		b.give(given, input, whole)
	}
	out, err := b.world.run(n, given, b.product.Outputs[0])
	if err != nil {
		return nil, err
	}
	_, byHeads := b.standardHeads(0)
	y := &tensor{batch: int(n.batch), heads: b.heads, rows: int(n.queries), width: keys}
	return y.from(standardAxes(byHeads), out[0].F).data, nil
}

// standardAxes returns the axes of an input or of the result.
func standardAxes(heads bool) Axes {
	if heads {
		return byHeads
	}
	return "b s nh"
}

// give sets an input to a tensor, with its dimensions in the input's order.
func (b *block) give(env values, input int, t *tensor) {
	v := b.product.Inputs[input]
	_, byHeads := b.standardHeads(input)
	env[v] = t.as(standardAxes(byHeads), b.g.Facts.DataType(v))
}

// standardSum sets the node's result to the weighted sum of the values.
func (b *block) standardSum(n lengths, p []float64, env values) error {
	v, err := b.standardInput(n, env, 2)
	if err != nil {
		return err
	}
	y := weighted(p, v, b.heads, int(n.queries), blocked)
	_, byHeads := b.standardHeads(0)
	out := b.product.Outputs[0]
	env[out] = y.as(standardAxes(byHeads), b.g.Facts.DataType(out))
	return nil
}

// part returns the rows from..to of all heads.
func (t *tensor) part(from, to int) *tensor {
	p := &tensor{batch: t.batch, heads: t.heads, rows: to - from, width: t.width}
	for i := range t.batch {
		for h := range t.heads {
			for j := from; j < to; j++ {
				p.data = append(p.data, t.row(i, h, j)...)
			}
		}
	}
	return p
}

// behind appends the rows of t to past, for each head.
func behind(past, t *tensor) *tensor {
	whole := &tensor{batch: t.batch, heads: t.heads, rows: past.rows + t.rows, width: t.width}
	for i := range t.batch {
		for h := range t.heads {
			for _, part := range []*tensor{past, t} {
				for j := range part.rows {
					whole.data = append(whole.data, part.row(i, h, j)...)
				}
			}
		}
	}
	return whole
}

// constant returns a tensor for a value with all elements x.
func (b *block) constant(v *onnx.Value, n lengths, x float64) (*reference.Tensor, bool) {
	shape, ok := b.world.shape(v, n)
	if !ok {
		return nil, false
	}
	return reference.NewFloats(b.g.Facts.DataType(v), shape, slices.Repeat([]float64{x}, match.Elements(shape))), true
}
