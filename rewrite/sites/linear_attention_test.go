package sites_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestOneChunk patches gated linear attention in an export that pads to a chunk of 64 tokens and drops all other
// chunks. It is repaired, since the nodes are right or fail for every number of tokens.
func TestOneChunk(t *testing.T) {
	for name, c := range map[string]struct {
		size    int64 // of a chunk; chunks of 16 become sequences
		rows    func(b builder, all, n value) value
		repairs string
	}{
		"chunks as sequences": {16, func(b builder, all, n value) value {
			return b.Op("Slice", all, b.Ints(0), n, b.Ints(2))
		}, "the nodes fail for 63, 64, 65 or 130 tokens (they return 64 of 63 rows), and not for 1; "},
		"rows of the first chunk": {64, func(b builder, all, n value) value {
			return b.Op("Slice", all, b.Ints(0), n, b.Ints(2))
		}, "the nodes fail for 65 or 130 tokens (they return 64 of 65 rows), and not for 1, 63 or 64; "},
		"rows of zeros": {64, func(b builder, all, n value) value {
			return b.Op("Slice", b.Op("Pad", all, b.Ints(0, 0, 0, 0, 0, 0, 100, 0)), b.Ints(0), n, b.Ints(2))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(18)
			oneChunk(b, c.size, c.rows, func(_ string, v value) value { return v })
			r := applytest.Apply(t, b.Model)
			found := ""
			for _, s := range r.Sites {
				if s.Op == "LinearAttention" && s.Status == rewrite.Fused {
					found = s.Check.Repairs
				}
			}
			if !strings.HasPrefix(found, c.repairs) || (found == "") != (c.repairs == "") {
				t.Errorf("repaired %q, want %q: %+v", found, c.repairs, r.Sites)
			}
		})
	}
}

// TestThreeBlocks patches linear attention in an export of three blocks of 6 tokens, and compares the rows of the whole
// model. Blocks that each begin without a state are another computation, but not for the tokens of the first one. Some
// exports run only if the last block has tokens: then the op replaces all blocks.
func TestThreeBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		carried, full bool
		repairs       string
	}{
		"a state": {true, false, "the nodes fail for 63, 64, 65 or 130 tokens (they return 18 of 63 rows), and " +
			"not for 1 or 18; "},
		"no states":                  {false, false, ""},
		"full blocks":                {true, true, "the nodes fail for 1, 9, 11, 19, 63, 64, 65 or 130 tokens ("},
		"full blocks without states": {false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plain, patched := onnxtest.New(18), onnxtest.New(18)
			threeBlocks(plain, c.carried, c.full && !c.carried, "")
			threeBlocks(patched, c.carried, c.full, "")
			repairs := ""
			for _, s := range applytest.Apply(t, patched.Model).Sites {
				if s.Op == "LinearAttention" && s.Status == rewrite.Fused {
					repairs += s.Check.Repairs
				}
			}
			if !strings.HasPrefix(repairs, c.repairs) || (repairs == "") != (c.repairs == "") {
				t.Errorf("repaired %q, want %q", repairs, c.repairs)
			}
			for _, tokens := range []int{1, 5, 6, 7, 13, 18} {
				if c.full && !c.carried && tokens < 13 {
					continue // the nodes fail
				}
				in, _ := blocksOf(tokens, "")
				out := plain.Model.Graph.Outputs[0].Name
				want, got := rewritetest.Run(t, plain.Model, in)[out], rewritetest.Run(t, patched.Model, in)[out]
				far, scale := prove.Distance(want.F, got.F)
				if !slices.Equal(want.Shape, got.Shape) || far > 1e-6*scale {
					t.Errorf("%d tokens: %v differs by %g from %v", tokens, got.Shape, far, want.Shape)
				}
			}
		})
	}
}

