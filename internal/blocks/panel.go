package blocks

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// PanelRows is the number of rows of a panel.
const PanelRows = 16

// group is the number of a row's elements whose codes are adjacent in a panel.
const group = 32

// Panels describes the panel layout of a format's blocks: 16 rows of a matrix, in several arrays, whose elements are
// scale * (code - Zero) + minus. The op mojo.Linear is defined for this layout. Packing is lossless: unpacking restores
// the bytes.
type Panels struct {
	Code string // int4, int8, e2m1 or e4m3
	Zero int64
	// Block is the number of a row's elements that share a scale; Scale is the type of scales and minuses.
	Block int
	Scale onnx.DataType
	Minus bool
	// Shared means that the rows of a panel have one scale.
	Shared bool
	// Super is the number of elements whose scale and minus have another factor in float16, or 0.
	Super int

	format *Format
	split  func(p *parts, block []byte)
	join   func(block []byte, p *parts)
}

// parts holds the arrays of one block of a row. A byte holds two 4-bit codes: of 32, code i and code i+16.
type parts struct {
	codes                  [256]byte
	scale, minus           [32]byte
	superScale, superMinus [2]byte
}

// Panel holds a panel's arrays, nil for arrays that the format lacks or the caller does not need. With words words of 4
// bytes for the codes of a group of 32 elements, word j of group b of row r is word (b*words + j)*16 + r of Codes;
// scale b of row r is element b*16 + r of Scale, and likewise for the others.
type Panel struct{ Codes, Scale, Minus, SuperScale, SuperMinus []byte }

// Arrays returns the panel's arrays in the order of the ops' inputs: codes, scale, minus, super scale, super minus.
func (p *Panel) Arrays() [5]*[]byte {
	return [5]*[]byte{&p.Codes, &p.Scale, &p.Minus, &p.SuperScale, &p.SuperMinus}
}

// Panels returns the panel layout of the format, or nil without one.
func (f *Format) Panels() *Panels { return f.panels }

// Sizes returns the bytes of a panel's arrays for rows of cols elements, 0 for an array that the format lacks.
func (p *Panels) Sizes(cols int64) (codes, scale, minus, superScale, superMinus int64) {
	codes = cols * PanelRows
	if !p.takesByte() {
		codes /= 2
	}
	scale = cols / int64(p.Block) * p.ScaleRows() * int64(p.Scale.Bits()/8)
	if p.Super > 0 {
		superScale = cols / int64(p.Super) * PanelRows * 2
	}
	if p.Minus {
		minus, superMinus = scale, superScale
	}
	return
}

// Dims returns the shapes of these arrays for panels of rows of cols elements, nil for an array that the format lacks.
func (p *Panels) Dims(panels, cols int64) [5][]int64 {
	scales := []int64{panels, cols / int64(p.Block), p.ScaleRows()}
	dims := [5][]int64{{panels, cols / group, int64(p.words()), 4 * PanelRows}, scales}
	if p.Minus {
		dims[2] = scales
	}
	if p.Super > 0 {
		dims[3] = []int64{panels, cols / int64(p.Super), PanelRows}
		if p.Minus {
			dims[4] = dims[3]
		}
	}
	return dims
}

// RowSize returns the bytes of a row in whole panels.
func (p *Panels) RowSize(cols int64) float64 {
	codes, scale, minus, superScale, superMinus := p.Sizes(cols)
	return float64(codes+scale+minus+superScale+superMinus) / PanelRows
}

// ScaleRows returns the number of a panel's scales for a block of columns.
func (p *Panels) ScaleRows() int64 {
	if p.Shared {
		return 1
	}
	return PanelRows
}

// takesByte reports whether a code takes a byte.
func (p *Panels) takesByte() bool { return p.Code == "int8" || p.Code == "e4m3" }

// New returns a panel of zeros for rows of cols elements.
func (p *Panels) New(cols int64) *Panel {
	codes, scale, minus, superScale, superMinus := p.Sizes(cols)
	array := func(n int64) []byte {
		if n == 0 {
			return nil
		}
		return make([]byte, n)
	}
	return &Panel{array(codes), array(scale), array(minus), array(superScale), array(superMinus)}
}

// Pack copies a row from the format's layout to row r of a panel.
func (p *Panels) Pack(panel *Panel, r int, row []byte) {
	var x parts
	for b := 0; len(row) > 0; b, row = b+1, row[p.format.Size:] {
		p.split(&x, row[:p.format.Size])
		p.each(panel, r, b, &x, func(part, array []byte) { copy(array, part) })
	}
}

