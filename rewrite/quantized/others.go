package quantized

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// others is an [n, k] matrix quantized by another tool: (code - zero) * scale.
type others struct {
	name            string
	n, k            int64
	codes           *onnx.Tensor
	bits            int
	shift           int64 // added to signed codes to make them nonnegative
	codeAt          int64 // index of the first code
	byRow, byColumn int64 // strides between codes
	scales          *onnx.Tensor
	block           int64 // number of columns that share a scale
	scaleAt         int64
	scaleByRow      int64
	scaleByBlock    int64
	zeros           *onnx.Tensor // nil: middle is the zero point of all
	zeroAt          int64
	zeroByRow       int64
	zeroByBlock     int64
	middle          int64
}

// otherWeight reads a node's weights. It returns an error if they have no mojo form.
func otherWeight(n *onnx.Node, codes *onnx.Value) (*Weight, error) {
	x := &others{name: codes.Name, codes: codes.Const}
	var err error
	inOut := false
	switch {
	case n.OpType == "MatMulNBits":
		err = x.matMulNBits(n)
	case n.OpType == "GatherBlockQuantized":
		err = x.gatherBlockQuantized(n)
	case len(x.codes.Dims) != 2:
		err = fmt.Errorf("its elements have the shape %v", x.codes.Dims)
	default:
		inOut = readInOut(n.Outputs[0])
		err = x.dequantizeLinear(n, 0, inOut)
	}
	if err == nil {
		err = x.fits()
	}
	if err != nil {
		return nil, err
	}
	rows := &otherRows{name: x.name, n: x.n, list: []*others{x}}
	w := &Weight{Value: codes, InOut: inOut, Sample: rows.sample}
	w.Matrix, err = rows.quantized(x.n, 0, nil)
	return w, err
}

func (x *others) matMulNBits(n *onnx.Node) error {
	x.n, x.k = n.AttrInt("N", 0), n.AttrInt("K", 0)
	x.bits, x.block = int(n.AttrInt("bits", 4)), n.AttrInt("block_size", 0)
	switch {
	case n.Input(4) != nil:
		return errors.New("its columns are reordered (g_idx)")
	case n.AttrInt("weight_prepacked", 0) != 0:
		return errors.New("its weights are prepacked for a device's kernels")
	}
	return x.rows(n.Input(2), n.Input(3))
}

// most bounds the sizes in a model, so that products of two do not overflow.
const most = 1 << 30

// numbers returns an error for invalid sizes in the model.
func (x *others) numbers() error {
	switch {
	case x.bits != 2 && x.bits != 4 && x.bits != 8:
		return fmt.Errorf("its elements have %d bits", x.bits)
	case x.n < 1 || x.k < 1 || x.block < 1 || max(x.n, x.k, x.block) > most:
		return fmt.Errorf("it has %d rows of %d in blocks of %d", x.n, x.k, x.block)
	}
	return nil
}

// rows reads the layout of onnxruntime's ops: packed rows of whole blocks.
func (x *others) rows(scales, zeros *onnx.Value) error {
	if err := x.numbers(); err != nil {
		return err
	}
	count := (x.k + x.block - 1) / x.block
	x.byRow, x.byColumn = count*x.block, 1
	x.scales, x.scaleByRow, x.scaleByBlock = scales.Constant(), count, 1
	x.middle = 1 << (x.bits - 1)
	if zeros != nil {
		x.zeros, x.zeroByRow, x.zeroByBlock = zeros.Constant(), count, 1
		if x.zeros == nil {
			x.scales = nil // both must be constants
		} else if !x.zeros.DataType.IsFloat() {
			per := int64(8 / x.bits)
			x.zeroByRow = (count + per - 1) / per * per
		}
	}
	return x.check()
}

func (x *others) gatherBlockQuantized(n *onnx.Node) error {
	d := x.codes.Dims
	axis := n.AttrInt("quantize_axis", 1)
	if len(d) != 2 || n.AttrInt("gather_axis", 0) != 0 || axis != 1 && axis != -1 {
		return errors.New("it does not take rows of a matrix with blocks along the rows")
	}
	x.n, x.k, x.block, x.bits = d[0], d[1], n.AttrInt("block_size", 128), int(n.AttrInt("bits", 4))
	switch x.codes.DataType {
	case onnx.Uint8: // several per byte
		if x.bits == 2 || x.bits == 4 {
			x.k *= int64(8 / x.bits)
		}
	case onnx.Int4:
		x.bits, x.shift = 4, 8
	case onnx.Uint4:
		x.bits = 4
	default:
		return fmt.Errorf("its elements are %s", x.codes.DataType)
	}
	if x.block < 1 || x.k%x.block != 0 {
		return fmt.Errorf("row length %d is not a multiple of its block size %d", x.k, x.block)
	}
	if err := x.rows(n.Input(2), n.Input(3)); err != nil {
		return err
	}
	if x.codes.DataType != onnx.Uint8 {
		x.middle, x.zeroByRow = x.shift, x.scaleByRow
	}
	return nil
}