// TestRoundedTable patches linear attention whose decays are powers in a table of a half type. Without rounding the
// nodes agree with the op as closely as in float32, and a table of other numbers is refused.
func TestRoundedTable(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		for _, off := range []float64{0, 0.05} {
			b := onnxtest.New(18)
			in := func(name string, width int) value { return b.Input(name, typ, "b", 2, 5, width) }
			factors := make([]float64, 2*5*5)
			for i := range factors {
				if rate, d := 0.3/float64(1+i/25), i%25/5-i%5; d >= 0 {
					factors[i] = math.Exp(-rate*float64(d) - off*float64(d*d))
				}
			}
			table, err := reference.NewFloats(typ, []int{2, 5, 5}, factors).ToONNX("table")
			if err != nil {
				t.Fatal(err)
			}
			turned := b.Op("Transpose", in("k", 4), onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
			scores := b.Op("Mul", b.Op("MatMul", in("q", 4), turned), b.Constant(table))
			b.Output(b.Op("MatMul", scores, in("v", 5)))
			fused := false
			for _, s := range applytest.Apply(t, b.Model).Sites {
				fused = fused || s.Op == "LinearAttention" && s.Status == rewrite.Fused && s.Check.Structural < 1e-6
			}
			if fused != (off == 0) {
				t.Errorf("%v, %g: fused %v", typ, off, fused)
			}
		}
	}
}

// TestRoundedUpdates patches a step of Mamba-2 whose state is in float32 and whose update is computed in float16, and
// refuses updates with another factor.
func TestRoundedUpdates(t *testing.T) {
	const heads, val, key = 2, 3, 4
	for factor, want := range map[float32]bool{1: true, 1.0625: false} {
		b := onnxtest.New(18)
		half := func(name string, dims ...any) value {
			return b.Input(name, onnx.Float16, append([]any{"b"}, dims...)...)
		}
		single := func(v value) value { return b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float))) }
		x, dt := half("x", heads, val, 1), b.Op("Expand", half("dt", heads, 1, 1), b.Ints(1, heads, val, 1))
		gate := b.Op("Softplus", dt)
		rates := make([]float32, heads*val*key)
		for i := range rates {
			rates[i] = -1 - float32(i/val/key)
		}
		decay := b.Op("Exp", b.Op("Mul", single(gate), b.Floats([]int64{heads, val, key}, rates...)))
		update := b.Op("Mul", b.Op("Mul", gate, half("k", heads, 1, key)), x)
		if factor != 1 {
			update = b.Op("Mul", update, b.Op("Cast", b.Floats(nil, factor), onnx.IntAttr("to", int64(onnx.Float16))))
		}
		state := b.Op("Mul", b.Input("state", onnx.Float, "b", heads, val, key), decay)
		next := b.Op("Add", state, single(update))
		b.Output(next)
		b.Output(b.Op("ReduceSum", b.Op("Mul", next, single(half("q", heads, 1, key))), b.Ints(3),
			onnx.IntAttr("keepdims", 0)))
		fused := false
		for _, s := range applytest.Apply(t, b.Model).Sites {
			fused = fused || s.Op == "LinearAttention" && s.Status == rewrite.Fused && s.Check.Structural < 1e-6
		}
		if fused != want {
			t.Errorf("factor %g: fused %v", factor, fused)
		}
	}
}

// TestBoundedOperands demands that nodes which bound an operand are not taken into the op, which does not bound it.
func TestBoundedOperands(t *testing.T) {
	for _, which := range []string{"q", "k", "v", "gate"} {
		b := onnxtest.New(18)
		oneChunk(b, 64, func(b builder, all, n value) value {
			return b.Op("Slice", all, b.Ints(0), n, b.Ints(2))
		}, func(name string, v value) value {
			if name != which {
				return v
			}
			most := map[string]float32{"k": 3, "q": 50, "v": 50}[name]
			return b.Op("Clip", v, b.Floats(nil, -50), b.Floats(nil, most))
		})
		for _, s := range applytest.Apply(t, b.Model).Sites {
			if s.Op == "LinearAttention" && s.Status == rewrite.Fused {
				t.Errorf("fused, although %s is bounded", which)
			}
		}
	}
}

