package target

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// product is a mojo.Linear with known weights.
type product struct {
	*Call
	*coded
	typ onnx.DataType // type of X and Y
}

// linear reads the call.
func (c *Call) linear() (*product, error) {
	w, err := c.codedFrom(fused.LinearCodes)
	if err != nil {
		return nil, err
	}
	p := &product{c, w, c.Type(fused.LinearX)}
	if p.offsets() && c.Dims(fused.LinearX) == nil {
		return nil, errors.New("X has an unknown rank, so the sums of its blocks cannot be written")
	}
	return p, nil
}

// x returns the input as float32.
func (p *product) x() *onnx.Value {
	x := p.Input(fused.LinearX)
	if p.typ == onnx.Float {
		return x
	}
	return p.shared(x, "float32", func() *onnx.Value { return p.Cast(x, p.typ, onnx.Float) })
}

// offset adds the contribution of the blocks' offsets: the sums of the input's blocks, [..., k/block], times the
// offsets, [k/block, n]. All products of the input share the sums.
func (p *product) offset(y *onnx.Value) *onnx.Value {
	if !p.offsets() {
		return y
	}
	sums := p.shared(p.Input(fused.LinearX), fmt.Sprint("sums of ", p.block), func() *onnx.Value {
		shape := make([]int64, len(p.Dims(fused.LinearX))-1) // 0 keeps the dimension
		blocks := p.Op1("Reshape", []*onnx.Value{p.x(), p.Integers(append(shape, p.k/p.block, p.block)...)})
		return p.Op1("ReduceSum", []*onnx.Value{blocks, p.Integers(-1)}, onnx.IntAttr("keepdims", 0))
	})
	offsets := p.weight(p.coded, fused.LinearCodes, "offset columns", p.offsetColumns)
	return p.Op1("Add", []*onnx.Value{y, p.Op1("MatMul", []*onnx.Value{sums, offsets})})
}

// finish adds the bias to y, which is float32, and casts the sum to the type of X.
func (p *product) finish(y *onnx.Value) {
	if bias := p.Input(fused.LinearBias); bias != nil {
		y = p.Op1("Add", []*onnx.Value{y, p.Cast(bias, p.typ, onnx.Float)})
	}
	p.Output(0, p.Cast(y, onnx.Float, p.typ))
}

// ortLinear writes MatMulNBits, which has no offsets: they are multiplied by sums of the activations. float16
// activations with float16 scales are computed as such. Everything else is float32, because MatMulNBits requires scales
// of the type of the activations.
//
// For 8 bits, MatMulNBits has fast kernels only with 8-bit activations. With others it would convert all weights to
// float32 in each run.
func ortLinear(c *Call) error {
	p, err := c.linear()
	if err != nil {
		return err
	}
	if p.bits == 8 && c.accuracyLevel() != 4 {
		return errOther
	}
	x, scales := p.x(), (*coded).scales
	half := p.typ == onnx.Float16 && !p.offsets() && p.arrays[1].DataType == onnx.Float16
	what := "scales"
	if half {
		x, scales, what = c.Input(fused.LinearX), (*coded).halfScales, "half scales"
	}
	inputs := []*onnx.Value{x, c.byRow(p.coded, "packed", (*coded).packed, p.n, p.k/p.block, p.block*p.bits/8),
		c.byRow(p.coded, what, scales)}
	bias := c.Input(fused.LinearBias)
	within := bias != nil && (half || p.typ == onnx.Float) // whether the node adds the bias
	if within {
		inputs = append(inputs, nil, nil, bias)
	}
	y := c.Add(onnx.Microsoft, "MatMulNBits", 1, inputs, onnx.IntAttr("K", p.k), onnx.IntAttr("N", p.n),
		onnx.IntAttr("bits", p.bits), onnx.IntAttr("block_size", p.block),
		onnx.IntAttr("accuracy_level", c.accuracyLevel()))[0]
	switch y = p.offset(y); {
	case half || within:
		c.Output(0, y)
	default:
		p.finish(y)
	}
	return nil
}

