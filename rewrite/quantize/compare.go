package quantize

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Rows returns a function that reads the elements of an initializer, starting at first, in the order of products: one
// row per output, even if the initializer is stored transposed. It returns an error for anything but a float weight.
func Rows(v *onnx.Value) (dims []int64, read func(dst []float32, first int64) error, err error) {
	t := v.Const
	reader, width := blocks.ReaderOf(t.DataType), int64(t.DataType.Bits()/8)
	if reader == nil || !t.DataType.IsFloat() {
		return nil, nil, fmt.Errorf("%q is of %s", v.Name, t.DataType)
	}
	raw, err := t.Bytes()
	if err != nil {
		return nil, nil, err
	}
	if list := readers(v, false); len(t.Dims) != 2 || len(list) == 0 || !list[0].inOut {
		return t.Dims, func(dst []float32, first int64) error {
			reader(dst, raw[first*width:])
			return nil
		}, nil
	}
	m := &matrix{tensor: t, inOut: true, n: t.Dims[1], k: t.Dims[0]}
	return []int64{m.n, m.k}, m.elements, nil
}

// elements sets dst to elements starting at first, reading whole panels of rows at a time.
func (m *matrix) elements(dst []float32, first int64) error {
	for len(dst) > 0 {
		row := first / m.k
		count := min(m.tileRows(), m.n-row)
		if m.tile == nil || row < m.from || row >= m.from+int64(len(m.tile))/m.k {
			m.tile, m.from = make([]float32, count*m.k), row
			if err := m.read(m.tile, row); err != nil {
				return err
			}
		}
		n := copy(dst, m.tile[first-m.from*m.k:])
		dst, first = dst[n:], first+int64(n)
	}
	return nil
}

// Compare returns the root mean square of the differences of n elements, relative to that of the original elements, and
// the cosine of the angle between the two.
func Compare(n int64, was, is func(dst []float32, first int64) error) (rms, cosine float64, err error) {
	var all sums
	a, b := make([]float32, min(n, 1<<16)), make([]float32, min(n, 1<<16))
	for first := int64(0); first < n; first += int64(len(a)) {
		a, b = a[:min(int64(len(a)), n-first)], b[:min(int64(len(a)), n-first)]
		if err := was(a, first); err != nil {
			return 0, 0, err
		}
		if err := is(b, first); err != nil {
			return 0, 0, err
		}
		all.add(a, b, nil)
	}
	return part(all.apart, all.was), all.cosine(), nil
}