// TestGatedDeltaNet fuses onnxruntime's op with its activations, with packed tokens, and with tokens of all sequences.
func TestGatedDeltaNet(t *testing.T) {
	text := onnx.StringAttr
	for name, c := range map[string]struct {
		typ     onnx.DataType
		outer   []any
		packed  bool
		channel bool // a decay for each channel of the keys
		bias    []any
		attrs   []any
	}{
		"float32": {typ: onnx.Float, outer: []any{"b", "n"}},
		"softplus": {typ: onnx.Float16, outer: []any{"b", "n"}, bias: []any{4}, attrs: []any{
			text("gate_activation", "softplus"), text("beta_activation", "sigmoid")}},
		"Kimi's": {typ: onnx.Float, outer: []any{"b", "n"}, channel: true, bias: []any{4, 8}, attrs: []any{
			text("gate_activation", "kda"), onnx.FloatAttr("gate_lower_bound", -2)}},
		"Kimi's flat bias": {typ: onnx.BFloat16, outer: []any{"b", "n"}, channel: true, bias: []any{32}, attrs: []any{
			text("gate_activation", "sigmoid")}},
		"packed":           {typ: onnx.Float, outer: []any{"b", "n"}, packed: true},
		"packed sequences": {typ: onnx.Float16, outer: []any{1, "n"}, packed: true, channel: true},
		"tokens in one row": {typ: onnx.Float, outer: []any{1, "n"}, bias: []any{4}, attrs: []any{
			text("gate_activation", "qwen")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(20)
			in := func(name string, t onnx.DataType, dims ...any) any {
				outer := c.outer
				if outer[0] == 1 { // the state alone has the axis of the sequences
					outer = outer[1:]
				}
				return b.Input(name, t, append(slices.Clone(outer), dims...)...)
			}
			args := []any{in("q", c.typ, 2, 8), in("k", c.typ, 2, 8), in("v", c.typ, 4, 5)}
			if c.packed {
				args = []any{in("qkv", c.typ, 2*2*8+4*5), nil, nil}
			}
			decay := []any{4}
			if c.channel {
				decay = []any{4, 8}
			}
			args = append(args, nil, in("decay", onnx.Float, decay...), in("beta", onnx.Float, 4),
				b.Input("past", onnx.Float, c.outer[0], 4, 5, 8))
			if c.bias != nil {
				args = append(args, b.Input("a_log", onnx.Float, 4), b.Input("dt_bias", onnx.Float, c.bias...))
			}
			args = append(args, onnx.IntAttr("qk_l2_norm", 1))
			for _, v := range b.Ops(2, "com.microsoft:GatedDeltaNet", append(args, c.attrs...)...) {
				b.Output(v)
			}
			r := applytest.Apply(t, b.Model)
			if len(r.Sites) != 1 || r.Sites[0].Status != rewrite.Fused {
				t.Errorf("not fused: %+v", r.Sites)
			}
		})
	}
}

// threeBlocks adds linear attention with a constant decay of 18 tokens at most. Each block of 6 begins with the state
// that the one before leaves, or with zeros. full means that only the last one may have fewer tokens. also names an
// output besides the rows.
func threeBlocks(b builder, carried, full bool, also string) {
	q, k := b.Input("q", onnx.Float, "b", 2, "n", 4), b.Input("k", onnx.Float, "b", 2, "n", 4)
	v := b.Input("v", onnx.Float, "b", 2, "n", 5)
	also, second := strings.CutPrefix(also, "second ")
	if second {
		v = b.Op("Add", v, attended(b, q, k, v, carried, full, ""))
	}
	b.Output(attended(b, q, k, v, carried, full, also))
}

