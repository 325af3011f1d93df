package quantized

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// opened is the matrix with its arrays in memory.
type opened struct {
	*others
	codes, scales, zeros []byte
}

func (x *others) open() (*opened, error) {
	o := &opened{others: x}
	var err error
	for _, a := range []struct {
		to   *[]byte
		from *onnx.Tensor
	}{{&o.codes, x.codes}, {&o.scales, x.scales}, {&o.zeros, x.zeros}} {
		if a.from == nil {
			continue
		}
		if *a.to, err = a.from.Bytes(); err != nil {
			return nil, err
		}
	}
	last := func(at, n, byRow, k, byColumn int64) int64 { return at + (n-1)*byRow + (k-1)*byColumn }
	count := (x.k + x.block - 1) / x.block
	if at := last(x.codeAt, x.n, x.byRow, x.k, x.byColumn); at >= int64(len(o.codes))*8/int64(x.bits) ||
		last(x.scaleAt, x.n, x.scaleByRow, count, x.scaleByBlock) >= x.scales.Len() ||
		x.zeros != nil && last(x.zeroAt, x.n, x.zeroByRow, count, x.zeroByBlock) >=
			int64(len(o.zeros))*8/int64(zeroBits(x)) {
		return nil, fmt.Errorf("the elements, scales or zero points of %q are fewer than %d rows of %d", x.name, x.n,
			x.k)
	}
	return o, nil
}

// zeroBits returns the size of a zero point. Zero points of MatMulNBits are as small as its elements.
func zeroBits(x *others) int {
	if x.zeros.DataType.IsFloat() {
		return x.zeros.DataType.Bits()
	}
	return x.bits
}

// packedInt returns element i of the given width.
func packedInt(b []byte, bits int, i int64) int64 {
	per := int64(8 / bits)
	return int64(b[i/per]) >> (i % per * int64(bits)) & (1<<bits - 1)
}

// code returns an element as a nonnegative number.
func (o *opened) code(row, column int64) byte {
	q := packedInt(o.codes, o.bits, o.codeAt+row*o.byRow+column*o.byColumn)
	return byte(q^o.shift) & byte(1<<o.bits-1) // flipping the sign bit adds shift
}