// Unpack is the inverse of Pack.
func (p *Panels) Unpack(row []byte, panel *Panel, r int) {
	var x parts
	for b := 0; len(row) > 0; b, row = b+1, row[p.format.Size:] {
		p.each(panel, r, b, &x, func(part, array []byte) { copy(part, array) })
		p.join(row[:p.format.Size], &x)
	}
}

// each calls move for the pieces of block b of row r in the block's parts and in the panel's arrays.
func (p *Panels) each(panel *Panel, r, b int, x *parts, move func(part, array []byte)) {
	words := p.words()
	for w := range p.format.Elements / group * words {
		if panel.Codes != nil {
			at := (b*p.format.Elements/group*words+w)*PanelRows + r
			move(x.codes[4*w:4*w+4], panel.Codes[4*at:4*at+4])
		}
	}
	numbers := func(part, array []byte, count, width int) {
		if array == nil {
			return
		}
		for i := range count {
			at := p.place(b*count+i, r)
			move(part[i*width:(i+1)*width], array[at*width:(at+1)*width])
		}
	}
	scales, width := p.format.Elements/p.Block, p.Scale.Bits()/8
	numbers(x.scale[:], panel.Scale, scales, width)
	numbers(x.minus[:], panel.Minus, scales, width)
	numbers(x.superScale[:], panel.SuperScale, 1, 2)
	numbers(x.superMinus[:], panel.SuperMinus, 1, 2)
}

// words returns the number of 4-byte words for the codes of a group.
func (p *Panels) words() int {
	if p.takesByte() {
		return group / 4
	}
	return group / 8
}

// place returns the index of a row's scale for block b.
func (p *Panels) place(b, r int) int {
	if p.Shared {
		return b
	}
	return b*PanelRows + r
}

// Decode sets dst to the elements of row r as mojo.Linear's definition computes them. Every product is exact in
// float32, so only the addition of minus rounds.
func (p *Panels) Decode(dst []float32, panel *Panel, r int) {
	words, values := p.words(), p.values()
	shift, mask := 0, byte(0xff)
	if !p.takesByte() {
		shift, mask = 4, 15
	}
	for i := 0; i < len(dst); i += group / 2 {
		half := i % group / (group / 2)
		factor, minus := p.factors(panel, i, r)
		word := i / group * words
		if shift == 0 {
			word += half * words / 2
		}
		for j := range group / 8 {
			codes := panel.Codes[4*((word+j)*PanelRows+r):][:4]
			out := dst[i+4*j:][:4]
			for k, c := range codes {
				out[k] = factor * values[c>>(half*shift)&mask]
				if p.Minus {
					out[k] += minus
				}
			}
		}
	}
}

// factors returns scale and minus of element i of row r.
func (p *Panels) factors(panel *Panel, i, r int) (factor, minus float32) {
	at := p.place(i/p.Block, r)
	factor = p.number(panel.Scale, at)
	if p.Minus {
		minus = p.number(panel.Minus, at)
	}
	if p.Super > 0 {
		at := 2 * (i/p.Super*PanelRows + r)
		factor *= Float16(le.Uint16(panel.SuperScale[at:]))
		if p.Minus {
			minus *= Float16(le.Uint16(panel.SuperMinus[at:]))
		}
	}
	return factor, minus
}

// values returns the values of codes before scaling.
func (p *Panels) values() *[256]float32 {
	switch p.Code {
	case "e2m1":
		return Values(onnx.Float4E2M1)
	case "e4m3":
		return Values(onnx.Float8E4M3FN)
	}
	var values [256]float32
	for i := range values {
		values[i] = float32(int64(i) - p.Zero)
	}
	return &values
}

// number returns an element of scale or minus.
func (p *Panels) number(array []byte, at int) float32 {
	switch p.Scale {
	case onnx.Float:
		return math.Float32frombits(le.Uint32(array[4*at:]))
	case onnx.Float16:
		return Float16(le.Uint16(array[2*at:]))
	case onnx.Int8:
		return float32(int8(array[at]))
	}
	return Values(onnx.Float8E8M0)[array[at]]
}

// String describes the layout for people, such as "int4, blocks of 32".
func (p *Panels) String() string { return fmt.Sprintf("%s, blocks of %d", p.Code, p.Block) }
