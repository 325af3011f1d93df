package weights

import (
	"fmt"
	"io"

	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// recipe assembles an initializer's elements from tensors: matrices one after the other along the first axes.
type recipe struct {
	dims   []int64 // of the initializer
	blocks []block
	add    float32 // to each element
	// qkvHeads is the number of heads whose rows of q, k and v the blocks restore, or 0.
	qkvHeads int64
}

// block is a matrix: stacked pieces of the same width, possibly transposed.
type block struct {
	pieces     []piece
	transposed bool
}

// piece is rows of cols elements of a tensor, from element first on.
type piece struct {
	t          *checkpoint.Tensor
	first      int64
	rows, cols int64
	// heads is the number of heads whose rows llama.cpp reordered, or 0.
	heads int64
}

func (b *block) size() (rows, cols int64) {
	for _, p := range b.pieces {
		rows, cols = rows+p.rows, p.cols
	}
	return rows, cols
}

// piecemeal is the approximate number of elements per read if no rows are reordered.
const piecemeal = 1 << 18

// groups yields the first row and number of rows of each read: a head's rows if they are reordered.
func (p *piece) groups(yield func(row, n int64) bool) {
	group := max(piecemeal/max(p.cols, 1), 1)
	if p.heads > 0 {
		group = p.rows / p.heads
	}
	for row := int64(0); row < p.rows; row += group {
		if !yield(row, min(group, p.rows-row)) {
			return
		}
	}
}

// stream writes the elements of recipes. Its buffers grow to the largest transposed matrix.
type stream struct {
	floats []float32
	whole  []byte
	out    []byte
}

// write writes the elements of r as type t and returns how many finite ones became infinite by the cast.
func (s *stream) write(w io.Writer, r *recipe, t onnx.DataType) (overflows int64, err error) {
	for i := range r.blocks {
		b := &r.blocks[i]
		write := s.rows
		if b.transposed {
			write = s.columns
		}
		n, err := write(w, b, t, r.add)
		overflows += n
		if err != nil {
			return overflows, err
		}
	}
	return overflows, nil
}

// rows writes the rows of a block in order.
func (s *stream) rows(w io.Writer, b *block, t onnx.DataType, add float32) (overflows int64, err error) {
	width := int64(t.Bits() / 8)
	for i := range b.pieces {
		p := &b.pieces[i]
		for row, n := range p.groups {
			s.out = sized(s.out, n*p.cols*width)
			count, err := s.fill(s.out, p, row, n, t, add)
			overflows += count
			if err != nil {
				return overflows, err
			}
			if _, err := w.Write(s.out); err != nil {
				return overflows, err
			}
		}
	}
	return overflows, nil
}

// band is the number of columns gathered at a time. It makes each column group take whole cache lines of the source.
const band = 64

// columns writes the block transposed.
func (s *stream) columns(w io.Writer, b *block, t onnx.DataType, add float32) (overflows int64, err error) {
	width := int64(t.Bits() / 8)
	rows, cols := b.size()
	s.whole = sized(s.whole, rows*cols*width)
	at := int64(0)
	for i := range b.pieces {
		p := &b.pieces[i]
		for row, n := range p.groups {
			end := at + n*p.cols*width
			count, err := s.fill(s.whole[at:end], p, row, n, t, add)
			overflows += count
			if err != nil {
				return overflows, err
			}
			at = end
		}
	}
	for first := int64(0); first < cols; first += band {
		n := min(band, cols-first)
		s.out = sized(s.out, n*rows*width)
		gather(s.out, s.whole, rows, cols, first, n, width)
		if _, err := w.Write(s.out); err != nil {
			return overflows, err
		}
	}
	return overflows, nil
}

// gather writes columns first to first+n-1 of a matrix as rows.
func gather(out, matrix []byte, rows, cols, first, n, width int64) {
	for r := int64(0); r < rows; r++ {
		src := matrix[(r*cols+first)*width : (r*cols+first+n)*width]
		switch width {
		case 4:
			for c := int64(0); c < n; c++ {
				*(*[4]byte)(out[(c*rows+r)*4:]) = *(*[4]byte)(src[c*4:])
			}
		case 2:
			for c := int64(0); c < n; c++ {
				*(*[2]byte)(out[(c*rows+r)*2:]) = *(*[2]byte)(src[c*2:])
			}
		default:
			for c := int64(0); c < n; c++ {
				copy(out[(c*rows+r)*width:(c*rows+r+1)*width], src[c*width:])
			}
		}
	}
}

// fill writes n rows of a piece to out, as type t. Reordered heads are filled one head at a time: PyTorch's row
// half·d/2 + j is the file's row 2j + half.
func (s *stream) fill(out []byte, p *piece, row, n int64, t onnx.DataType, add float32) (overflows int64, err error) {
	width := int64(t.Bits() / 8)
	first := p.first + row*p.cols
	if p.t.DataType == t && add == 0 {
		b, err := p.t.Bytes()
		if err != nil {
			return 0, err
		}
		b = b[first*width : (first+n*p.cols)*width]
		if p.heads == 0 {
			copy(out, b)
		} else {
			unpermute(out, b, n, p.cols*width)
		}
		return 0, nil
	}
	s.floats = sized(s.floats, n*p.cols)
	if err := p.t.Float32(s.floats, first); err != nil {
		return 0, err
	}
	if add != 0 {
		for i := range s.floats {
			s.floats[i] += add
		}
	}
	cast := casts[t]
	if cast == nil {
		return 0, fmt.Errorf("tensor %q: %s cannot be cast to %s", p.t.Name, p.t.Type, t)
	}
	if p.heads == 0 {
		return cast(out, s.floats), nil
	}
	for i := int64(0); i < n; i++ {
		to := unpermuted(i, n)
		overflows += cast(out[to*p.cols*width:(to+1)*p.cols*width], s.floats[i*p.cols:(i+1)*p.cols])
	}
	return overflows, nil
}

// unpermute puts the rows of one head, of bytes bytes each, into PyTorch's order.
func unpermute(out, b []byte, rows, bytes int64) {
	for i := int64(0); i < rows; i++ {
		to := unpermuted(i, rows)
		copy(out[to*bytes:(to+1)*bytes], b[i*bytes:])
	}
}

// unpermuted returns PyTorch's row for llama.cpp's row i of a head with this many rows.
func unpermuted(i, rows int64) int64 { return i%2*(rows/2) + i/2 }

// sized returns a slice of n elements, in s if it has room.
func sized[T any](s []T, n int64) []T {
	if int64(cap(s)) >= n {
		return s[:n]
	}
	return make([]T, n)
}