// attended adds one layer and returns its rows.
func attended(b builder, q, k, v value, carried, full bool, also string) value {
	const size, rate = 6, 0.1
	batch := b.Op("Slice", b.Op("Shape", v), b.Ints(0), b.Ints(1))
	zeros := b.Op("Expand", b.Floats([]int64{}, 0), b.Op("Concat", batch, b.Ints(2, 4, 5), onnx.IntAttr("axis", 0)))
	perm := []int64{0, 1, 3, 2}
	n := b.Op("Slice", b.Op("Shape", v), b.Ints(2), b.Ints(3))
	tokens, all := int64(2), []any{}
	if also == "folded" { // sequences and heads are one axis
		perm, tokens = []int64{0, 2, 1}, 1
		fold := func(v value, width int64) value {
			return b.Op("Reshape", v, b.Op("Concat", b.Ints(-1), n, b.Ints(width), onnx.IntAttr("axis", 0)))
		}
		q, k, v, zeros = fold(q, 4), fold(k, 4), fold(v, 5), b.Op("Reshape", zeros, b.Ints(-1, 4, 5))
	}
	turned := func(v value) value { return b.Op("Transpose", v, onnx.IntsAttr("perm", perm)) }
	var within, since, until []float32
	for i := range size {
		since = append(since, float32(math.Exp(-rate*float64(i+1))))
		until = append(until, float32(math.Exp(-rate*float64(size-1-i))))
		for j := range size {
			factor := 0.0
			if j <= i {
				factor = math.Exp(-rate * float64(i-j))
			}
			within = append(within, float32(factor))
		}
	}
	state, sum := zeros, zeros
	var lastKeys value
	for from := int64(0); from < 3*size; from += size {
		block := func(v value) value { return b.Op("Slice", v, b.Ints(from), b.Ints(from+size), b.Ints(tokens)) }
		rest := b.Op("Sub", n, b.Ints(from))
		if also != "rest" {
			rest = b.Op("Max", rest, b.Ints(0))
		}
		rows := b.Op("Min", rest, b.Ints(size))
		if full && from < 2*size {
			rows = b.Ints(size)
		} else if full {
			rows = b.Op("Sub", n, b.Ints(from))
		}
		first := func(v value, axis int64) value { return b.Op("Slice", v, b.Ints(0), rows, b.Ints(axis)) }
		factors := first(first(b.Floats([]int64{size, size}, within...), 0), 1)
		scores := b.Op("Mul", b.Op("MatMul", block(q), turned(block(k))), factors)
		before := b.Op("Mul", block(q), first(b.Floats([]int64{size, 1}, since...), 0))
		all = append(all, b.Op("Add", b.Op("MatMul", scores, block(v)), b.Op("MatMul", before, state)))
		until := b.Op("Slice", b.Floats([]int64{size, 1}, until...), b.Op("Sub", b.Ints(size), rows), b.Ints(size),
			b.Ints(0))
		if also == "sum" {
			sum = b.Op("Add", sum, b.Op("MatMul", turned(block(k)), block(v)))
		}
		if last := from == 2*size; carried && !last || also == "state" || also == "folded" || also == "rest" {
			var factor any = math.Exp(-rate * size)
			if also != "" {
				factor = b.Op("Exp", b.Op("Mul", b.Op("Cast", rows, onnx.IntAttr("to", int64(onnx.Float))), -rate))
			}
			state = b.Op("Add", b.Op("Mul", state, factor),
				b.Op("MatMul", turned(b.Op("Mul", block(k), until)), block(v)))
		} else if last && also == "state before the last block" {
			b.Output(state)
		} else if last && also == "keys of a block" {
			lastKeys = b.Op("ReduceSum", block(k), b.Ints(tokens))
		}
	}
	y := b.Op("Concat", append(all, onnx.IntAttr("axis", tokens))...)
	if also == "folded" {
		sizes := b.Op("Concat", b.Ints(-1, 2), b.Op("Min", n, b.Ints(3*size)), b.Ints(5), onnx.IntAttr("axis", 0))
		y = b.Op("Reshape", y, sizes)
	}
	switch also {
	case "state", "folded", "rest":
		b.Output(state)
	case "sum":
		b.Output(sum)
	case "keys of a block":
		b.Output(lastKeys)
	case "keys of fixed places":
		b.Output(b.Op("Slice", k, b.Ints(15), b.Ints(18), b.Ints(tokens)))
	case "last keys":
		b.Output(b.Op("Slice", k, b.Ints(-1), b.Ints(math.MaxInt64), b.Ints(tokens)))
	case "a counter":
		b.Output(b.Op("Add", b.Ints(17), b.Ints(1)))
	}
	return y
}

// oneChunk adds gated linear attention of at most size tokens. rows takes n rows of the chunk; bound changes an
// operand.
func oneChunk(b builder, size int64, rows func(b builder, all, n value) value,
	bound func(name string, v value) value) {
	v := b.Input("v", onnx.Float, "b", 2, "n", 5)
	n := b.Op("Slice", b.Op("Shape", v), b.Ints(2), b.Ints(3))
	before := []int64{0, 0, -1}
	if size < 64 {
		before = []int64{-1, 2}
	}
	chunks := inChunks(b, n, size, before...)
	chunk := func(v value, width int64) value {
		c := bound(v.Name, chunks(v, width))
		if size == 64 {
			c = b.Op("Gather", c, 0, onnx.IntAttr("axis", 2))
		}
		return c
	}
	in := func(name string, width int) value {
		return chunk(b.Input(name, onnx.Float, "b", 2, "n", width), int64(width))
	}
	_, scores := scoresOf(b, size, in("q", 4), in("k", 4), in("gate", 1), 0, 1, 3, 2)
	b.Output(rows(b, b.Op("MatMul", scores, chunk(v, 5)), n))
}
