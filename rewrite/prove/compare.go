package prove

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Comparison compares the outputs of two computations.
type Comparison struct {
	// Names are the names of the outputs in messages; nil uses their numbers.
	Names []string
	// By names the second computation in messages.
	By string
	// Bound is the allowed difference of an output.
	Bound Bound
	// Exact means that nothing is rounded: types may then differ.
	Exact bool
	// Strict requires infinities and NaN of the first outputs in the same places. Without it, anything may be there.
	Strict bool
	// Some skips the outputs that the first computation lacks.
	Some bool
	// Wider, if not nil, is called for an output that exceeds its bound, and may raise the bound.
	Wider func(d *Difference) error
	// Each, if not nil, receives the difference in each float output.
	Each func(d *Difference)
	// Terse leaves the bound out of messages.
	Terse bool
	// Says makes messages say that an output "differs", if nothing before them does.
	Says bool
}

// A Difference is the difference in one output.
type Difference struct {
	Output int
	Type   onnx.DataType
	// Far is the largest difference, Scale the largest magnitude, and Allowed the bound.
	Far, Scale, Allowed float64
}

// Compare returns an error that describes the first output that differs.
func (c *Comparison) Compare(want, got []*reference.Tensor) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d outputs instead of %d", len(got), len(want))
	}
	for i, w := range want {
		if w == nil && c.Some {
			continue
		}
		name := strconv.Itoa(i)
		if c.Names != nil {
			name = c.Names[i]
		}
		if err := c.mismatch(name, w, got[i]); err != nil {
			return err
		}
		if !w.IsFloat() {
			continue
		}
		d := &Difference{Output: i, Type: w.DataType}
		d.Far, d.Scale = Distance(w.F, got[i].F)
		d.Allowed = c.Bound(i, d.Type, d.Scale)
		if d.Far > d.Allowed && c.Wider != nil {
			if err := c.Wider(d); err != nil {
				return err
			}
		}
		if c.Each != nil {
			c.Each(d)
		}
		if d.Far > d.Allowed {
			return c.tooFar(name, d)
		}
	}
	return nil
}

func (c *Comparison) tooFar(name string, d *Difference) error {
	differs, allowed := "", ""
	if c.Says {
		differs = "differs "
	}
	if !c.Terse {
		allowed = fmt.Sprintf(" and %.3g allowed", d.Allowed)
	}
	return fmt.Errorf("output %q %sby %.3g, its greatest magnitude being %.3g%s", name, differs, d.Far, d.Scale,
		allowed)
}

// mismatch returns an error for any difference in an output other than between finite floats.
func (c *Comparison) mismatch(name string, want, got *reference.Tensor) error {
	switch {
	case want == nil || got == nil:
		return fmt.Errorf("output %q has no value", name)
	case !slices.Equal(want.Shape, got.Shape):
		return fmt.Errorf("output %q has the shape %v, %s returns %v", name, want.Shape, c.By, got.Shape)
	case !c.Exact && want.DataType != got.DataType:
		return fmt.Errorf("output %q is %s, %s returns %s", name, want.DataType, c.By, got.DataType)
	case !want.IsFloat() && (!slices.Equal(want.I, got.I) || !slices.Equal(want.S, got.S)):
		return fmt.Errorf("the elements of output %q (%s) differ", name, want.DataType)
	}
	for j := 0; c.Strict && j < min(len(want.F), len(got.F)); j++ {
		if x, y := want.F[j], got.F[j]; !IsFinite(x) && x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
			return fmt.Errorf("output %q has %g instead of %g", name, y, x)
		}
	}
	return nil
}
