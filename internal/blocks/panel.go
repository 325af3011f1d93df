package blocks

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// PanelRows is the number of rows of a panel.
const PanelRows = 16

// group is the number of a row's elements whose codes lie together in a panel.
const group = 32

// Panels says how a format's blocks stand in panels: 16 rows of a matrix, in several arrays, whose elements are
// scale * (code - Zero) + minus. It is the layout that the op mojo.Linear is defined for. Nothing is lost: what was
// packed into panels unpacks to the same bytes.
type Panels struct {
	Code string // int4, int8, e2m1 or e4m3
	Zero int64
	// Block is the number of a row's elements that share a scale; Scale is its type, and that of a minus.
	Block int
	Scale onnx.DataType
	Minus bool
	// Shared says that the rows of a panel have one scale.
	Shared bool
	// Super is the number of elements whose scale, and whose minus, are multiplied by one more factor, of float16; 0
	// where there is none.
	Super int

	format *Format
	split  func(p *parts, block []byte)
	join   func(block []byte, p *parts)
}

// parts is one block of a row, its arrays apart. Codes of 4 bits stand two in a byte: of 32, code i and code i+16.
type parts struct {
	codes                  [256]byte
	scale, minus           [32]byte
	superScale, superMinus [2]byte
}

// Panel is a panel's arrays, nil those that the format lacks, or that are not asked for. With bytes of a group b of 32
// elements in words of 4 bytes, word j of row r is word (b*words + j)*16 + r of Codes; scale b of row r is element
// b*16 + r of Scale, and so for the others.
type Panel struct{ Codes, Scale, Minus, SuperScale, SuperMinus []byte }

// Arrays lists the panel's arrays in the order of the ops' inputs: codes, scale, minus, super scale, super minus.
func (p *Panel) Arrays() [5]*[]byte {
	return [5]*[]byte{&p.Codes, &p.Scale, &p.Minus, &p.SuperScale, &p.SuperMinus}
}

// Panels returns how blocks of the format stand in panels; nil where there is no such form.
func (f *Format) Panels() *Panels { return f.panels }

// Sizes returns the bytes that a panel's arrays take for rows of so many elements, 0 for an array that the format
// lacks.
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

// Dims are the shapes of those arrays for so many panels of rows of cols elements, nil for one that the format lacks.
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

// RowSize is the number of bytes that a row takes, of whole panels.
func (p *Panels) RowSize(cols int64) float64 {
	codes, scale, minus, superScale, superMinus := p.Sizes(cols)
	return float64(codes+scale+minus+superScale+superMinus) / PanelRows
}

// ScaleRows is the number of scales that a panel has for a block of columns.
func (p *Panels) ScaleRows() int64 {
	if p.Shared {
		return 1
	}
	return PanelRows
}

// takesByte reports whether a code takes a byte.
func (p *Panels) takesByte() bool { return p.Code == "int8" || p.Code == "e4m3" }

// New makes a panel of zeros for rows of so many elements.
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

// Pack puts a row, as the format stores it, into row r of a panel.
func (p *Panels) Pack(panel *Panel, r int, row []byte) {
	var x parts
	for b := 0; len(row) > 0; b, row = b+1, row[p.format.Size:] {
		p.split(&x, row[:p.format.Size])
		p.each(panel, r, b, &x, func(part, array []byte) { copy(array, part) })
	}
}

// Unpack is the opposite of Pack.
func (p *Panels) Unpack(row []byte, panel *Panel, r int) {
	var x parts
	for b := 0; len(row) > 0; b, row = b+1, row[p.format.Size:] {
		p.each(panel, r, b, &x, func(part, array []byte) { copy(part, array) })
		p.join(row[:p.format.Size], &x)
	}
}

// each calls move for what belongs together of block b of row r: in its parts, and in the panel's arrays.
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

// words is the number of words of 4 bytes that hold the codes of a group.
func (p *Panels) words() int {
	if p.takesByte() {
		return group / 4
	}
	return group / 8
}

// place is the number of a row's scale of block number b.
func (p *Panels) place(b, r int) int {
	if p.Shared {
		return b
	}
	return b*PanelRows + r
}

// Decode sets dst to the elements of row r: what mojo.Linear's definition makes of the arrays. Every product is exact
// in float32, so that the one rounding is that of adding minus.
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

// values returns what codes stand for before they are scaled.
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

// number is an element of scale or minus.
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

// String names the layout for a person, such as "int4, blocks of 32".
func (p *Panels) String() string { return fmt.Sprintf("%s, blocks of %d", p.Code, p.Block) }
