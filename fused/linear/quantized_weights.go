package linear

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// StoredWeights describes weights in blocks: the inputs of a site from index first on.
type StoredWeights struct {
	*op.Body
	site  op.Site
	first int // the index of codes; scale and the others follow

	code           string
	zero, block    int64
	n, k           int64
	minus, twofold bool // whether minus and super_scale are given
}

// LinearWeights describes the weights of a Linear.
func LinearWeights(b *op.Body, s op.Site) *StoredWeights { return Weights(b, s, LinearCodes) }

// Weights reads the site. b may be nil if no values are needed.
func Weights(b *op.Body, s op.Site, first int) *StoredWeights {
	attrs := op.Read[Embedding](s.Attributes)
	return &StoredWeights{Body: b, site: s, first: first, code: attrs.Code, zero: attrs.Zero, block: attrs.Block,
		n: attrs.N, k: attrs.K, minus: s.Has(first + 2), twofold: s.Has(first + 3)}
}

// Overload names the part of an overload that depends on the weights.
func (w *StoredWeights) Overload() string {
	return w.code + op.IfGiven(w.site, w.first+2, "_minus") + op.IfGiven(w.site, w.first+3, "_super")
}

// center returns the code in the middle of the range.
func (w *StoredWeights) center() float32 {
	switch w.code {
	case codeInt4:
		return 8
	case codeInt8:
		return 128
	}
	return 0
}

// isFloat reports whether codes are floating point.
func (w *StoredWeights) isFloat() bool { return w.code == codeE2M1 || w.code == CodeE4M3 }

// takesByte reports whether a code takes a byte.
func (w *StoredWeights) takesByte() bool { return w.code == codeInt8 || w.code == CodeE4M3 }

// Check errs unless the types, attributes and inputs of the weights fit together.
func (w *StoredWeights) Check(name string) error {
	if w.twofold && w.k%superBlock != 0 {
		return fmt.Errorf("mojo.%s attribute k is %d; it must be a multiple of %d with super_scale", name, w.k,
			superBlock)
	}
	switch {
	case w.isFloat() && (w.minus || w.twofold):
		return fmt.Errorf("mojo.%s takes neither minus nor super_scale with code %s", name, w.code)
	case w.site.Has(w.first+4) != (w.minus && w.twofold):
		return fmt.Errorf("mojo.%s takes super_minus if and only if it has minus and super_scale", name)
	}
	want := "float32 or float16"
	scale := w.site.Types[w.first+1]
	ok := scale == op.F32 || scale == op.F16
	if w.twofold {
		want, ok = "int8 with super_scale", scale == onnx.Int8
	} else if w.code == codeE2M1 {
		want, ok = "uint8 with code e2m1", scale == onnx.Uint8
	} else if w.code == CodeE4M3 {
		want, ok = "float32 with code e4m3", scale == op.F32
	}
	if !ok {
		return fmt.Errorf("mojo.%s takes a scale of %s, not of %s", name, want, scale)
	}
	return nil
}

// Dims returns the shapes of the inputs for the weights; minus and twofold report which of them are given.
func (w *StoredWeights) Dims(minus, twofold bool) [][]int64 {
	panels, groups, rows := (w.n+panelRows-1)/panelRows, int64(4), int64(panelRows)
	if w.takesByte() {
		groups = 8
	}
	if w.code == CodeE4M3 {
		rows = 1
	}
	dims := [][]int64{{panels, w.k / CodeBlock, groups, 4 * panelRows}, {panels, w.k / w.block, rows}, nil, nil, nil}
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
func (w *StoredWeights) flat(name string, v, width *onnx.Value) *onnx.Value {
	return w.Call(name, "Reshape", v, w.Concat(name+"_shape", w.Integers("any", -1), width))
}

// blocks returns the number of blocks of a row, as a vector of one.
func (w *StoredWeights) blocks() *onnx.Value {
	return w.Call("blocks", "Div", w.IntAttribute("k"), w.IntAttribute("block"))
}

// codes returns the codes, or the values of floating-point codes, as float32 in rows of one block.
func (w *StoredWeights) codes() *onnx.Value {
	c := w.Float32("codes_32", w.In[w.first])
	perm := []int64{0, 4, 1, 2, 3, 5} // panel, block, half, group, row, place -> panel, row, block, half, group, place
	if w.takesByte() {
		c = w.Call("by_row", "Reshape", c, w.Integers("by_row_shape", 0, 0, 2, 4, panelRows, 4))
	} else {
		c = w.Call("by_row", "Reshape", c, w.Integers("by_row_shape", 0, 0, 4, panelRows, 4))
		high := w.Call("high", "Floor", w.Call("shifted", "Mul", c, w.Number("sixteenth", 1.0/16)))
		low := w.Call("low", "Sub", c, w.Call("above", "Mul", high, w.Number("sixteen", 16)))
		half := w.Integers("half", 2)
		c = w.Op("halves", "Concat", []*onnx.Value{w.Call("low_half", "Unsqueeze", low, half),
			w.Call("high_half", "Unsqueeze", high, half)}, onnx.IntAttr("axis", 2))
	}
	c = w.Op("in_order", "Transpose", []*onnx.Value{c}, onnx.IntsAttr("perm", perm))
	c = w.flat("code_blocks", c, w.IntAttribute("block"))
	if w.code == codeE2M1 {
		values := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
		for _, v := range values[:8:8] {
			values = append(values, -v)
		}
		return w.lookup("code_values", values, c)
	}
	if w.code == CodeE4M3 {
		return w.lookup("code_values", blocks.Values(onnx.Float8E4M3FN)[:], c)
	}
	return c
}

// lookup returns the elements of a table at the indices v.
func (w *StoredWeights) lookup(name string, table []float32, v *onnx.Value) *onnx.Value {
	at := w.Op(name+"_at", "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(onnx.Int64)))
	values := onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{int64(len(table))}, table))
	return w.Op(name, "Gather", []*onnx.Value{w.Constant(name+"_table", values), at}, onnx.IntAttr("axis", 0))
}

