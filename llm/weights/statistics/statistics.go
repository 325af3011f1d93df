// Package statistics describes the elements of a tensor by a few numbers.
package statistics

import (
	"math"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Statistics describe the elements of a tensor. Min, Max, Mean and Std (of the population) cover the finite ones.
type Statistics struct {
	Finite         int64
	Min, Max       float64
	Mean, Std      float64
	Zeros          int64
	NaN, Inf       int64
	shift, sum, sq float64
}

// Of reads the elements of an initializer. It returns nil unless they are numbers of at least 8 bits.
func Of(t *onnx.Tensor) (*Statistics, error) {
	read := blocks.ReaderOf(t.DataType)
	if read == nil {
		return nil, nil
	}
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	width := int64(t.DataType.Bits() / 8)
	return Read(t.Len(), func(dst []float32, first int64) error {
		read(dst, b[first*width:])
		return nil
	})
}

// chunk is the number of elements per read.
const chunk = 1 << 18

// Read reads n elements, in chunks.
func Read(n int64, read func(dst []float32, first int64) error) (*Statistics, error) {
	s := &Statistics{Min: math.Inf(1), Max: math.Inf(-1)}
	buffer := make([]float32, min(n, chunk))
	for at := int64(0); at < n; at += chunk {
		part := buffer[:min(n-at, chunk)]
		if err := read(part, at); err != nil {
			return nil, err
		}
		s.add(part)
	}
	if s.Finite == 0 {
		s.Min, s.Max, s.Mean, s.Std = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		return s, nil
	}
	k := float64(s.Finite)
	s.Mean = s.shift + s.sum/k
	s.Std = math.Sqrt(max(s.sq/k-s.sum/k*(s.sum/k), 0))
	return s, nil
}

// add sums the differences from the first element, which keeps the variance of equal numbers exact.
func (s *Statistics) add(part []float32) {
	for _, f := range part {
		x := float64(f)
		switch {
		case math.IsNaN(x):
			s.NaN++
			continue
		case math.IsInf(x, 0):
			s.Inf++
			continue
		case x == 0:
			s.Zeros++
		}
		if s.Finite == 0 {
			s.shift = x
		}
		s.Finite++
		s.Min, s.Max = min(s.Min, x), max(s.Max, x)
		s.sum += x - s.shift
		s.sq += (x - s.shift) * (x - s.shift)
	}
}
