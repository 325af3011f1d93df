package dims

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// waves are sines and cosines of positions times rates, as in rotary embeddings and sinusoidal positions. The rates are
// powers of a base. Only round bases are accepted, because a few rows do not distinguish others.
type waves struct {
	positions, channels int       // axes
	rates               []float64 // of each channel, in float32
	cosine              []bool    // of each channel
	first               int       // the position of the first row
	angles              bool      // the rows are positions times rates themselves
}

// bases are the bases of published models.
var bases = []float64{100, 1000, 10000, 20000, 50000, 100000, 150000, 160000, 200000, 250000, 300000, 500000, 600000,
	800000, 1e6, 1.5e6, 2e6, 4e6, 5e6, 8e6, 1e7, 1.1e7, 5e7, 1e8, 1e9}

// closeTo is the allowed difference from the formula: a few rounding errors of numbers below 1.
const closeTo = 4e-7

// findAngles looks for positions times rates, bit for bit. The first position is that of the first row: with a cache,
// it is the length of the past.
func findAngles(t *reference.Tensor, positions, channels int) *waves {
	n, m := t.Shape[positions], t.Shape[channels]
	if t.DataType != onnx.Float || n < fewest {
		return nil
	}
	s := onnx.RowMajor(t.Shape)
	at := func(i, k int) float64 { return t.F[i*s[positions]+k*s[channels]] }
	w := &waves{positions: positions, channels: channels, angles: true, rates: make([]float64, m)}
	if first := at(0, 0) / (at(1, 0) - at(0, 0)); math.Abs(first) < maxTable {
		w.first = int(math.Round(first))
	}
	fits := func(k int) bool {
		for i := range n {
			if at(i, k) != w.value(i, k, w.rates) {
				return false
			}
		}
		return true
	}
	for k := range m {
		low := float32(at(1, k) / float64(w.first+1))
		if w.first < 0 { // as biases by distance, the last of which is 0
			low = float32(at(0, k) / float64(w.first))
		}
		rates := []float32{low, math.Nextafter32(low, 0), math.Nextafter32(low, 2*low)}
		if !slices.ContainsFunc(rates, func(r float32) bool { w.rates[k] = float64(r); return fits(k) }) {
			return nil
		}
	}
	return w
}

// findWaves looks for waves over two axes.
func findWaves(t *reference.Tensor, positions, channels int) *waves {
	n, m := t.Shape[positions], t.Shape[channels]
	if t.DataType != onnx.Float || n < fewest || m < 2 {
		return nil
	}
	s := onnx.RowMajor(t.Shape)
	at := func(i, k int) float64 { return t.F[i*s[positions]+k*s[channels]] }
	w := &waves{positions: positions, channels: channels, cosine: make([]bool, m)}
	first := 0 // or with a cache, up to mostFirst
	for k := range m {
		if w.cosine[k] = at(0, k) == 1; at(0, k) != 0 && at(0, k) != 1 {
			first = mostFirst
		}
	}
	if slices.ContainsFunc(t.F, func(x float64) bool { return !(math.Abs(x) <= 1) }) {
		return nil
	}
	fits := func(rates []float64) bool {
		for i := range n {
			for k := range m {
				if math.Abs(w.value(i, k, rates)-at(i, k)) > closeTo {
					return false
				}
			}
		}
		return true
	}
	candidates := w.candidates(m)
	for w.first = min(first, 1); w.first <= first; w.first++ {
		for kind := range 1 + min(first, 1) {
			for k := 0; k < m && first > 0; k++ { // with a cache, all are sines or all are cosines
				w.cosine[k] = kind == 1
			}
			for _, rates := range candidates {
				if !fits(rates) {
					continue
				}
				if w.rates != nil && !sameRates(w.rates, rates) {
					return nil // the rows do not show it
				}
				w.rates = rates
			}
			if w.rates != nil {
				return w
			}
		}
	}
	return nil
}

// mostFirst bounds the positions before a table of sines or cosines.
const mostFirst = 4096

func sameRates(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6*a[i] {
			return false
		}
	}
	return true
}

