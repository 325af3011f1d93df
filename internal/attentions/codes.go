package attentions

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// Code is a model of one block.
type Code struct {
	Name  string
	write func(c *code)
	// Want is the expected result: parts of the op's attributes in text form, "missed:" with a part of the reason, or
	// "nothing".
	Want string
}

// Model returns a new model.
func (c Code) Model() *onnx.Model {
	b := newCode()
	c.write(b)
	return b.Model
}

// Published returns the code of published models.
func Published() []Code { return published }

var published = []Code{
	{"fairseq, encoder", func(c *code) {
		pad := c.Input("encoder_padding_mask", onnx.Bool, "batch", "sequence")
		q, k, v := c.qkv()
		s := c.Op("MatMul", c.folded(c.Op("Mul", q, 0.35355338)), c.turn(c.folded(k), 0, 2, 1))
		s = c.Op("Where", c.at(pad, 1, 2), minusInfinity, c.unfolded(s))
		y := c.Op("MatMul", c.softmax(c.refolded(s)), c.folded(v))
		c.out(c.Op("Reshape", y, c.join(0, []int64{-1, 4}, c.vector(c.dim(y, 1)), []int64{8})))
	}, ""},
	{"fairseq, decoder", func(c *code) {
		pad := c.Input("padding", onnx.Bool, "batch", "sequence")
		q, k, v := c.qkv()
		s := c.Op("MatMul", c.folded(c.Op("Mul", q, 0.35355338)), c.turn(c.folded(k), 0, 2, 1))
		side := c.join(0, c.vector(c.dim(c.x, 1)), c.vector(c.dim(c.x, 1)))
		future := c.Op("Trilu", c.Op("Expand", minusInfinity, side), 1, onnx.IntAttr("upper", 1))
		s = c.Op("Add", s, c.at(future, 0))
		s = c.Op("Where", c.at(pad, 1, 2), minusInfinity, c.unfolded(s))
		y := c.Op("MatMul", c.softmax(c.refolded(s)), c.folded(v))
		c.out(c.Op("Reshape", y, c.join(0, []int64{-1, 4}, c.vector(c.dim(y, 1)), []int64{8})))
	}, ""},
	{"BERT, -10000", func(c *code) {
		q, k, v := c.qkv()
		s := c.Op("Div", c.scores(q, k), c.Op("Sqrt", 8.0))
		added := c.Op("Mul", c.Op("Sub", 1.0, c.number(c.at(c.padding(), 1, 2))), -10000.0)
		c.out(c.Op("MatMul", c.softmax(c.Op("Add", s, added)), v))
	}, ""},
	{"BERT, least number", func(c *code) {
		q, k, v := c.qkv()
		s := c.Op("Div", c.scores(q, k), c.Op("Sqrt", 8.0))
		added := c.Op("Mul", c.Op("Sub", 1.0, c.number(c.at(c.padding(), 1, 2))), lowestNumber)
		c.out(c.Op("MatMul", c.softmax(c.Op("Add", s, added)), v))
	}, ""},
	{"BERT, by Einsum", func(c *code) {
		rows := func(v *onnx.Value) *onnx.Value { return c.Op("Reshape", v, []int64{0, 0, 4, 8}) }
		q, k, v := rows(c.project(c.x, 32)), rows(c.project(c.x, 32)), rows(c.project(c.x, 32))
		s := c.Op("Einsum", k, q, onnx.StringAttr("equation", "BTNH,BFNH->BNFT"))
		ones := c.Op("Expand", 1.0, c.join(0, c.vector(c.dim(c.x, 0)), c.vector(c.dim(c.x, 1)), []int64{1}))
		square := c.Op("Mul", ones, c.at(c.number(c.padding()), 1))
		added := c.Op("Mul", c.Op("Sub", 1.0, c.at(square, 1)), -10000.0)
		p := c.softmax(c.Op("Add", c.Op("Mul", s, 0.35355338), added))
		y := c.Op("Einsum", p, v, onnx.StringAttr("equation", "BNFT,BTNH->BFNH"))
		c.Output(c.Op("MatMul", c.Op("Reshape", y, []int64{0, 0, 32}), c.tensor(32, 32)))
	}, ""},
	{"DistilBERT, masked_fill", func(c *code) {
		q, k, v := c.qkv()
		s := c.scores(c.Op("Div", q, 2.828427), k)
		is := c.Op("Reshape", c.Op("Equal", c.padding(), 0), c.join(0, []int64{-1, 1, 1}, c.vector(c.dim(k, 2))))
		wide := c.Op("Expand", is, c.Op("Shape", s))
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", wide, lowestNumber, s)), v))
	}, "mean"},
	{"XLM, -inf", func(c *code) {
		q, k, v := c.qkv()
		s := c.scores(c.Op("Div", q, 2.828427), k)
		is := c.Op("Not", c.is(c.at(c.padding(), 1, 2)))
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", c.Op("Expand", is, c.Op("Shape", s)), minusInfinity, s)), v))
	}, ""},
	{"Annotated Transformer", func(c *code) {
		q, k, v := c.qkv()
		given := c.Input("mask", onnx.Int64, "batch", 1, "sequence", "sequence")
		s := c.Op("Where", c.Op("Equal", given, 0), -1e9, c.Op("Div", c.scores(q, k), 2.828427))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, ""},
	{"T5, encoder", func(c *code) {
		q, k, v := c.qkv()
		c.out(c.Op("MatMul", c.softmax(c.Op("Add", c.scores(q, k), c.t5Bias(k, false))), v))
	}, ""},
	{"T5, decoder with a cache", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		bias := c.t5Bias(k, true)
		last := c.Op("Slice", bias, c.vector(c.Op("Neg", c.dim(c.x, 1))), []int64{math.MaxInt64}, []int64{2})
		i, j := c.positions(k)
		added := c.at(c.Op("Where", c.Op("LessOrEqual", j, i), 0.0, lowestNumber), 0, 1)
		c.out(c.Op("MatMul", c.softmax(c.Op("Add", c.scores(q, k), c.Op("Add", last, added))), v))
	}, ""},
	{"T5, across", func(c *code) {
		q := c.heads(c.project(c.x, 32), 4)
		other := c.Input("encoder", onnx.Float, "batch", "encoded", 32)
		k, v := c.heads(c.project(other, 32), 4), c.heads(c.project(other, 32), 4)
		given := c.Input("encoder_mask", onnx.Int64, "batch", "encoded")
		s := c.scores(q, k)
		zeros := c.Op("ConstantOfShape", c.join(0, []int64{1, 4}, c.vector(c.dim(q, 2)), c.vector(c.dim(k, 2))))
		added := c.Op("Mul", c.Op("Sub", 1.0, c.number(c.at(given, 1, 2))), lowestNumber)
		c.out(c.Op("MatMul", c.softmax(c.Op("Add", s, c.Op("Add", zeros, added))), v))
	}, ""},
	{"GPT-2", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		all := c.dim(k, 2)
		from := c.Op("Sub", all, c.dim(q, 2))
		rows := c.Op("Slice", c.buffer(256), c.vector(from), c.vector(all), []int64{2}, []int64{1})
		see := c.Op("Slice", rows, []int64{0}, c.vector(all), []int64{3}, []int64{1})
		s := c.Op("Div", c.scores(q, k), c.Op("Sqrt", 8.0))
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", see, s, lowestNumber)), v))
	}, "causal=1"},
	{"GPT-2, -10000", func(c *code) { // a score may be as low
		q, k, v := c.qkv()
		n := c.vector(c.dim(k, 2))
		see := c.Op("Slice", c.Op("Slice", c.buffer(256), []int64{0}, n, []int64{2}), []int64{0}, n, []int64{3})
		s := c.Op("Div", c.scores(q, k), c.Op("Sqrt", 8.0))
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", see, s, -10000.0)), v))
	}, "missed, a masked score is -10000"},
	{"GPT-2, multiplied", func(c *code) {
		q, k, v := c.qkv()
		n := c.vector(c.dim(k, 2))
		b := c.number(c.Op("Slice", c.Op("Slice", c.buffer(256), []int64{0}, n, []int64{2}), []int64{0}, n, []int64{3}))
		s := c.Op("Mul", c.scores(q, k), 0.35355338)
		s = c.Op("Sub", c.Op("Mul", s, b), c.Op("Mul", c.Op("Sub", 1.0, b), 1e10))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1"},
	{"GPT-J", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		all := c.dim(k, 2)
		rows := c.Op("Slice", c.buffer(256), c.vector(c.Op("Sub", all, c.dim(q, 2))), c.vector(all), []int64{2})
		see := c.Op("Slice", rows, []int64{0}, c.vector(all), []int64{3})
		s := c.Op("Div", c.Op("Where", see, c.scores(q, k), lowestNumber), 2.828427)
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1"},
	{"GPT-NeoX, heads folded", func(c *code) {
		q, k, v := c.qkv()
		s := c.Op("MatMul", c.Op("Mul", c.folded(q), 0.35355338), c.turn(c.folded(k), 0, 2, 1))
		n := c.vector(c.dim(k, 2))
		see := c.Op("Slice", c.Op("Slice", c.buffer(256), []int64{0}, n, []int64{2}), []int64{0}, n, []int64{3})
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", see, c.unfolded(s), lowestNumber)), v))
	}, "causal=1"},
	{"GPT-Neo, local", func(c *code) {
		q, k, v := c.qkv()
		list := make([]int64, 256*256)
		for i := range 256 {
			for j := max(0, i-63); j <= i; j++ {
				list[i*256+j] = 1
			}
		}
		n := c.vector(c.dim(k, 2))
		b := c.bools([]int{1, 1, 256, 256}, list)
		see := c.Op("Slice", c.Op("Slice", b, []int64{0}, n, []int64{2}), []int64{0}, n, []int64{3})
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", see, c.scores(q, k), lowestNumber)), v))
	}, "causal=1, window=64"},
	{"BLOOM", func(c *code) {
		q, k, v := c.qkv()
		m := c.padding()
		counted := c.number(c.Op("Mul", c.Op("Sub", c.Op("CumSum", m, -1), 1), m))
		alibi := c.Op("Mul", c.floats([]int{1, 4, 1, 1}, []float64{0.25, 0.0625, 0.015625, 0.00390625}),
			c.at(counted, 1, 2))
		alibi = c.Op("Reshape", alibi, c.join(0, []int64{-1, 1}, c.vector(c.dim(k, 2))))
		s := c.Op("Add", c.Op("Mul", c.Op("MatMul", c.folded(q), c.turn(c.folded(k), 0, 2, 1)), 0.35355338), alibi)
		i, j := c.positions(k)
		hidden := c.Op("Or", c.Op("Not", c.is(c.at(m, 1, 2))), c.Op("Greater", j, i))
		s = c.Op("Where", hidden, lowestNumber, c.unfolded(s))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, ""},
	{"MPT", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		slopes := c.floats([]int{4, 1, 1}, []float64{0.25, 0.0625, 0.015625, 0.00390625})
		_, j := c.positions(k)
		far := c.number(c.Op("Sub", c.Op("Add", j, 1), c.dim(k, 2)))
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Mul", far, slopes))
		i, j := c.positions(k)
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", c.Op("Greater", j, i), lowestNumber, s)), v))
	}, "causal=1"},
	{"Falcon, alibi before the scale", func(c *code) {
		q := c.heads(c.project(c.x, 32), 4)
		k, v := c.heads(c.project(c.x, 8), 1), c.heads(c.project(c.x, 8), 1)
		i, j := c.positions(k)
		slopes := c.floats([]int{1, 4, 1, 1}, []float64{0.25, 0.0625, 0.015625, 0.00390625})
		s := c.Op("Mul", c.Op("Add", c.scores(q, k), c.Op("Mul", slopes, c.number(j))), 0.35355338)
		c.out(c.Op("MatMul", c.softmax(c.Op("Add", s, c.Op("Where", c.Op("LessOrEqual", j, i), 0.0, lowestNumber))), v))
	}, ""},
	{"ChatGLM", func(c *code) { // 6B, whose scores may be as low as masked ones
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.scores(c.Op("Div", q, 8.485281), k)
		s = c.Op("Mul", c.Op("Where", c.at(c.Op("Greater", j, i), 0, 1), -10000.0, s), 3.0)
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "missed, a masked score is -10000"},
	{"ChatGLM2", func(c *code) { // rows first
		rows := func(v *onnx.Value) *onnx.Value { return c.Op("Reshape", v, []int64{0, 0, 4, 8}) }
		x := c.turn(c.x, 1, 0, 2)
		q, k, v := rows(c.project(x, 32)), rows(c.project(x, 32)), rows(c.project(x, 32))
		flat := func(v *onnx.Value) *onnx.Value {
			return c.Op("Reshape", v, c.join(0, c.vector(c.dim(v, 0)), []int64{-1, 8}))
		}
		s := c.Op("MatMul", c.turn(flat(q), 1, 0, 2), c.turn(flat(k), 1, 2, 0))
		s = c.Op("Mul", c.unfolded(c.Op("Mul", s, 0.11785113)), 3.0)
		all := c.dim(c.x, 1)
		j := c.Op("Range", 0, all, 1)
		s = c.Op("Where", c.Op("Greater", c.at(j, 0), c.at(j, 1)), minusInfinity, s)
		y := c.Op("MatMul", c.refolded(c.softmax(s)), c.turn(flat(v), 1, 0, 2))
		y = c.turn(c.Op("Reshape", y, c.join(0, []int64{-1, 4}, c.vector(all), []int64{8})), 2, 0, 1, 3)
		c.Output(c.Op("Reshape", y, []int64{0, 0, 32}))
	}, "causal=1"},
	{"Olmo 3, a cache of a window", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cut(k, 16), c.cut(v, 16)
		i, j := c.positions(k)
		see := c.Op("And", c.Op("LessOrEqual", j, i), c.Op("Greater", j, c.Op("Sub", i, 16)))
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", c.at(see, 0, 1), 0.0, lowestNumber))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1, window=16"},
	{"Exaone 4, a cut of the keys", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		last := func(v *onnx.Value) *onnx.Value {
			return c.Op("Slice", v, []int64{-4096}, []int64{math.MaxInt64}, []int64{2})
		}
		k, v = last(k), last(v)
		i, j := c.positions(k)
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", c.Op("LessOrEqual", j, i), 0.0,
			lowestNumber))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, ""},
	{"gpt-oss, sinks as a column", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", c.Op("LessOrEqual", j, i), 0.0,
			lowestNumber))
		column := c.join(0, c.vector(c.dim(q, 0)), []int64{-1}, c.vector(c.dim(q, 2)), []int64{-1})
		shape := c.Op("Where", c.Op("Equal", column, []int64{-1}), []int64{1}, column)
		sinks := c.Op("Expand", c.tensor(1, 4, 1, 1), shape)
		p := c.softmax(c.join(-1, s, sinks))
		c.out(c.Op("MatMul", c.Op("Slice", p, []int64{0}, []int64{-1}, []int64{3}), v))
	}, "causal=1"},
	{"gpt-oss, the sum of exponentials", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", c.Op("LessOrEqual", j, i), 0.0,
			lowestNumber))
		sinks := c.tensor(4, 1, 1)
		lse := c.Op("ReduceLogSumExp", s, []int64{-1})
		both := c.Op("Log", c.Op("Add", c.Op("Exp", lse), c.Op("Exp", sinks)))
		c.out(c.Op("MatMul", c.Op("Exp", c.Op("Sub", s, both)), v))
	}, "causal=1"},
	{"gpt-oss, the result times a sigmoid", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", c.Op("LessOrEqual", j, i), 0.0,
			lowestNumber))
		lse := c.Op("ReduceLogSumExp", s, []int64{-1})
		y := c.Op("MatMul", c.softmax(s), v)
		c.out(c.Op("Mul", y, c.Op("Sigmoid", c.Op("Sub", lse, c.tensor(4, 1, 1)))))
	}, "causal=1"},
	{"gpt-oss, logsumexp by hand", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", c.Op("LessOrEqual", j, i), 0.0,
			lowestNumber))
		sinks := c.tensor(4, 1, 1)
		top := c.Op("Max", c.Op("ReduceMax", s, []int64{-1}), sinks)
		e := c.Op("Exp", c.Op("Sub", s, top))
		sum := c.Op("Add", c.Op("ReduceSum", e, []int64{-1}), c.Op("Exp", c.Op("Sub", sinks, top)))
		c.out(c.Op("MatMul", c.Op("Div", e, sum), v))
	}, "causal=1"},
	{"flash, divided by the sum at last", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.Op("Where", c.Op("LessOrEqual", j, i), c.Op("Mul", c.scores(q, k), 0.35355338), lowestNumber)
		e := c.Op("Exp", c.Op("Sub", s, c.Op("ReduceMax", s, []int64{-1})))
		c.out(c.Op("Div", c.Op("MatMul", e, v), c.Op("ReduceSum", e, []int64{-1})))
	}, "causal=1"},
	{"flash, times a reciprocal behind the transposition", func(c *code) {
		q, k, v := c.qkv()
		s := c.Op("Mul", c.scores(q, k), 0.35355338)
		e := c.Op("Exp", c.Op("Sub", s, c.Op("ReduceMax", s, []int64{-1})))
		y := c.turn(c.Op("MatMul", e, v), 0, 2, 1, 3)
		l := c.turn(c.Op("Reciprocal", c.Op("ReduceSum", e, []int64{-1})), 0, 2, 1, 3)
		c.Output(c.Op("MatMul", c.Op("Reshape", c.Op("Mul", y, l), []int64{0, 0, 32}), c.tensor(32, 32)))
	}, ""},
	{"Llama 4, chunks and scaled queries", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		i, j := c.positions(k)
		at := c.number(c.turn(i, 1, 0))
		scale := c.Op("Add", c.Op("Mul", c.Op("Log", c.Op("Add", c.Op("Floor", c.Op("Div", c.Op("Add", at,
			1.0), 8192.0)),
			1.0)), 0.1), 1.0)
		q = c.Op("Mul", q, c.Op("Reshape", scale, []int64{1, 1, -1, 1}))
		see := c.Op("And", c.Op("LessOrEqual", j, i), c.Op("Equal", c.Op("Div", j, 8192), c.Op("Div", i, 8192)))
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", see, 0.0, lowestNumber))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, ""},
	{"chunks of four behind a cache", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		i, j := c.positions(k)
		see := c.Op("And", c.Op("LessOrEqual", j, i), c.Op("Equal", c.Op("Div", j, 4), c.Op("Div", i, 4)))
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", see, 0.0, lowestNumber))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, ""},
	{"dilated", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		d := c.Op("Sub", i, j)
		see := c.Op("And", c.Op("GreaterOrEqual", d, 0), c.Op("Equal", c.Op("Mod", d, 3), 0))
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", see, c.Op("Mul", c.scores(q, k), 0.35355338), lowestNumber)), v))
	}, ""},
	{"only later keys", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", c.Op("GreaterOrEqual", j, i), c.scores(q, k), lowestNumber)), v))
	}, ""},
	{"causal from the upper left", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		i, j := c.Op("Range", 0, c.dim(q, 2), 1), c.Op("Range", 0, c.dim(k, 2), 1)
		see := c.Op("LessOrEqual", c.at(j, 0), c.at(i, 1))
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.Op("Where", see, 0.0, lowestNumber))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, ""},
	{"XLNet", func(c *code) { // products with relative positions are shifted: the sum is a bias
		q, k, v := c.qkv()
		r := c.Input("r", onnx.Float, 1, 4, "relative", 8)
		bd := c.Op("MatMul", c.Op("Add", q, c.tensor(1, 4, 1, 8)), c.turn(r, 0, 1, 3, 2))
		n := c.dim(q, 2)
		shifted := c.Op("Reshape", bd, c.join(0, []int64{-1, 4}, c.vector(c.dim(r, 2)), c.vector(n)))
		shifted = c.Op("Slice", shifted, []int64{1}, []int64{math.MaxInt64}, []int64{2})
		shifted = c.Op("Reshape", shifted, c.join(0, []int64{-1, 4}, c.vector(n), c.vector(c.Op("Sub", c.dim(r,
			2), 1))))
		shifted = c.Op("Slice", shifted, []int64{0}, c.vector(c.dim(k, 2)), []int64{3})
		s := c.Op("Mul", c.Op("Add", c.scores(c.Op("Add", q, c.tensor(1, 4, 1, 8)), k), shifted), 0.35355338)
		i, j := c.positions(k)
		s = c.Op("Sub", s, c.Op("Mul", c.number(c.Op("Greater", j, i)), 1e30))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1"},
	{"DeBERTa", func(c *code) {
		q, k, v := c.qkv()
		rel := c.heads(c.project(c.Input("rel", onnx.Float, 1, 64, 32), 32), 4)
		i, j := c.positions(k)
		at := c.Op("Clip", c.Op("Add", c.Op("Sub", i, j), 32), 0, 63)
		full := c.Op("Expand", c.at(at, 0, 1), c.join(0, c.vector(c.dim(q, 0)), []int64{4}, c.Op("Shape", at)))
		c2p := c.Op("GatherElements", c.scores(q, rel), full, onnx.IntAttr("axis", -1))
		s := c.Op("Add", c.Op("Div", c.scores(q, k), 4.898979), c.Op("Div", c2p, 4.898979))
		hidden := c.Op("Not", c.is(c.at(c.padding(), 1, 2)))
		p := c.softmax(c.Op("Where", hidden, lowestNumber, s))
		c.out(c.Op("MatMul", c.Op("Where", hidden, 0.0, p), v))
	}, ""},
	{"nanoGPT", func(c *code) {
		q, k, v := c.qkv()
		n := c.vector(c.dim(k, 2))
		b := c.number(c.Op("Slice", c.Op("Slice", c.buffer(256), []int64{0}, n, []int64{2}), []int64{0}, n, []int64{3}))
		s := c.Op("Where", c.Op("Equal", b, 0.0), minusInfinity, c.Op("Mul", c.scores(q, k), 0.35355338))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1"},
	{"Whisper, decoder", func(c *code) {
		q, k, v := c.qkv()
		list := make([]float64, 448*448)
		for i := range 448 {
			for j := i + 1; j < 448; j++ {
				list[i*448+j] = minusInfinity
			}
		}
		n := c.vector(c.dim(k, 2))
		m := c.Op("Slice", c.Op("Slice", c.floats([]int{448, 448}, list), []int64{0}, n, []int64{0}), []int64{0}, n,
			[]int64{1})
		s := c.Op("Add", c.Op("MatMul", c.Op("Mul", q, 0.59460354), c.Op("Mul", c.turn(k, 0, 1, 3, 2), 0.59460354)), m)
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1"},
	{"Whisper, encoder", func(c *code) {
		q, k, v := c.qkv()
		c.out(c.Op("MatMul", c.softmax(c.scores(c.Op("Mul", q, 0.35355338), k)), v))
	}, ""},
	{"OPT", func(c *code) {
		q, k, v := c.qkv()
		s := c.unfolded(c.Op("MatMul", c.folded(c.Op("Mul", q, 0.35355338)), c.turn(c.folded(k), 0, 2, 1)))
		i, j := c.positions(k)
		padded := c.is(c.at(c.padding(), 1, 2))
		added := c.Op("Where", c.Op("And", c.Op("LessOrEqual", j, i), padded), 0.0, lowestNumber)
		s = c.refolded(c.Op("Max", c.Op("Add", s, added), lowestNumber))
		y := c.Op("MatMul", c.softmax(s), c.folded(v))
		c.out(c.Op("Reshape", y, c.join(0, []int64{-1, 4}, c.vector(c.dim(y, 1)), []int64{8})))
	}, "causal=1"},
	{"torch.nn.MultiheadAttention, two masks", func(c *code) {
		q, k, v := c.qkv()
		given := c.Input("attn_mask", onnx.Float, "sequence", "sequence")
		pad := c.Input("key_padding_mask", onnx.Bool, "batch", "sequence")
		added := c.Op("Where", pad, minusInfinity, 0.0)
		wide := c.Op("Expand", c.at(added, 1, 2), []int64{1, 4, 1, 1})
		both := c.Op("Add", c.at(given, 0), c.Op("Reshape", wide, c.join(0, []int64{-1, 1}, c.vector(c.dim(k, 2)))))
		s := c.Op("MatMul", c.Op("Mul", c.folded(q), 0.35355338), c.turn(c.folded(k), 0, 2, 1))
		y := c.Op("MatMul", c.softmax(c.Op("Add", s, both)), c.folded(v))
		c.out(c.Op("Reshape", y, c.join(0, []int64{-1, 4}, c.vector(c.dim(y, 1)), []int64{8})))
	}, ""},
	{"ESPnet", func(c *code) {
		q, k, v := c.qkv()
		given := c.Input("mask", onnx.Bool, "batch", 1, "sequence")
		hidden := c.Op("Not", c.at(given, 1))
		s := c.Op("Where", hidden, lowestNumber, c.Op("Div", c.scores(q, k), 2.828427))
		p := c.Op("Where", hidden, 0.0, c.softmax(s))
		c.out(c.Op("MatMul", p, v))
	}, "zero"},
	{"Swin", func(c *code) {
		x := c.Input("windows", onnx.Float, "count", 16, 32)
		rows := func(v *onnx.Value) *onnx.Value { return c.turn(c.Op("Reshape", v, []int64{-1, 16, 4, 8}), 0, 2, 1, 3) }
		q, k, v := rows(c.project(x, 32)), rows(c.project(x, 32)), rows(c.project(x, 32))
		index := make([]int64, 256)
		for i := range index {
			index[i] = int64(i * 7 % 49)
		}
		bias := c.Op("Reshape", c.Op("Gather", c.tensor(49, 4), index), []int64{16, 16, 4})
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), c.at(c.turn(bias, 2, 0, 1), 0))
		y := c.Op("MatMul", c.softmax(s), v)
		c.Output(c.Op("Reshape", c.turn(y, 0, 2, 1, 3), []int64{-1, 16, 32}))
	}, ""},
	{"Phi, -10000 added", func(c *code) {
		rows := func(v *onnx.Value) *onnx.Value { return c.Op("Reshape", v, []int64{0, 0, 4, 8}) }
		q, k, v := rows(c.project(c.x, 32)), rows(c.project(c.x, 32)), rows(c.project(c.x, 32))
		s := c.Op("Einsum", q, c.Op("Mul", k, 0.35355338), onnx.StringAttr("equation", "bthd,bshd->bhts"))
		n := c.vector(c.dim(c.x, 1))
		causal := c.Op("Trilu", c.Op("Expand", -10000.0, c.join(0, n, n)), 1, onnx.IntAttr("upper", 1))
		p := c.softmax(c.Op("Add", s, causal))
		y := c.Op("Einsum", p, v, onnx.StringAttr("equation", "bhts,bshd->bthd"))
		c.Output(c.Op("Reshape", y, []int64{0, 0, 32}))
	}, ""},
	{"Baichuan, alibi and the mask in one", func(c *code) {
		q, k, v := c.qkv()
		n := c.vector(c.dim(k, 2))
		list := make([]float64, 4*64*64)
		for h := range 4 {
			for i := range 64 {
				for j := range 64 {
					list[(h*64+i)*64+j] = float64(j) / math.Pow(4, float64(h+1))
					if j > i {
						list[(h*64+i)*64+j] = minusInfinity
					}
				}
			}
		}
		m := c.Op("Slice", c.Op("Slice", c.floats([]int{4, 64, 64}, list), []int64{0}, n, []int64{1}), []int64{0}, n,
			[]int64{2})
		s := c.Op("Add", c.Op("Mul", c.scores(q, k), 0.35355338), m)
		c.out(c.Op("MatMul", c.softmax(c.Op("Max", s, lowestNumber)), v))
	}, ""},
	{"Qwen, queries by the logarithm of their position", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		table := make([]float64, 1024)
		for i := range table {
			table[i] = math.Max(1, math.Log(float64(i+1))/math.Log(256))
		}
		all := c.dim(k, 2)
		logn := c.Op("Slice", c.floats([]int{1, 1, 1024, 1}, table), c.vector(c.Op("Sub", all, c.dim(q, 2))),
			c.vector(all), []int64{2})
		q = c.Op("Mul", q, c.Op("Expand", logn, c.Op("Shape", q)))
		i, j := c.positions(k)
		s := c.Op("Where", c.Op("LessOrEqual", j, i), c.Op("Mul", c.scores(q, k), 0.35355338), lowestNumber)
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "causal=1"},
	{"scores by the logarithm of their number", func(c *code) {
		q, k, v := c.qkv()
		k, v = c.cached(k, v, 4)
		logn := c.Op("Max", c.Op("Div", c.Op("Log", c.number(c.dim(k, 2))), 7.624619), 1.0)
		i, j := c.positions(k)
		s := c.Op("Mul", c.Op("Mul", c.scores(q, k), 0.35355338), logn)
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", c.Op("LessOrEqual", j, i), s, lowestNumber)), v))
	}, "causal=1"},
	{"Grok, capped before the mask", func(c *code) {
		q, k, v := c.qkv()
		i, j := c.positions(k)
		s := c.Op("Mul", c.Op("Tanh", c.Op("Div", c.Op("Mul", c.scores(q, k), 0.08838835), 30.0)), 30.0)
		c.out(c.Op("MatMul", c.softmax(c.Op("Where", c.Op("LessOrEqual", j, i), s, -1e30)), v))
	}, "causal=1, softcap=30"},
	{"groups of queries as a dimension", func(c *code) {
		q := c.Op("Reshape", c.project(c.x, 32), []int64{0, 0, 2, 2, 8})
		k, v := c.Op("Reshape", c.project(c.x, 16), []int64{0, 0, 2, 8}), c.Op("Reshape", c.project(c.x, 16),
			[]int64{0, 0, 2, 8})
		s := c.Op("Mul", c.Op("Einsum", q, k, onnx.StringAttr("equation", "bqgrd,bkgd->bgrqk")), 0.35355338)
		j := c.Op("Range", 0, c.dim(c.x, 1), 1)
		s = c.Op("Where", c.Op("LessOrEqual", c.at(j, 0), c.at(j, 1)), s, lowestNumber)
		y := c.Op("Einsum", c.softmax(s), v, onnx.StringAttr("equation", "bgrqk,bkgd->bqgrd"))
		c.Output(c.Op("Reshape", y, []int64{0, 0, 32}))
	}, "causal=1"},
	{"groups of queries behind them", func(c *code) {
		q := c.Op("Reshape", c.project(c.x, 32), []int64{0, 0, 2, 2, 8})
		k, v := c.Op("Reshape", c.project(c.x, 16), []int64{0, 0, 2, 8}), c.Op("Reshape", c.project(c.x, 16),
			[]int64{0, 0, 2, 8})
		s := c.Op("Mul", c.Op("Einsum", q, k, onnx.StringAttr("equation", "bqgrd,bkgd->bqgrk")), 0.35355338)
		j := c.Op("Range", 0, c.dim(c.x, 1), 1)
		see := c.at(c.Op("LessOrEqual", c.at(j, 0), c.at(j, 1)), 1, 2)
		s = c.Op("Where", see, s, lowestNumber)
		y := c.Op("Einsum", c.softmax(s), v, onnx.StringAttr("equation", "bqgrk,bkgd->bqgrd"))
		c.Output(c.Op("Reshape", y, []int64{0, 0, 32}))
	}, "causal=1"},
	{"groups of queries by a product of five dimensions", func(c *code) {
		q := c.turn(c.Op("Reshape", c.project(c.x, 32), []int64{0, 0, 2, 2, 8}), 0, 2, 3, 1, 4)
		five := func(v *onnx.Value) *onnx.Value {
			return c.at(c.turn(c.Op("Reshape", v, []int64{0, 0, 2, 8}), 0, 2, 1, 3), 2)
		}
		k, v := five(c.project(c.x, 16)), five(c.project(c.x, 16))
		s := c.Op("Mul", c.Op("MatMul", q, c.turn(k, 0, 1, 2, 4, 3)), 0.35355338)
		j := c.Op("Range", 0, c.dim(c.x, 1), 1)
		s = c.Op("Where", c.Op("LessOrEqual", c.at(j, 0), c.at(j, 1)), s, lowestNumber)
		y := c.turn(c.Op("MatMul", c.softmax(s), v), 0, 3, 1, 2, 4)
		c.Output(c.Op("Reshape", y, []int64{0, 0, 32}))
	}, "causal=1"},
	{"softmax of one more", func(c *code) {
		q, k, v := c.qkv()
		e := c.Op("Exp", c.Op("Mul", c.scores(q, k), 0.35355338))
		p := c.Op("Div", e, c.Op("Add", c.Op("ReduceSum", e, []int64{-1}), 1.0))
		c.out(c.Op("MatMul", p, v))
	}, ""},
	{"x-transformers, memory of keys", func(c *code) {
		q, k, v := c.qkv()
		behind := func(v *onnx.Value) *onnx.Value {
			shape := c.join(0, c.vector(c.dim(c.x, 0)), []int64{1, 1, 1})
			return c.join(2, c.Op("Expand", c.tensor(1, 4, 3, 8), shape), v)
		}
		k, v = behind(k), behind(v)
		c.out(c.Op("MatMul", c.softmax(c.Op("Mul", c.scores(q, k), 0.35355338)), v))
	}, ""},
	{"Talking Heads", func(c *code) {
		q, k, v := c.qkv()
		s := c.Op("Einsum", c.scores(q, k), c.tensor(4, 4), onnx.StringAttr("equation", "bhij,hg->bgij"))
		c.out(c.Op("MatMul", c.softmax(s), v))
	}, "nothing"},
	{"Longformer", func(c *code) { // keys of two chunks for each query
		q, k, v := c.qkv()
		chunks := func(v *onnx.Value) *onnx.Value {
			return c.Op("Reshape", v, c.join(0, c.vector(c.dim(v, 0)), []int64{4, -1, 8, 8}))
		}
		s := c.Op("MatMul", chunks(q), c.turn(chunks(k), 0, 1, 2, 4, 3))
		y := c.Op("MatMul", c.softmax(s), chunks(v))
		c.out(c.Op("Reshape", y, c.join(0, c.vector(c.dim(q, 0)), []int64{4, -1, 8})))
	}, "missed:"},
	{"keys from a branch", func(c *code) {
		q := c.heads(c.project(c.x, 32), 4)
		other := c.Input("encoder", onnx.Float, "batch", "encoded", 32)
		pastK := c.Input("past_key", onnx.Float, "batch", 4, "encoded", 8)
		pastV := c.Input("past_value", onnx.Float, "batch", 4, "encoded", 8)
		use := c.Input("use_cache", onnx.Bool, 1)
		k, v := c.heads(c.project(other, 32), 4), c.heads(c.project(other, 32), 4)
		branch := func(name string, list ...*onnx.Value) *onnx.Attribute {
			in := &onnxtest.Builder{Model: c.Model, Graph: c.Graph.NewSubgraph(name)}
			for _, v := range list {
				in.Output(in.Op("Identity", v))
			}
			return onnx.GraphAttr(name, in.Graph)
		}
		both := c.Ops(2, "If", use, branch("then_branch", pastK, pastV), branch("else_branch", k, v))
		for _, v := range both {
			v.SetType(onnxtest.Type(onnx.Float, "batch", 4, "encoded", 8))
		}
		s := c.Op("Mul", c.scores(q, both[0]), 0.35355338)
		c.out(c.Op("MatMul", c.softmax(s), both[1]))
	}, ""},
}