// ortWideLinear writes a product with float32 weights.
func ortWideLinear(c *Call) error {
	p, err := c.linear()
	if err != nil {
		return err
	}
	w := c.byRow(p.coded, "floats", (*coded).floats)
	p.finish(c.Add(onnx.Microsoft, "FusedMatMul", 1, []*onnx.Value{p.x(), w}, onnx.IntAttr("transB", 1))[0])
	return nil
}

// standardLinear writes DequantizeLinear with blocks along the first axis, and MatMul. onnxruntime fuses the two into
// MatMulNBits, but only if the weights are in the same graph as the nodes.
func standardLinear(c *Call) error {
	p, err := c.linear()
	if err != nil {
		return err
	}
	codes := c.ownWeight(p.coded, fused.LinearCodes, "signed columns", p.signedColumns)
	scales := c.ownWeight(p.coded, fused.LinearCodes, "scale columns", p.scaleColumns)
	w := c.Op1("DequantizeLinear", []*onnx.Value{codes, scales}, onnx.IntAttr("axis", 0),
		onnx.IntAttr("block_size", p.block))
	p.finish(p.offset(c.Op1("MatMul", []*onnx.Value{p.x(), w})))
	return nil
}

// table reads the call of a mojo.Embedding.
func (c *Call) table() (*coded, error) {
	w, err := c.codedFrom(fused.EmbeddingCodes)
	if err == nil && w.offsets() && c.Dims(fused.EmbeddingIDs) == nil {
		return nil, errors.New("the ids have an unknown rank, so the offsets of rows cannot be written")
	}
	return w, err
}

// rowOffset adds the blocks' offsets to the rows and sets the output.
func (c *Call) rowOffset(w *coded, y *onnx.Value) {
	if w.offsets() {
		rank := len(c.Dims(fused.EmbeddingIDs))
		offsets := c.pick(c.byRow(w, "offset rows", (*coded).rowOffsets))
		blocks := c.Op1("Reshape", []*onnx.Value{y, c.Integers(append(make([]int64, rank), w.k/w.block, w.block)...)})
		sum := c.Op1("Add", []*onnx.Value{blocks, c.Op1("Unsqueeze", []*onnx.Value{offsets, c.Integers(-1)})})
		y = c.Op1("Reshape", []*onnx.Value{sum, c.Integers(append(make([]int64, rank), w.k)...)})
	}
	c.Output(0, y)
}

func (c *Call) pick(table *onnx.Value) *onnx.Value {
	return c.Op1("Gather", []*onnx.Value{table, c.Input(fused.EmbeddingIDs)}, onnx.IntAttr("axis", 0))
}

// ortWideEmbedding gathers rows of a product's weight that was converted to float32.
func ortWideEmbedding(c *Call) error {
	w, err := c.table()
	if err != nil {
		return err
	}
	if c.Products.rows[madeKey{nil, c.Products.withMostRows(w), "floats"}] == nil {
		return errOther
	}
	c.Output(0, c.pick(c.byRow(w, "floats", (*coded).floats)))
	return nil
}

// ortEmbedding writes GatherBlockQuantized. A table that is also a product's weight is stored only once.
func ortEmbedding(c *Call) error {
	w, err := c.table()
	if err != nil {
		return err
	}
	y := c.Add(onnx.Microsoft, "GatherBlockQuantized", 1, []*onnx.Value{c.byRow(w, "packed", (*coded).packed),
		c.Input(fused.EmbeddingIDs), c.byRow(w, "scales", (*coded).scales)},
		onnx.IntAttr("bits", w.bits), onnx.IntAttr("block_size", w.block), onnx.IntAttr("gather_axis", 0),
		onnx.IntAttr("quantize_axis", 1))[0]
	c.rowOffset(w, y)
	return nil
}

// standardEmbedding gathers codes and scales and writes DequantizeLinear. A 4-bit code takes a byte, because Gather
// cannot address half a byte.
func standardEmbedding(c *Call) error {
	w, err := c.table()
	if err != nil {
		return err
	}
	codes := c.byRow(w, "signed rows", (*coded).signedRows)
	scales := c.byRow(w, "scales", (*coded).scales)
	c.rowOffset(w, c.Op1("DequantizeLinear", []*onnx.Value{c.pick(codes), c.pick(scales)},
		onnx.IntAttr("axis", -1), onnx.IntAttr("block_size", w.block)))
	return nil
}
