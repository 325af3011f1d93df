package target

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// coded is the [n, k] matrix of a mojo.Linear or mojo.Embedding, in the layout of their definition. Tensors derived
// from it are computed when the model is written, a few rows or columns at a time.
//
// For codes q with the given bits and midpoint mid, an element is scale * (q - mid) + offset, with the scale and offset
// of its block.
type coded struct {
	name        string
	code        string
	zero        int64
	n, k, block int64
	bits, mid   int64
	// halves is the number of rows of each of two matrices that alternate along the rows: tensors by rows interleave
	// the rows of both. 0 keeps the order.
	halves int64
	arrays [5]*onnx.Tensor // codes, scale, minus, super_scale, super_minus; nil if left out
}

// codedFrom reads the weights of a call from five inputs starting at first.
func (c *Call) codedFrom(first int) (*coded, error) {
	return c.codedOf(fused.Read[fused.Embedding](c.Site.Attributes),
		[...]int{first, first + 1, first + 2, first + 3, first + 4})
}

// codedOf reads weights in the format a from these inputs.
func (c *Call) codedOf(a fused.Embedding, inputs [5]int) (*coded, error) {
	m := &coded{code: a.Code, zero: a.Zero, n: a.N, k: a.K, block: a.Block, bits: 4, mid: 8}
	if m.code == "e4m3" {
		return nil, errors.New("its weights are FP8 with scales of 128 x 128 (code=e4m3), for which the target has " +
			"no op")
	}
	if m.code != "int4" { // doubled e2m1 ranges from -12 to 12
		m.bits, m.mid = 8, 128
	}
	for i, input := range inputs {
		v := c.Input(input)
		if v == nil {
			continue
		}
		if m.arrays[i] = v.Constant(); m.arrays[i] == nil {
			return nil, fmt.Errorf("the weights %q are computed", v.Name)
		}
	}
	m.name = c.Input(inputs[0]).Name
	return m, nil
}

// anyRows returns the weights with n = 0, as a key for calls that share them with different numbers of rows.
func (m *coded) anyRows() coded {
	all := *m
	all.n = 0
	return all
}

// offsets reports whether any offset may differ from 0.
func (m *coded) offsets() bool { return m.code != "e2m1" && (m.arrays[2] != nil || m.zero != m.mid) }

// panel holds 16 rows.
type panel struct {
	codes         []byte // [16, k]
	scale, offset []float32
}

// reader reads the arrays, which are in memory or mapped while it is in use.
type reader struct {
	*coded
	bytes [5][]byte
	panel panel
}

