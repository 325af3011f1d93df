package fused

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// quantized describes weights in blocks: the inputs of a site from index first on.
type quantized struct {
	*body
	site  Site
	first int // the index of codes; scale and the others follow

	code           string
	zero, block    int64
	n, k           int64
	minus, twofold bool // whether minus and super_scale are given
}

func linearWeights(b *body, s Site) *quantized { return quantizedWeights(b, s, LinearCodes) }

// quantizedWeights reads the site. b may be nil if no values are needed.
func quantizedWeights(b *body, s Site, first int) *quantized {
	attrs := Read[Embedding](s.Attributes)
	return &quantized{body: b, site: s, first: first, code: attrs.Code, zero: attrs.Zero, block: attrs.Block,
		n: attrs.N, k: attrs.K, minus: s.has(first + 2), twofold: s.has(first + 3)}
}

func (w *quantized) overload() string {
	return w.code + named(w.site, w.first+2, "_minus") + named(w.site, w.first+3, "_super")
}

// center returns the code in the middle of the range.
func (w *quantized) center() float32 {
	switch w.code {
	case codeInt4:
		return 8
	case codeInt8:
		return 128
	}
	return 0
}

// isFloat reports whether codes are floating point.
func (w *quantized) isFloat() bool { return w.code == codeE2M1 || w.code == codeE4M3 }

// takesByte reports whether a code takes a byte.
func (w *quantized) takesByte() bool { return w.code == codeInt8 || w.code == codeE4M3 }

// check errs unless the types, attributes and inputs of the weights fit together.
func (w *quantized) check(op string) error {
	if w.twofold && w.k%superBlock != 0 {
		return fmt.Errorf("mojo.%s attribute k is %d; it must be a multiple of %d with super_scale", op, w.k,
			superBlock)
	}
	switch {
	case w.isFloat() && (w.minus || w.twofold):
		return fmt.Errorf("mojo.%s takes neither minus nor super_scale with code %s", op, w.code)
	case w.site.has(w.first+4) != (w.minus && w.twofold):
		return fmt.Errorf("mojo.%s takes super_minus if and only if it has minus and super_scale", op)
	}
	want := "float32 or float16"
	scale := w.site.Types[w.first+1]
	ok := scale == f32 || scale == f16
	if w.twofold {
		want, ok = "int8 with super_scale", scale == onnx.Int8
	} else if w.code == codeE2M1 {
		want, ok = "uint8 with code e2m1", scale == onnx.Uint8
	} else if w.code == codeE4M3 {
		want, ok = "float32 with code e4m3", scale == f32
	}
	if !ok {
		return fmt.Errorf("mojo.%s takes a scale of %s, not of %s", op, want, scale)
	}
	return nil
}

// dims returns the shapes of the inputs for the weights; minus and twofold report which of them are given.
func (w *quantized) dims(minus, twofold bool) [][]int64 {
	panels, groups, rows := (w.n+panelRows-1)/panelRows, int64(4), int64(panelRows)
	if w.takesByte() {
		groups = 8
	}
	if w.code == codeE4M3 {
		rows = 1
	}
	dims := [][]int64{{panels, w.k / codeBlock, groups, 4 * panelRows}, {panels, w.k / w.block, rows}, nil, nil, nil}
	if minus {
		dims[2] = dims[1]
	}
	if twofold {
		dims[3] = []int64{panels, w.k / superBlock, panelRows}
	}
	if minus && twofold {
		dims[4] = dims[3]
	}
	return dims
}

// flat reshapes v to rows of width columns.
func (w *quantized) flat(name string, v, width *onnx.Value) *onnx.Value {
	return w.call(name, "Reshape", v, w.concat(name+"_shape", w.integers("any", -1), width))
}

// blocks returns the number of blocks of a row, as a vector of one.
func (w *quantized) blocks() *onnx.Value {
	return w.call("blocks", "Div", w.intAttribute("k"), w.intAttribute("block"))
}

// codes returns the codes, or the values of floating-point codes, as float32 in rows of one block.
func (w *quantized) codes() *onnx.Value {
	c := w.float32("codes_32", w.in[w.first])
	perm := []int64{0, 4, 1, 2, 3, 5} // panel, block, half, group, row, place -> panel, row, block, half, group, place
	if w.takesByte() {
		c = w.call("by_row", "Reshape", c, w.integers("by_row_shape", 0, 0, 2, 4, panelRows, 4))
	} else {
		c = w.call("by_row", "Reshape", c, w.integers("by_row_shape", 0, 0, 4, panelRows, 4))
		high := w.call("high", "Floor", w.call("shifted", "Mul", c, w.number("sixteenth", 1.0/16)))
		low := w.call("low", "Sub", c, w.call("above", "Mul", high, w.number("sixteen", 16)))
		half := w.integers("half", 2)
		c = w.op("halves", "Concat", []*onnx.Value{w.call("low_half", "Unsqueeze", low, half),
			w.call("high_half", "Unsqueeze", high, half)}, onnx.IntAttr("axis", 2))
	}
	c = w.op("in_order", "Transpose", []*onnx.Value{c}, onnx.IntsAttr("perm", perm))
	c = w.flat("code_blocks", c, w.intAttribute("block"))
	if w.code == codeE2M1 {
		values := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
		for _, v := range values[:8:8] {
			values = append(values, -v)
		}
		return w.lookup("code_values", values, c)
	}
	if w.code == codeE4M3 {
		return w.lookup("code_values", blocks.Values(onnx.Float8E4M3FN)[:], c)
	}
	return c
}

