package quantize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// tileElements bounds the elements of a matrix in memory at a time.
const tileElements = 2 << 20

// matrix is a weight [n, k] with its rounded form, or several concatenated experts.
type matrix struct {
	tensor  *onnx.Tensor
	inOut   bool   // stored as [k, n]
	n, k    int64  // n counts the rows of all experts
	experts int64  // 0 for a weight without that dimension
	name    string // of the format
	format  *blocks.Format

	quantized *fused.Quantized // nil for 16-bit floats, which are narrow
	narrow    *onnx.Tensor
	// shared has rows in the stored format with the scales that several rows share. It is nil until needed, and for
	// formats with scales per row.
	shared [][]byte
	// kept has arrays computed while the codes were written, until they are written themselves.
	kept map[int][]byte
	// tile has rows read by elements, starting at row from.
	tile []float32
	from int64
}

// isHalf reports whether the format is a float format, which has no panels.
func (m *matrix) isHalf() bool { return m.format.Panels() == nil }

// size returns the stored size of the matrix in bytes.
func (m *matrix) size() int64 {
	if m.narrow != nil {
		return m.narrow.Size()
	}
	return m.quantized.Size()
}

// rounded is a panel of rows, with the sums for its error.
type rounded struct {
	panel *blocks.Panel
	sums  sums
	err   error
}

// read sets dst to rows starting at first.
func (m *matrix) read(dst []float32, first int64) error {
	for rows := m.n / max(m.experts, 1); len(dst) > 0; {
		count := min(int64(len(dst))/m.k, rows-first%rows)
		if err := m.readExpert(dst[:count*m.k], first/rows*rows, first%rows, rows); err != nil {
			return err
		}
		dst, first = dst[count*m.k:], first+count
	}
	return nil
}

// readExpert reads rows of the expert whose rows start at begin.
func (m *matrix) readExpert(dst []float32, begin, first, rows int64) error {
	raw, err := m.tensor.Bytes()
	if err != nil {
		return err
	}
	read, width := blocks.ReaderOf(m.tensor.DataType), int64(m.tensor.DataType.Bits()/8)
	raw = raw[begin*m.k*width:]
	if !m.inOut {
		read(dst, raw[first*m.k*width:])
		return nil
	}
	column := make([]float32, int64(len(dst))/m.k)
	for j := range m.k {
		read(column, raw[(j*rows+first)*width:])
		for i, x := range column {
			dst[int64(i)*m.k+j] = x
		}
	}
	return nil
}

// tileRows returns the number of rows in memory at a time, whole panels.
func (m *matrix) tileRows() int64 {
	return max(tileElements/m.k/blocks.PanelRows, 1) * blocks.PanelRows
}

// tiles calls f for the floats of the first rows.
func (m *matrix) tiles(rows int64, f func(first int64, tile []float32) error) error {
	step := min(m.tileRows(), rows)
	tile := make([]float32, step*m.k)
	for first := int64(0); first < rows; first += step {
		t := tile[:min(step, rows-first)*m.k]
		if err := m.read(t, first); err != nil {
			return err
		}
		if err := f(first, t); err != nil {
			return err
		}
	}
	return nil
}

// share computes the scales of rows that share them. The last group of a matrix, or of an expert, may be smaller.
func (m *matrix) share() error {
	if m.format.SharedRows == 0 || m.shared != nil {
		return nil
	}
	rows, size := m.n/max(m.experts, 1), m.k/int64(m.format.Elements)*int64(m.format.Size)
	group := make([]float32, int64(m.format.SharedRows)*m.k)
	var shared [][]byte
	for begin := int64(0); begin < m.n; begin += rows {
		for first := int64(0); first < rows; first += int64(m.format.SharedRows) {
			part := group[:min(int64(m.format.SharedRows), rows-first)*m.k]
			if err := m.readExpert(part, begin, first, rows); err != nil {
				return err
			}
			row := make([]byte, size)
			if err := m.format.Share(row, part, m.k); err != nil {
				return fmt.Errorf("rows from %d on: %w", begin+first, err)
			}
			shared = append(shared, row)
		}
	}
	m.shared = shared
	return nil
}

// sharedOf returns the row with the scales that a row shares.
func (m *matrix) sharedOf(row int64) []byte {
	rows, of := m.n/max(m.experts, 1), int64(m.format.SharedRows)
	return m.shared[row/rows*((rows+of-1)/of)+row%rows/of]
}

