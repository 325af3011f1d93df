package reference

import (
	"slices"

	"gonum.org/v1/gonum/blas"

	"github.com/mojo-patch/mojo-patch/onnx"
)

var blockOps = map[string]opDef{
	"com.microsoft:MatMulNBits":          arith(3, opMatMulNBits),
	"com.microsoft:GatherBlockQuantized": arith(3, opGatherBlockQuantized),
}

// packed is matrices of 2-, 4- or 8-bit integers packed in bytes, the first in the low bits. Blocks of a row's elements
// share a scale and a zero point. It is one matrix of all rows, stacked.
type packed struct {
	codes, scales, zeros *Tensor // zeros may be nil
	bits, block          int
	rows, cols           int
}

// check fails unless bits are supported and the tensors have as many elements as the rows need.
func (p *packed) check() {
	if p.bits != 2 && p.bits != 4 && p.bits != 8 {
		fail("elements of %d bits are not supported", p.bits)
	}
	if p.block < 1 || p.rows < 0 || p.cols < 1 {
		fail("%d rows of %d elements in blocks of %d", p.rows, p.cols, p.block)
	}
	if p.codes.I == nil && p.codes.Len() > 0 || p.codes.DataType != onnx.Uint8 || p.codes.Len() != p.rows*p.rowBytes() {
		fail("%d rows of %d elements of %d bits do not lie in %s", p.rows, p.cols, p.bits, p.codes)
	}
	if !p.scales.IsFloat() || p.scales.Len() != p.rows*p.blocks() {
		fail("%d rows of %d blocks have no scales in %s", p.rows, p.blocks(), p.scales)
	}
	if z := p.zeros; z != nil {
		want := p.rows * p.blocks()
		if !z.IsFloat() {
			want = p.rows * p.zeroBytes()
		}
		if !z.IsFloat() && z.DataType != onnx.Uint8 || z.Len() != want {
			fail("%d rows of %d blocks have no zero points in %s", p.rows, p.blocks(), z)
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
	lines := min(max(1, panelElements/p.cols), count)
	panel := make([]float64, lines*p.cols)
	for from := 0; from < count && m > 0; from += lines {
		n := min(lines, count-from)
		for i := range n {
			p.read(panel[i*p.cols:(i+1)*p.cols], first+from+i)
		}
		blas64.Dgemm(blas.NoTrans, blas.Trans, m, n, p.cols, 1, x, p.cols, panel, p.cols, 1, out[from:], count)
	}
	return out
}

// opMatMulNBits is A times the transpose of a matrix [N, K] of packed elements. accuracy_level is a minimum: nothing is
// rounded here. Elements ordered by another input, g_idx, are not supported.
func opMatMulNBits(c *call) []*Tensor {
	a := c.floats(0)
	n, k := int(c.int("N", 0)), int(c.int("K", 0))
	p := &packed{codes: c.in[1], scales: c.in[2], zeros: c.arg(3), bits: int(c.int("bits", 4)),
		block: int(c.int("block_size", 0)), rows: n, cols: k}
	p.check()
	bias := c.arg(5)
	switch {
	case c.arg(4) != nil:
		fail("g_idx is not supported")
	case c.int("weight_prepacked", 0) != 0:
		fail("the weights are prepacked for the kernels of a device, which is not supported")
	case a.Rank() == 0 || a.Shape[a.Rank()-1] != k:
		fail("the matrix has %d columns and A is %s", k, a)
	case bias != nil && !slices.Equal(bias.Shape, []int{n}):
		fail("the bias of %d columns is %s", n, bias)
	}
	shape := append(slices.Clone(a.Shape[:a.Rank()-1]), n)
	check(checkShape(shape))
	y := p.times(a.F, a.Len()/k, 0, n)
	if bias != nil {
		for i := range y {
			y[i] += bias.F[i%n]
		}
	}
	return one(NewFloats(a.DataType, shape, y))
}

// opGatherBlockQuantized is Gather of DequantizeLinear in blocks. Bytes contain elements of bits bits, whose default
// zero point is the middle; for 4-bit types it is 0. An index without an element returns zeros.
func opGatherBlockQuantized(c *call) []*Tensor {
	data, scales, zeros := c.in[0], c.floats(2), c.arg(3)
	at, ok := c.integers(1)
	shape := slices.Clone(data.Shape)
	if !ok || len(shape) == 0 || len(shape) != scales.Rank() {
		fail("data, indices and scales do not go together")
	}
	axis, along := c.axis(c.int("quantize_axis", 1), len(shape)), c.axis(c.int("gather_axis", 0), len(shape))
	bits, block, last := int(c.int("bits", 4)), int(c.int("block_size", 128)), len(shape)-1
	if data.I == nil && data.Len() > 0 || zeros != nil && zeros.DataType != data.DataType {
		fail("elements of %s are not supported", data.DataType)
	}
	element, middle := func(x *Tensor, row, i int) float64 { return float64(x.I[row*x.Shape[last]+i]) }, 0.0
	if data.DataType == onnx.Uint8 {
		if bits != 2 && bits != 4 && bits != 8 {
			fail("elements of %d bits are not supported", bits)
		}
		p := &packed{bits: bits}
		element = func(x *Tensor, row, i int) float64 { return p.at(x.I, row*x.Shape[last], i) }
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
		fail("scales of %v do not fit %v in blocks of %d along axis %d", scales.Shape, shape, block, axis)
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
	inner := size(shape[along+1:])
	out := slices.Concat(shape[:along], c.in[1].Shape, shape[along+1:])
	y := newFloats(scales.DataType, out)
	for i := range y.F {
		place := at[i/inner%len(at)]
		if place < 0 {
			place += int64(shape[along])
		}
		if place >= 0 && place < int64(shape[along]) {
			y.F[i] = value((i/inner/len(at)*shape[along]+int(place))*inner + i%inner)
		}
	}
	return one(y)
}
