package quantized

import (
	"slices"

	"gonum.org/v1/gonum/blas"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var blockOps = map[string]op.Def{
	"com.microsoft:MatMulNBits":          op.Arith(3, opMatMulNBits),
	"com.microsoft:GatherBlockQuantized": op.Arith(3, opGatherBlockQuantized),
}

// packed is matrices of 2-, 4- or 8-bit integers packed in bytes, the first in the low bits. Blocks of a row's elements
// share a scale and a zero point. It is one matrix of all rows, stacked.
type packed struct {
	codes, scales, zeros *tensor.Tensor // zeros may be nil
	bits, block          int
	rows, cols           int
}

// check fails unless bits are supported and the tensors have as many elements as the rows need.
func (p *packed) check() {
	if p.bits != 2 && p.bits != 4 && p.bits != 8 {
		tensor.Fail("elements of %d bits are not supported", p.bits)
	}
	if p.block < 1 || p.rows < 0 || p.cols < 1 {
		tensor.Fail("%d rows of %d elements in blocks of %d", p.rows, p.cols, p.block)
	}
	if p.codes.I == nil && p.codes.Len() > 0 || p.codes.DataType != onnx.Uint8 || p.codes.Len() != p.rows*p.rowBytes() {
		tensor.Fail("%d rows of %d elements of %d bits do not lie in %s", p.rows, p.cols, p.bits, p.codes)
	}
	if !p.scales.IsFloat() || p.scales.Len() != p.rows*p.blocks() {
		tensor.Fail("%d rows of %d blocks have no scales in %s", p.rows, p.blocks(), p.scales)
	}
	if z := p.zeros; z != nil {
		want := p.rows * p.blocks()
		if !z.IsFloat() {
			want = p.rows * p.zeroBytes()
		}
		if !z.IsFloat() && z.DataType != onnx.Uint8 || z.Len() != want {
			tensor.Fail("%d rows of %d blocks have no zero points in %s", p.rows, p.blocks(), z)
		}
	}
}

func (p *packed) blocks() int    { return (p.cols + p.block - 1) / p.block }
func (p *packed) zeroBytes() int { return (p.blocks()*p.bits + 7) / 8 }

// rowBytes returns the number of bytes of a row of whole blocks, the last of which may be partly used.
func (p *packed) rowBytes() int { return (p.blocks()*p.block*p.bits + 7) / 8 }

// at returns element i of the bytes from first on.
func (p *packed) at(bytes []int64, first, i int) float64 {
	per := 8 / p.bits
	return float64(bytes[first+i/per] >> (i % per * p.bits) & (1<<p.bits - 1))
}

// zero returns the zero point of a block of a row.
func (p *packed) zero(row, block int) float64 {
	switch {
	case p.zeros == nil:
		return float64(int(1) << (p.bits - 1))
	case p.zeros.IsFloat():
		return p.zeros.F[row*p.blocks()+block]
	}
	return p.at(p.zeros.I, row*p.zeroBytes(), block)
}

// read computes the numbers of a row: (element - zero point) * scale.
func (p *packed) read(dst []float64, row int) {
	scale, zero := 0.0, 0.0
	for i := range dst {
		if i%p.block == 0 {
			scale, zero = p.scales.F[row*p.blocks()+i/p.block], p.zero(row, i/p.block)
		}
		dst[i] = (p.at(p.codes.I, row*p.rowBytes(), i) - zero) * scale
	}
}

// times multiplies rows of x with the transpose of count rows of the matrix from first on.
func (p *packed) times(x []float64, m, first, count int) []float64 {
	out := make([]float64, m*count)
	lines := min(max(1, tensor.PanelElements/p.cols), count)
	panel := make([]float64, lines*p.cols)
	for from := 0; from < count && m > 0; from += lines {
		n := min(lines, count-from)
		for i := range n {
			p.read(panel[i*p.cols:(i+1)*p.cols], first+from+i)
		}
		tensor.BLAS.Dgemm(blas.NoTrans, blas.Trans, m, n, p.cols, 1, x, p.cols, panel, p.cols, 1, out[from:], count)
	}
	return out
}

// opMatMulNBits is A times the transpose of a matrix [N, K] of packed elements. accuracy_level is a minimum: nothing is
// rounded here. Elements ordered by another input, g_idx, are not supported.
func opMatMulNBits(c *op.Call) []*tensor.Tensor {
	a := c.Floats(0)
	n, k := int(c.Int("N", 0)), int(c.Int("K", 0))
	p := &packed{codes: c.In[1], scales: c.In[2], zeros: c.Arg(3), bits: int(c.Int("bits", 4)),
		block: int(c.Int("block_size", 0)), rows: n, cols: k}
	p.check()
	bias := c.Arg(5)
	switch {
	case c.Arg(4) != nil:
		tensor.Fail("g_idx is not supported")
	case c.Int("weight_prepacked", 0) != 0:
		tensor.Fail("the weights are prepacked for the kernels of a device, which is not supported")
	case a.Rank() == 0 || a.Shape[a.Rank()-1] != k:
		tensor.Fail("the matrix has %d columns and A is %s", k, a)
	case bias != nil && !slices.Equal(bias.Shape, []int{n}):
		tensor.Fail("the bias of %d columns is %s", n, bias)
	}
	shape := append(slices.Clone(a.Shape[:a.Rank()-1]), n)
	tensor.Check(tensor.CheckShape(shape))
	y := p.times(a.F, a.Len()/k, 0, n)
	if bias != nil {
		for i := range y {
			y[i] += bias.F[i%n]
		}
	}
	return op.One(tensor.NewFloats(a.DataType, shape, y))
}

// opGatherBlockQuantized is Gather of DequantizeLinear in blocks. Bytes contain elements of bits bits, whose default
// zero point is the middle; for 4-bit types it is 0. An index without an element returns zeros.
func opGatherBlockQuantized(c *op.Call) []*tensor.Tensor {
	data, scales, zeros := c.In[0], c.Floats(2), c.Arg(3)
	at, ok := c.Integers(1)
	shape := slices.Clone(data.Shape)
	if !ok || len(shape) == 0 || len(shape) != scales.Rank() {
		tensor.Fail("data, indices and scales do not go together")
	}
	axis, along := c.Axis(c.Int("quantize_axis", 1), len(shape)), c.Axis(c.Int("gather_axis", 0), len(shape))
	bits, block, last := int(c.Int("bits", 4)), int(c.Int("block_size", 128)), len(shape)-1
	if data.I == nil && data.Len() > 0 || zeros != nil && zeros.DataType != data.DataType {
		tensor.Fail("elements of %s are not supported", data.DataType)
	}
	element, middle := func(x *tensor.Tensor, row, i int) float64 { return float64(x.I[row*x.Shape[last]+i]) }, 0.0
	if data.DataType == onnx.Uint8 {
		if bits != 2 && bits != 4 && bits != 8 {
			tensor.Fail("elements of %d bits are not supported", bits)
		}
		p := &packed{bits: bits}
		element = func(x *tensor.Tensor, row, i int) float64 { return p.at(x.I, row*x.Shape[last], i) }
		middle = float64(int(1) << (bits - 1))
		shape[last] *= 8 / bits
	}
	want := slices.Clone(shape)
	want[axis] = (shape[axis] + max(block, 1) - 1) / max(block, 1)
	zeroShape := slices.Clone(want)
	if data.DataType == onnx.Uint8 {
		zeroShape[last] = (want[last]*bits + 7) / 8
	}
	if block < 1 || !slices.Equal(want, scales.Shape) || zeros != nil && !slices.Equal(zeroShape, zeros.Shape) {
		tensor.Fail("scales of %v do not fit %v in blocks of %d along axis %d", scales.Shape, shape, block, axis)
	}
	from, columns := onnx.RowMajor(want), max(shape[last], 1)
	value := func(i int) float64 {
		of, rest := 0, i
		for d := last; d >= 0; d-- {
			place := rest % shape[d]
			rest /= shape[d]
			if d == axis {
				place /= block
			}
			of += place * from[d]
		}
		zero := middle
		if zeros != nil {
			zero = element(zeros, of/want[last], of%want[last])
		}
		return (element(data, i/columns, i%columns) - zero) * scales.F[of]
	}
	inner := tensor.Size(shape[along+1:])
	out := slices.Concat(shape[:along], c.In[1].Shape, shape[along+1:])
	y := tensor.ZeroFloats(scales.DataType, out)
	for i := range y.F {
		place := at[i/inner%len(at)]
		if place < 0 {
			place += int64(shape[along])
		}
		if place >= 0 && place < int64(shape[along]) {
			y.F[i] = value((i/inner/len(at)*shape[along]+int(place))*inner + i%inner)
		}
	}
	return op.One(y)
}