// round calls f for each panel of the first rows, in order. sample has rows to multiply by the matrix.
func (m *matrix) round(rows int64, sample [][]float32, f func(*rounded) error) error {
	if err := m.share(); err != nil {
		return err
	}
	return m.tiles(rows, func(first int64, tile []float32) error {
		count := (int64(len(tile))/m.k + blocks.PanelRows - 1) / blocks.PanelRows
		made := make([]rounded, count)
		var wait sync.WaitGroup
		next := make(chan int, count)
		for i := range made {
			next <- i
		}
		close(next)
		for range min(runtime.GOMAXPROCS(0), len(made)) {
			wait.Add(1)
			go func() {
				defer wait.Done()
				work := &worker{matrix: m, sample: sample, stored: make([]byte, m.k/int64(m.format.Elements)*
					int64(m.format.Size)), want: make([]float32, m.k), got: make([]float32, m.k)}
				for i := range next {
					from := int64(i) * blocks.PanelRows * m.k
					work.panel(&made[i], first+int64(i)*blocks.PanelRows, tile[from:min(from+blocks.PanelRows*m.k,
						int64(len(tile)))])
				}
			}()
		}
		wait.Wait()
		for i := range made {
			if made[i].err != nil {
				return made[i].err
			}
			if err := f(&made[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// worker rounds one panel at a time.
type worker struct {
	*matrix
	sample    [][]float32
	stored    []byte
	want, got []float32
}

// panel rounds rows; 16-bit floats have no panel. The panel must decode, by mojo.Linear's definition, to the values of
// the format's blocks.
func (w *worker) panel(r *rounded, first int64, rows []float32) {
	p := w.format.Panels()
	if p != nil {
		r.panel = p.New(w.k)
	}
	for i := 0; len(rows) > 0; i, rows = i+1, rows[w.k:] {
		row := rows[:w.k]
		if w.shared != nil {
			copy(w.stored, w.sharedOf(first+int64(i)))
		}
		if err := w.format.Encode(w.stored, row); err != nil {
			r.err = fmt.Errorf("row %d: %w", first+int64(i), err)
			return
		}
		w.format.Decode(w.want, w.stored, 0)
		if p == nil {
			r.sums.add(row, w.want, w.sample)
			continue
		}
		p.Pack(r.panel, i, w.stored)
		p.Decode(w.got, r.panel, i)
		for j, x := range w.want {
			if w.got[j] != x {
				r.err = fmt.Errorf("element %d of row %d is %v, but %v in the form that mojo.Linear reads", j,
					first+int64(i), x, w.got[j])
				return
			}
		}
		r.sums.add(row, w.want, w.sample)
	}
}

// sums are the sums behind the errors of elements, and of products with them.
type sums struct {
	was, is, both, apart float64 // squares, and products of the two
	product, change      float64 // squares of the products, and of their differences
}

func (s *sums) add(was, is []float32, sample [][]float32) {
	for i, w := range was {
		a, b := float64(w), float64(is[i])
		s.was += a * a
		s.is += b * b
		s.both += a * b
		s.apart += (a - b) * (a - b)
	}
	if sample == nil {
		return
	}
	for i, w := range was {
		is[i] -= w
	}
	for _, x := range sample {
		y, d := dots(x, was, is)
		s.product += float64(y) * float64(y)
		s.change += float64(d) * float64(d)
	}
}

// dots multiplies x by two rows.
func dots(x, a, b []float32) (p, q float32) {
	a, b = a[:len(x)], b[:len(x)]
	var p0, p1, q0, q1 float32
	for i := 0; i+1 < len(x); i += 2 { // rows are whole blocks
		p0 += x[i] * a[i]
		p1 += x[i+1] * a[i+1]
		q0 += x[i] * b[i]
		q1 += x[i+1] * b[i+1]
	}
	return p0 + p1, q0 + q1
}

func (s *sums) join(o sums) {
	s.was, s.is, s.both, s.apart = s.was+o.was, s.is+o.is, s.both+o.both, s.apart+o.apart
	s.product, s.change = s.product+o.product, s.change+o.change
}

// part returns the root of the ratio of two sums of squares, and 0 for 0.
func part(of, all float64) float64 {
	if of == 0 {
		return 0
	}
	return math.Sqrt(of / all)
}

// cosine returns 1 if both are zero.
func (s *sums) cosine() float64 {
	if s.was == 0 && s.is == 0 {
		return 1
	}
	if s.was == 0 || s.is == 0 {
		return 0
	}
	return s.both / math.Sqrt(s.was) / math.Sqrt(s.is)
}

// describe creates the tensors, whose elements are computed when the model is written.
func (m *matrix) describe(name string) (err error) {
	if m.isHalf() {
		typ, dims := onnx.Float16, []int64{m.n, m.k}
		if m.format == blocks.BF16 {
			typ = onnx.BFloat16
		}
		if m.experts > 0 {
			dims = m.tensor.Dims
		}
		m.narrow, err = onnx.NewDeferred(name+"_"+m.name, typ, dims, m.writeNarrow)
		return err
	}
	m.quantized, err = fused.NewQuantized(name, m.name, m.format.Panels(), m.n, m.k, m.experts, func(name string,
		t onnx.DataType, dims []int64, array int) (*onnx.Tensor, error) {
		return onnx.NewDeferred(name, t, dims, func(w io.Writer) error { return m.write(w, array) })
	})
	return err
}

// writeNarrow writes the elements as 16-bit floats: a matrix by rows, and experts in their stored order.
func (m *matrix) writeNarrow(w io.Writer) error {
	stored := make([]byte, 0, 2*tileElements)
	encode := func(_ int64, tile []float32) error {
		stored = slices.Grow(stored[:0], 2*len(tile))[:2*len(tile)]
		if err := m.format.Encode(stored, tile); err != nil {
			return err
		}
		_, err := w.Write(stored)
		return err
	}
	if m.experts > 0 {
		asTheyLie := *m
		asTheyLie.inOut, asTheyLie.experts = false, 0
		return asTheyLie.tiles(m.n, encode)
	}
	return m.tiles(m.n, encode)
}

// write writes one of the arrays. The others of the same panels, which are smaller, are kept until they are written.
func (m *matrix) write(w io.Writer, array int) error {
	if b := m.kept[array]; b != nil {
		delete(m.kept, array)
		_, err := w.Write(b)
		return err
	}
	kept := map[int][]byte{}
	err := m.round(m.n, nil, func(r *rounded) error {
		for i, a := range r.panel.Arrays() {
			if array == 0 && i > 0 && *a != nil {
				kept[i] = append(kept[i], *a...)
			}
		}
		_, err := w.Write(*r.panel.Arrays()[array])
		return err
	})
	if array == 0 {
		m.kept = kept
	}
	return err
}

// sampled returns the first rows, in panels and as the floats that these represent.
func (m *matrix) sampled(rows int64) (*fused.Quantized, []float32, error) {
	rows = min(rows, m.n)
	parts := make([]bytes.Buffer, 5)
	floats := make([]float32, 0, rows*m.k)
	err := m.round(rows, nil, func(r *rounded) error {
		for i, a := range r.panel.Arrays() {
			parts[i].Write(*a)
		}
		row := make([]float32, m.k)
		for i := 0; i < blocks.PanelRows && int64(len(floats)) < rows*m.k; i++ {
			m.format.Panels().Decode(row, r.panel, i)
			floats = append(floats, row...)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	q, err := fused.NewQuantized("sample", m.name, m.format.Panels(), rows, m.k, 0, func(name string, t onnx.DataType,
		dims []int64, array int) (*onnx.Tensor, error) {
		return onnx.NewTensor(name, t, dims, parts[array].Bytes())
	})
	return q, floats, err
}

// errOther ends a comparison.
var errOther = errors.New("the elements differ")

// equal reports whether two weights have the same elements. Usually the first row decides.
func (m *matrix) equal(o *matrix) bool {
	if m.n != o.n || m.k != o.k || m.name != o.name || m.experts != o.experts {
		return false
	}
	for _, rows := range []int64{1, m.n} {
		err := m.tiles(rows, func(first int64, tile []float32) error {
			other := make([]float32, len(tile))
			if err := o.read(other, first); err != nil {
				return err
			}
			if !slices.Equal(tile, other) {
				return errOther
			}
			return nil
		})
		if err != nil {
			return false
		}
	}
	return true
}