// candidates lists rates of m channels: both halves of a row have the same rates, or pairs of neighbors do, or all
// channels differ.
func (w *waves) candidates(m int) (list [][]float64) {
	for _, base := range bases {
		for _, of := range []struct {
			count int // number of different rates
			which func(k int) int
		}{
			{m, func(k int) int { return k }}, {m / 2, func(k int) int { return k % (m / 2) }},
			{m / 2, func(k int) int { return k / 2 }},
		} {
			for _, whole := range []int{of.count, of.count - 1} {
				if whole < 1 || of.count < m && m%2 != 0 {
					continue
				}
				rates := make([]float64, m)
				for k := range rates {
					rates[k] = float64(float32(math.Pow(base, -float64(of.which(k))/float64(whole))))
				}
				list = append(list, rates)
			}
		}
	}
	return list
}

// value returns an element in float32.
func (w *waves) value(i, k int, rates []float64) float64 {
	angle := float64(float32(float64(w.first+i) * rates[k]))
	if w.angles {
		return angle
	}
	if w.cosine[k] {
		return float64(float32(math.Cos(angle)))
	}
	return float64(float32(math.Sin(angle)))
}

// waves returns a table of some length that continues its waves. Its rows stay the same bit for bit. If first is not
// nil, it is the position of the first row, and the table has the rows before as well.
func (e *emitter) waves(c *constant, length *onnx.Value, first *sum) (*onnx.Value, error) {
	w, t := c.family.waves, c.tensor
	for axis, even := range c.family.even {
		if even && t.Shape[axis] > 1 {
			t = slice(t, axis, 0, 1)
		}
	}
	start, end, from := e.ints(0), length, w.first
	if first != nil {
		shape := slices.Clone(t.Shape)
		shape[w.positions] += from
		all, err := c.family.extended(t, shape, 0)
		if err != nil {
			return nil, err
		}
		start, from, t = e.number(first), 0, all
		end = e.op("Add", nil, start, length)
	}
	table, err := t.ToONNX(c.value.Name + "_rows")
	if err != nil {
		return nil, err
	}
	rows := e.change.AddInitializer(e.graph, table)
	n := int64(t.Shape[w.positions])
	last := e.op("Squeeze", nil, e.op("Max", nil, end, e.ints(n)))
	places := e.op("Range", nil, e.scalar(n), last, e.scalar(1))
	if from != 0 {
		places = e.op("Add", nil, places, e.scalar(int64(from)))
	}
	places = e.cast(places, onnx.Int64, onnx.Float)
	dims := make([]int64, t.Rank())
	for i := range dims {
		dims[i] = 1
	}
	dims[w.positions] = -1
	places = e.op("Reshape", nil, places, e.ints(dims...))
	dims[w.positions], dims[w.channels] = 1, int64(len(w.rates))
	perChannel := func(x *reference.Tensor) (*onnx.Value, error) {
		x.Shape = x.Shape[:0]
		for _, d := range dims {
			x.Shape = append(x.Shape, int(d))
		}
		stored, err := x.ToONNX("free_rates")
		if err != nil {
			return nil, err
		}
		return e.change.AddInitializer(e.graph, stored), nil
	}
	rates, err := perChannel(&reference.Tensor{DataType: onnx.Float, F: w.rates})
	if err != nil {
		return nil, err
	}
	more := e.op("Mul", nil, places, rates)
	if !w.angles {
		if more, err = w.turned(e, more, perChannel); err != nil {
			return nil, err
		}
	}
	all := e.op("Concat", []*onnx.Attribute{onnx.IntAttr("axis", int64(w.positions))}, rows, more)
	return e.op("Slice", nil, all, start, end, e.ints(int64(w.positions))), nil
}

// turned returns the sines and cosines of angles.
func (w *waves) turned(e *emitter, angles *onnx.Value,
	perChannel func(x *reference.Tensor) (*onnx.Value, error)) (*onnx.Value, error) {
	cosine := &reference.Tensor{DataType: onnx.Bool, I: make([]int64, len(w.rates))}
	for k, is := range w.cosine {
		if is {
			cosine.I[k] = 1
		}
	}
	which, err := perChannel(cosine)
	if err != nil {
		return nil, err
	}
	return e.op("Where", nil, which, e.op("Cos", nil, angles), e.op("Sin", nil, angles)), nil
}