func (m *coded) open() (*reader, error) {
	r := &reader{coded: m, panel: panel{make([]byte, blocks.PanelRows*m.k),
		make([]float32, blocks.PanelRows*m.k/m.block), make([]float32, blocks.PanelRows*m.k/m.block)}}
	for i, t := range m.arrays {
		if t == nil {
			continue
		}
		var err error
		if r.bytes[i], err = t.Bytes(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// group writes the codes of 32-column group b of a panel's rows to dst, with the rows stride bytes apart.
func (r *reader) group(dst []byte, p, b, stride int64) {
	const rows, width = blocks.PanelRows, 32
	words := int64(8)
	if r.code != "int8" {
		words = 4
	}
	from := r.bytes[0][(p*(r.k/width)+b)*words*4*rows:]
	for row := range int64(rows) {
		out := dst[row*stride:][:width]
		for j := range words {
			for i, q := range from[(j*rows+row)*4:][:4] {
				switch at := 4*j + int64(i); r.code {
				case "int8":
					out[at] = q
				case "e2m1":
					out[at], out[at+width/2] = doubled[q&15], doubled[q>>4]
				default:
					out[at], out[at+width/2] = q&15, q>>4
				}
			}
		}
	}
}

// doubled maps a code of e2m1 to 128 plus twice its value.
var doubled = func() (table [16]byte) {
	for i, v := range []int{0, 1, 2, 3, 4, 6, 8, 12} {
		table[i], table[i+8] = byte(128+v), byte(128-v)
	}
	return
}()

// numbers reads the scales and offsets of the rows of panel p, each [16, k/block].
func (r *reader) numbers(p int64) {
	const rows = blocks.PanelRows
	count := r.k / r.block
	for row := range int64(rows) {
		for b := range count {
			at := (p*count+b)*rows + row
			d, m := r.number(1, at), float32(0)
			if r.arrays[2] != nil {
				m = r.number(2, at)
			}
			if r.arrays[3] != nil {
				super := (p*(r.k/256)+b*r.block/256)*rows + row
				d *= r.number(3, super)
				if r.arrays[4] != nil {
					m *= r.number(4, super)
				}
			}
			if r.code == "e2m1" {
				d /= 2
			} else {
				m += d * float32(r.mid-r.zero)
			}
			r.panel.scale[row*count+b], r.panel.offset[row*count+b] = d, m
		}
	}
}

// number returns an element of one of the arrays.
func (r *reader) number(array int, at int64) float32 {
	b := r.bytes[array]
	switch r.arrays[array].DataType {
	case onnx.Float16:
		return blocks.Float16(binary.LittleEndian.Uint16(b[2*at:]))
	case onnx.Int8:
		return float32(int8(b[at]))
	case onnx.Uint8:
		return blocks.Values(onnx.Float8E8M0)[b[at]]
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*at:]))
}

// tensor returns a tensor whose elements write produces.
func (m *coded) tensor(suffix string, t onnx.DataType, dims []int64, write func(*reader, *bufio.Writer) error) (
	*onnx.Tensor, error) {
	return onnx.NewDeferred(m.name+suffix, t, dims, func(w io.Writer) error {
		r, err := m.open()
		if err != nil {
			return err
		}
		b := bufio.NewWriterSize(w, 1<<16)
		return errors.Join(write(r, b), b.Flush())
	})
}

// eachRow reads the panels and calls f for each of the n rows with its codes, scales and offsets.
func (r *reader) eachRow(f func(codes []byte, scale, offset []float32) error) error {
	count := r.k / r.block
	for p := range (r.n + blocks.PanelRows - 1) / blocks.PanelRows {
		for b := range r.k / 32 {
			r.group(r.panel.codes[32*b:], p, b, r.k)
		}
		r.numbers(p)
		for row := range min(blocks.PanelRows, r.n-p*blocks.PanelRows) {
			if err := f(r.panel.codes[row*r.k:][:r.k], r.panel.scale[row*count:][:count],
				r.panel.offset[row*count:][:count]); err != nil {
				return err
			}
		}
	}
	return nil
}

// byRows returns a tensor by rows; row appends the bytes of one.
func (m *coded) byRows(suffix string, t onnx.DataType, dims []int64,
	row func(b, codes []byte, scale []float32) []byte) (*onnx.Tensor, error) {
	return m.tensor(suffix, t, dims, func(r *reader, w *bufio.Writer) error {
		var held [][]byte // both matrices, if there are two
		return r.eachRow(func(codes []byte, scale, _ []float32) error {
			b := row(nil, codes, scale)
			if m.halves == 0 {
				_, err := w.Write(b)
				return err
			}
			if held = append(held, b); int64(len(held)) < 2*m.halves {
				return nil
			}
			for i := range m.halves {
				w.Write(held[i])
				if _, err := w.Write(held[m.halves+i]); err != nil {
					return err
				}
			}
			held = held[:0]
			return nil
		})
	})
}

// packed returns the codes by rows: [n, k*bits/8]. A byte holds two 4-bit codes, the first in its low half.
func (m *coded) packed() (*onnx.Tensor, error) {
	return m.byRows("_packed", onnx.Uint8, []int64{m.n, m.k * m.bits / 8}, func(b, codes []byte, _ []float32) []byte {
		if m.bits == 8 {
			return append(b, codes...)
		}
		for i := 0; i < len(codes); i += 2 {
			b = append(b, codes[i]|codes[i+1]<<4)
		}
		return b
	})
}

// scales returns the scales by rows, [n, k/block].
func (m *coded) scales() (*onnx.Tensor, error) {
	return m.byRows("_scales", onnx.Float, []int64{m.n, m.k / m.block}, func(b, _ []byte, scale []float32) []byte {
		for _, x := range scale {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		return b
	})
}

// halfScales returns the same in float16, the type of the scales.
func (m *coded) halfScales() (*onnx.Tensor, error) {
	const rows = blocks.PanelRows
	count := m.k / m.block
	return m.tensor("_scales", onnx.Float16, []int64{m.n, count}, func(r *reader, w *bufio.Writer) error {
		for row := range m.n {
			for b := range count {
				at := 2 * ((row/rows*count+b)*rows + row%rows)
				if _, err := w.Write(r.bytes[1][at : at+2]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// rowOffsets returns the offsets by rows, [n, k/block].
func (m *coded) rowOffsets() (*onnx.Tensor, error) {
	return m.tensor("_offsets", onnx.Float, []int64{m.n, m.k / m.block}, func(r *reader, w *bufio.Writer) error {
		return r.eachRow(func(_ []byte, _, offset []float32) error { return writeFloats(w, offset) })
	})
}

// columns returns scales or offsets by columns, [k/block, n]. All of them are in memory at once.
func (m *coded) columns(suffix string, of func(scale, offset []float32) []float32) (*onnx.Tensor, error) {
	count := m.k / m.block
	return m.tensor(suffix, onnx.Float, []int64{count, m.n}, func(r *reader, w *bufio.Writer) error {
		all, row := make([]float32, count*m.n), int64(0)
		err := r.eachRow(func(_ []byte, scale, offset []float32) error {
			for b, x := range of(scale, offset) {
				all[int64(b)*m.n+row] = x
			}
			row++
			return nil
		})
		return errors.Join(err, writeFloats(w, all))
	})
}

func (m *coded) scaleColumns() (*onnx.Tensor, error) {
	return m.columns("_scales", func(scale, _ []float32) []float32 { return scale })
}

func (m *coded) offsetColumns() (*onnx.Tensor, error) {
	return m.columns("_offsets", func(_, offset []float32) []float32 { return offset })
}

// signedRows returns the codes minus mid as int8 by rows, [n, k].
func (m *coded) signedRows() (*onnx.Tensor, error) {
	return m.tensor("_signed", onnx.Int8, []int64{m.n, m.k}, func(r *reader, w *bufio.Writer) error {
		return r.eachRow(func(codes []byte, _, _ []float32) error {
			for _, q := range codes {
				if err := w.WriteByte(q - byte(m.mid)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// signedColumns returns the same by columns, [k, n], as int4 or int8. One group of columns is in memory at a time.
func (m *coded) signedColumns() (*onnx.Tensor, error) {
	t := onnx.Int8
	if m.bits == 4 {
		t = onnx.Int4
	}
	return m.tensor("_signed", t, []int64{m.k, m.n}, func(r *reader, w *bufio.Writer) error {
		const width = 32
		panels := (m.n + blocks.PanelRows - 1) / blocks.PanelRows
		codes := make([]byte, panels*blocks.PanelRows*width)
		half, odd := byte(0), false
		for b := range m.k / width {
			for p := range panels {
				r.group(codes[p*blocks.PanelRows*width:], p, b, width)
			}
			for c := range int64(width) {
				for row := range m.n {
					q := codes[row*width+c] - byte(m.mid)
					if m.bits == 4 {
						if odd = !odd; odd {
							half = q & 15
							continue
						}
						q = half | q<<4
					}
					if err := w.WriteByte(q); err != nil {
						return err
					}
				}
			}
		}
		if odd {
			return w.WriteByte(half)
		}
		return nil
	})
}

// floats returns the elements, [n, k].
func (m *coded) floats() (*onnx.Tensor, error) {
	return m.tensor("_float", onnx.Float, []int64{m.n, m.k}, func(r *reader, w *bufio.Writer) error {
		row := make([]float32, m.k)
		return r.eachRow(func(codes []byte, scale, offset []float32) error {
			for i, q := range codes {
				b := int64(i) / m.block
				row[i] = scale[b] * float32(int64(q)-m.mid)
				if r.offsets() {
					row[i] += offset[b]
				}
			}
			return writeFloats(w, row)
		})
	})
}

func writeFloats(w io.Writer, v []float32) error {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	_, err := w.Write(b)
	return err
}