// ofBlock returns scale or minus (input first + i) times the factor of its super block: a float32 column in the order
// of codes.
func (w *StoredWeights) ofBlock(i int) *onnx.Value {
	name := quantizedParams[i].Name
	rows := func(name string, v *onnx.Value) *onnx.Value {
		return w.Op(name+"_rows", "Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1}))
	}
	v := rows(name, w.Float32(name+"_32", w.In[w.first+i]))
	one := w.Integers("one", 1)
	if w.code == codeE2M1 {
		return w.flat(name+"_column", w.lookup("exponents", e8m0(), v), one)
	}
	if w.code == CodeE4M3 { // one scale for all rows of a panel
		v = w.Call(name+"_of_row", "Expand", v, w.Integers("panel_rows", 1, panelRows, 1))
	}
	if w.twofold {
		super := quantizedParams[i+2].Name
		s := w.flat(super+"_column", rows(super, w.Float32(super+"_32", w.In[w.first+i+2])), one)
		of := w.Call("of_super", "Div", w.Integers("super_block", superBlock), w.IntAttribute("block"))
		v = w.Call(name+"_product", "Mul", s, w.flat(name+"_of_super", v, of))
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
func (w *StoredWeights) scaled(name string, zero *onnx.Value) *onnx.Value {
	codes := w.codes()
	if !w.isFloat() {
		codes = w.Call(name+"_codes", "Sub", codes, zero)
	}
	return w.Call(name, "Mul", w.ofBlock(1), codes)
}

func (w *StoredWeights) zeroCode() *onnx.Value { return w.Float32("zero_32", w.IntAttribute("zero")) }

// values returns W, in rows of one block.
func (w *StoredWeights) values() *onnx.Value {
	v := w.scaled("scaled", w.zeroCode())
	if w.minus {
		v = w.Call("W_blocks", "Add", v, w.ofBlock(2))
	}
	return v
}

// offset returns the factors of the sums of the activations, as a column.
func (w *StoredWeights) offset(center *onnx.Value) *onnx.Value {
	v := w.Call("moved", "Mul", w.ofBlock(1), w.Call("shift", "Sub", center, w.zeroCode()))
	if w.minus {
		v = w.Call("offset_blocks", "Add", w.ofBlock(2), v)
	}
	return v
}

// rowsOf reshapes v to rows of width columns and drops the padding after the n rows of W.
func (w *StoredWeights) rowsOf(name string, v, width *onnx.Value) *onnx.Value {
	return w.Call(name, "Slice", w.flat(name+"_panels", v, width), w.Integers("first", 0), w.IntAttribute("n"),
		w.Integers("front", 0))
}

func (w *StoredWeights) transposed(name string, v, width *onnx.Value) *onnx.Value {
	return w.Op(name+"_transposed", "Transpose", []*onnx.Value{w.rowsOf(name, v, width)},
		onnx.IntsAttr("perm", []int64{1, 0}))
}

// sums sums each block of the rows of x.
func (w *StoredWeights) sums(x *onnx.Value) *onnx.Value {
	sums := w.Op("sums", "ReduceSum", []*onnx.Value{w.flat("summed", x, w.IntAttribute("block")),
		w.Integers("last", -1)}, onnx.IntAttr("keepdims", 0))
	return w.flat("sums_of_rows", sums, w.blocks())
}