func floatAt(b []byte, t onnx.DataType, i int64) float32 {
	switch t {
	case onnx.Float16:
		return blocks.Float16(binary.LittleEndian.Uint16(b[2*i:]))
	case onnx.BFloat16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

func (o *opened) scale(row, column int64) float32 {
	return floatAt(o.scales, o.others.scales.DataType, o.scaleAt+row*o.scaleByRow+column/o.block*o.scaleByBlock)
}

// zero returns the zero point of an element, relative to code.
func (o *opened) zero(row, column int64) float32 {
	at := o.zeroAt + row*o.zeroByRow + column/o.block*o.zeroByBlock
	switch {
	case o.others.zeros == nil:
		return float32(o.middle)
	case o.others.zeros.DataType.IsFloat():
		return floatAt(o.zeros, o.others.zeros.DataType, at)
	}
	return float32(packedInt(o.zeros, o.bits, at) ^ o.shift)
}

// value returns the float that an element represents.
func (o *opened) value(row, column int64) float32 {
	return (float32(o.code(row, column)) - o.zero(row, column)) * o.scale(row, column)
}

// otherRows are rows of one matrix, or of the concatenated matrices of experts, which another tool quantized in the
// same way.
type otherRows struct {
	name    string
	experts int64 // 0 if there is no dimension for them
	n       int64 // of all experts
	list    []*others
	// at maps row i to a matrix and its row, or is nil if there is only one matrix.
	at func(i int64) (matrix int, row int64)
}

// openedRows is otherRows with the arrays in memory.
type openedRows struct {
	*otherRows
	matrices []*opened
}

func (x *otherRows) open() (*openedRows, error) {
	o := &openedRows{otherRows: x}
	for _, m := range x.list {
		opened, err := m.open()
		if err != nil {
			return nil, err
		}
		o.matrices = append(o.matrices, opened)
	}
	return o, nil
}

func (o *openedRows) row(i int64) (*opened, int64) {
	if o.at == nil {
		return o.matrices[0], i
	}
	m, row := o.at(i)
	return o.matrices[m], row
}

// oneZero returns the zero point shared by all blocks; ok is false if they differ.
func (o *openedRows) oneZero() (zero int64, ok bool) {
	first := o.matrices[0].zero(0, 0)
	for _, m := range o.matrices {
		if m.others.zeros == nil {
			if m.zero(0, 0) != first {
				return 0, false
			}
			continue
		}
		for r := range m.n {
			for c := int64(0); c < m.k; c += m.block {
				if m.zero(r, c) != first {
					return 0, false
				}
			}
		}
	}
	zero = int64(first)
	return zero, float32(zero) == first && zero >= 0 && zero < 1<<max(o.matrices[0].bits, 4)
}

// quantized returns the first rows in mojo's layout, as one matrix if experts is 0. The arrays are computed when the
// model is written, or immediately if made is not nil.
func (o *otherRows) quantized(rows, experts int64, made func(*onnx.Tensor) (*onnx.Tensor, error)) (*fused.Quantized,
	error) {
	all, err := o.open()
	if err != nil {
		return nil, err
	}
	x := o.list[0]
	p := &blocks.Panels{Code: "int4", Zero: 8, Block: 32, Scale: onnx.Float}
	if x.bits == 8 {
		p.Code, p.Zero = "int8", 128
	}
	if x.block == 16 {
		p.Block = 16
	}
	zero, one := all.oneZero()
	if p.Minus = !one; one {
		p.Zero = zero
		if x.scales.DataType == onnx.Float16 {
			p.Scale = onnx.Float16
		}
	}
	return fused.NewQuantized(o.name, fmt.Sprintf("int%d_%d", x.bits, x.block), p, rows, x.k, experts, func(name string,
		t onnx.DataType, dims []int64, array int) (*onnx.Tensor, error) {
		v, err := onnx.NewDeferred(name, t, dims, func(w io.Writer) error {
			all, err := o.open()
			if err != nil {
				return err
			}
			panel, decoded := p.New(x.k), make([]float32, x.k)
			asked := *panel.Arrays()[array]
			for first := int64(0); first < rows; first += blocks.PanelRows {
				clear(asked)
				for r := range min(blocks.PanelRows, rows-first) {
					m, row := all.row(first + r)
					if array > 0 {
						m.numbersInto(asked, p, array, row, r)
						continue
					}
					m.codesInto(asked, row, r)
					for i, numbers := range [][]byte{panel.Scale, panel.Minus} { // needed to decode the codes
						if numbers != nil {
							m.numbersInto(numbers, p, i+1, row, r)
						}
					}
					p.Decode(decoded, panel, int(r))
					if err := m.same(decoded, row); err != nil {
						return err
					}
				}
				if _, err := w.Write(asked); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && made != nil {
			v, err = made(v)
		}
		return v, err
	})
}

// same returns an error unless a row was decoded to its original values. It allows for the rounding of the offset of a
// block with its own zero point.
func (o *opened) same(decoded []float32, row int64) error {
	for c, got := range decoded {
		column := int64(c)
		want, scale := float64(o.value(row, column)), float64(o.scale(row, column))
		greatest := math.Abs(scale) * (256 + math.Abs(float64(o.zero(row, column))))
		if d := math.Abs(float64(got) - want); !(d <= 0x1p-22*greatest) && prove.IsFinite(greatest) {
			return fmt.Errorf("%q: column %d of row %d is %v, but %v in the form that mojo's ops read", o.name, c, row,
				want, got)
		}
	}
	return nil
}

// codesInto writes the codes of a row to row r of a panel.
func (o *opened) codesInto(panel []byte, row, r int64) {
	for c := range o.k {
		code, at := o.code(row, c), c%32
		if o.bits == 8 {
			panel[(c/32*8+at/4)*64+4*r+at%4] = code
		} else {
			panel[(c/32*4+at%16/4)*64+4*r+at%4] |= code << (at / 16 * 4)
		}
	}
}

// numbersInto writes the scales or offsets of a row to row r of a panel.
func (o *opened) numbersInto(panel []byte, p *blocks.Panels, array int, row, r int64) {
	block := int64(p.Block)
	for b := range o.k / block {
		at := b*blocks.PanelRows + r
		if p.Scale == onnx.Float16 {
			from := o.scaleAt + row*o.scaleByRow + b*block/o.block*o.scaleByBlock
			copy(panel[2*at:2*at+2], o.scales[2*from:])
			continue
		}
		x := o.scale(row, b*block)
		if array == 2 {
			x *= float32(p.Zero) - o.zero(row, b*block)
		}
		binary.LittleEndian.PutUint32(panel[4*at:], math.Float32bits(x))
	}
}

// sample returns the first rows, in mojo's layout and as floats.
func (o *otherRows) sample(rows int64) (*fused.Quantized, []float32, error) {
	rows = min(rows, o.n)
	q, err := o.quantized(rows, 0, func(t *onnx.Tensor) (*onnx.Tensor, error) {
		b, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		return onnx.NewTensor("sample_"+t.Name, t.DataType, t.Dims, b)
	})
	if err != nil {
		return nil, nil, err
	}
	all, err := o.open()
	if err != nil {
		return nil, nil, err
	}
	k := o.list[0].k
	floats := make([]float32, rows*k)
	for r := range rows {
		m, row := all.row(r)
		for c := range k {
			floats[r*k+c] = m.value(row, c)
		}
	}
	return q, floats, nil
}
