// Package ranges reports the ranges of a model's values, and the losses of rounding them to 16-bit types.
package ranges

import (
	"cmp"
	"encoding/binary"
	"math"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/x448/float16"
)

// The limits of float16.
const (
	Greatest = 65504           // the greatest finite number
	Least    = 1.0 / (1 << 24) // the smallest subnormal
)

// Loss is the loss of rounding a value to a type. The error covers only elements that stay finite.
type Loss struct {
	// Error is the root mean square of the differences, relative to the elements.
	Error    float64 `json:"error"`
	Infinite float64 `json:"infinite"` // share of elements that become infinite
	Zero     float64 `json:"zero"`     // share of nonzero elements that become zero
}

// Row summarizes a value over all runs and all iterations of a loop.
type Row struct {
	Value string `json:"value"`
	Block string `json:"block"`
	Op    string `json:"op"` // the op that computes it
	// Path leads to a value in a branch or loop. In a loop it names the iteration with the greatest element.
	trace.Path `json:"within,omitempty"`
	Case       int   `json:"case"` // the case with the greatest element
	Elements   int64 `json:"elements"`
	// Greatest is the greatest magnitude of a finite element that is not masked.
	Greatest float64 `json:"greatest"`
	Over     float64 `json:"over"`  // share of elements beyond 65504
	Under    float64 `json:"under"` // share of nonzero elements below the smallest subnormal of float16
	// Masked is the share of elements below -65504 that only a Softmax reads. They become zeros, clipped or not.
	Masked   float64 `json:"masked"`
	NaN      int64   `json:"nan"`      // elements in float32
	Infinite int64   `json:"infinite"` // elements in float32
	// Float32 reports that apply --dtype float16 leaves the value in float32, such as the squares of norms.
	Float32  bool `json:"stays_float32"`
	Float16  Loss `json:"float16"`
	BFloat16 Loss `json:"bfloat16"`

	counts
	place trace.Block
}

// counts are the numerators of the shares.
type counts struct {
	over, under, masked int64
	half, brain         tally
}

type tally struct {
	infinite, zero int64
	off, square    float64 // sums of squares: of the differences, and of the elements
}

func (t *tally) add(x, rounded float64) {
	switch {
	case math.IsInf(rounded, 0):
		t.infinite++
		return
	case rounded == 0 && x != 0:
		t.zero++
	}
	t.off += (rounded - x) * (rounded - x)
	t.square += x * x
}

func (t *tally) loss(elements int64) Loss {
	l := Loss{Infinite: share(t.infinite, elements), Zero: share(t.zero, elements)}
	if t.square > 0 {
		l.Error = math.Sqrt(t.off / t.square)
	}
	return l
}

func share(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }

// add counts the elements of a tensor and returns its greatest magnitude.
func (r *Row) add(t *onnx.Tensor, hidden bool) (greatest float64, err error) {
	r.Elements += t.Len()
	if t.DataType == onnx.Float {
		b, err := t.Bytes()
		for ; len(b) >= 4; b = b[4:] {
			greatest = max(greatest, r.element(math.Float32frombits(binary.LittleEndian.Uint32(b)), hidden))
		}
		return greatest, err
	}
	all, err := golden.Float64s(t)
	for _, x := range all {
		greatest = max(greatest, r.element(float32(x), hidden))
	}
	return greatest, err
}

// element counts an element and returns its magnitude, 0 if it is not finite or masked.
func (r *Row) element(x float32, hidden bool) float64 {
	wide := float64(x)
	size := math.Abs(wide)
	switch {
	case size != size:
		r.NaN++
		return 0
	case math.IsInf(wide, 0):
		r.Infinite++
		return 0
	case hidden && wide < -Greatest:
		r.masked++
		return 0
	case size > Greatest:
		r.over++
	case size < Least && size > 0:
		r.under++
	}
	r.half.add(wide, float64(float16.Fromfloat32(x).Float32()))
	r.brain.add(wide, float64(math.Float32frombits(uint32(blocks.BFloat16(x))<<16)))
	return size
}

// finish computes the shares.
func (r *Row) finish() {
	r.Over, r.Under, r.Masked = share(r.over, r.Elements), share(r.under, r.Elements), share(r.masked, r.Elements)
	r.Float16, r.BFloat16 = r.half.loss(r.Elements), r.brain.loss(r.Elements)
}

// compare sorts the values that float16 holds worst first: by overflow, then by magnitude.
func (r *Row) compare(o *Row) int {
	return cmp.Or(cmp.Compare(o.Over, r.Over), cmp.Compare(o.Greatest, r.Greatest))
}