// lookup returns the elements of a table at the indices v.
func (w *quantized) lookup(name string, table []float32, v *onnx.Value) *onnx.Value {
	at := w.op(name+"_at", "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Int64)))
	values := onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{int64(len(table))}, table))
	return w.op(name, "Gather", []*onnx.Value{w.constant(name+"_table", values), at}, onnx.IntAttr("axis", 0))
}

// ofBlock returns scale or minus (input first + i) times the factor of its super block: a float32 column in the order
// of codes.
func (w *quantized) ofBlock(i int) *onnx.Value {
	name := quantizedParams[i].Name
	rows := func(name string, v *onnx.Value) *onnx.Value {
		return w.op(name+"_rows", "Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1}))
	}
	v := rows(name, w.float32(name+"_32", w.in[w.first+i]))
	one := w.integers("one", 1)
	if w.code == codeE2M1 {
		return w.flat(name+"_column", w.lookup("exponents", e8m0(), v), one)
	}
	if w.code == codeE4M3 { // one scale for all rows of a panel
		v = w.call(name+"_of_row", "Expand", v, w.integers("panel_rows", 1, panelRows, 1))
	}
	if w.twofold {
		super := quantizedParams[i+2].Name
		s := w.flat(super+"_column", rows(super, w.float32(super+"_32", w.in[w.first+i+2])), one)
		of := w.call("of_super", "Div", w.integers("super_block", superBlock), w.intAttribute("block"))
		v = w.call(name+"_product", "Mul", s, w.flat(name+"_of_super", v, of))
	}
	return w.flat(name+"_column", v, one)
}

// e8m0 returns the values of 8-bit exponents.
func e8m0() []float32 {
	table := make([]float32, 256)
	for i := range table {
		table[i] = float32(math.Ldexp(1, i-127))
	}
	table[255] = float32(math.NaN())
	return table
}

// scaled returns d * (code - zero), in rows of one block.
func (w *quantized) scaled(name string, zero *onnx.Value) *onnx.Value {
	codes := w.codes()
	if !w.isFloat() {
		codes = w.call(name+"_codes", "Sub", codes, zero)
	}
	return w.call(name, "Mul", w.ofBlock(1), codes)
}

func (w *quantized) zeroCode() *onnx.Value { return w.float32("zero_32", w.intAttribute("zero")) }

// values returns W, in rows of one block.
func (w *quantized) values() *onnx.Value {
	v := w.scaled("scaled", w.zeroCode())
	if w.minus {
		v = w.call("W_blocks", "Add", v, w.ofBlock(2))
	}
	return v
}

// offset returns the factors of the sums of the activations, as a column.
func (w *quantized) offset(center *onnx.Value) *onnx.Value {
	v := w.call("moved", "Mul", w.ofBlock(1), w.call("shift", "Sub", center, w.zeroCode()))
	if w.minus {
		v = w.call("offset_blocks", "Add", w.ofBlock(2), v)
	}
	return v
}

// rowsOf reshapes v to rows of width columns and drops the padding after the n rows of W.
func (w *quantized) rowsOf(name string, v, width *onnx.Value) *onnx.Value {
	return w.call(name, "Slice", w.flat(name+"_panels", v, width), w.integers("first", 0), w.intAttribute("n"),
		w.integers("front", 0))
}

func (w *quantized) transposed(name string, v, width *onnx.Value) *onnx.Value {
	return w.op(name+"_transposed", "Transpose", []*onnx.Value{w.rowsOf(name, v, width)},
		onnx.IntsAttr("perm", []int64{1, 0}))
}

// sums sums each block of the rows of x.
func (w *quantized) sums(x *onnx.Value) *onnx.Value {
	sums := w.op("sums", "ReduceSum", []*onnx.Value{w.flat("summed", x, w.intAttribute("block")),
		w.integers("last", -1)}, onnx.IntAttr("keepdims", 0))
	return w.flat("sums_of_rows", sums, w.blocks())
}