// readInOut reports whether a reader of v treats it as [in, out].
func readInOut(v *onnx.Value) bool {
	for _, u := range v.Uses() {
		switch n := u.Node; {
		case n.Is("MatMul"), n.Is("Gemm") && n.AttrInt("transB", 0) == 0:
			return true
		case n.Is("Transpose"):
			return !readInOut(n.Outputs[0])
		case n.Is("Cast"), n.Is("Identity"):
			return readInOut(n.Outputs[0])
		}
	}
	return false
}

// dequantizeLinear reads the matrix of a node's elements, or an expert's matrix if they have three dimensions.
func (x *others) dequantizeLinear(n *onnx.Node, expert int64, inOut bool) error {
	d := x.codes.Dims
	if len(d) != 2 && len(d) != 3 {
		return fmt.Errorf("its elements have the shape %v", d)
	}
	switch x.codes.DataType {
	case onnx.Int4:
		x.bits, x.shift = 4, 8
	case onnx.Uint4:
		x.bits = 4
	case onnx.Int8:
		x.bits, x.shift = 8, 128
	case onnx.Uint8:
		x.bits = 8
	default:
		return fmt.Errorf("its elements are %s", x.codes.DataType)
	}
	if x.scales = n.Input(1).Constant(); x.scales == nil {
		return errors.New("its scales are computed")
	}
	axis, block := int(n.AttrInt("axis", 1)), n.AttrInt("block_size", 0)
	if axis < 0 {
		axis += len(d)
	}
	rows, columns := len(d)-2, len(d)-1 // their axes
	if inOut {
		rows, columns = columns, rows
	}
	steps := onnx.RowMajor(d)
	x.n, x.k, x.byRow, x.byColumn = d[rows], d[columns], steps[rows], steps[columns]
	if len(d) == 3 {
		x.codeAt = expert * steps[0]
	}
	blocks := slices.Clone(d)
	if block > 0 && axis >= 0 && axis < len(d) {
		blocks[axis] = (d[axis] + block - 1) / block
	}
	switch s := x.scales; {
	case s.Len() == 1 && len(s.Dims) <= 1:
		x.block = x.k
	case block == 0 && len(s.Dims) == 1 && axis == rows && s.Len() == x.n:
		x.block, x.scaleByRow = x.k, 1
	case block == 0 && len(s.Dims) == 1 && axis == len(d)-3 && s.Len() == d[0]:
		x.block, x.scaleAt = x.k, expert
	case block > 0 && axis == columns && x.k%block == 0 && slices.Equal(s.Dims, blocks):
		steps := onnx.RowMajor(blocks)
		x.block, x.scaleByRow, x.scaleByBlock = block, steps[rows], steps[columns]
		if len(d) == 3 {
			x.scaleAt = expert * steps[0]
		}
	case block > 0 && axis == columns && x.k%block != 0:
		return fmt.Errorf("row length %d is not a multiple of its block size %d", x.k, block)
	default:
		return fmt.Errorf("each column has its own scales (scales of %v along axis %d)", s.Dims, axis)
	}
	x.zeroAt, x.zeroByRow, x.zeroByBlock, x.middle = x.scaleAt, x.scaleByRow, x.scaleByBlock, x.shift
	if z := n.Input(2); z != nil {
		if x.zeros = z.Constant(); x.zeros == nil {
			return errors.New("its zero points are computed")
		}
	}
	return x.check()
}

// fits returns an error if mojo's ops do not support the size of the blocks or rows.
func (x *others) fits() error {
	switch {
	case x.block != 16 && x.block%32 != 0:
		return fmt.Errorf("its block size %d is not a multiple of 32", x.block)
	case x.k%32 != 0:
		return fmt.Errorf("row length %d is not a multiple of 32", x.k)
	}
	return nil
}

// check returns an error if the elements cannot be read.
func (x *others) check() error {
	if x.scales == nil {
		return errors.New("its scales or zero points are computed")
	}
	if err := x.numbers(); err != nil {
		return err
	}
	for _, t := range []*onnx.Tensor{x.scales, x.zeros} {
		if t == nil {
			continue
		}
		switch t.DataType {
		case onnx.Float, onnx.Float16, onnx.BFloat16:
		case onnx.Uint8, onnx.Int8, onnx.Int4, onnx.Uint4:
			if t == x.zeros {
				continue
			}
			fallthrough
		default:
			return fmt.Errorf("its scales or zero points are %s", t.DataType)
		}
	}
	return nil
}
