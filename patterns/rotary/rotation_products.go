package rotary

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// term is a product of two channels, one of x and one of a table.
type term struct {
	a, b channel
	sign float64
}

// output is one channel of y: a sum of two products, or a channel passed on.
type output struct {
	rotated bool
	terms   [2]term
	passed  channel
}

var oneProduct = reason.New("", nil, "a sum with a side that is not a product")

// outputs writes the last axis of y as sums of products.
func (t *tracer) outputs(y *onnx.Value) (outs []output, at *onnx.Value, why *reason.Reason) {
	at = y
	channels := t.trace(y, 1)
	if channels == nil {
		return nil, y, nil
	}
	outs = make([]output, 0, len(channels))
	sums := map[int][]output{}
	rotated := 0
	for _, c := range channels {
		sum, seen := sums[c.origin]
		if !seen {
			var reason *reason.Reason
			if sum, reason = t.sum(t.origins[c.origin]); reason != nil {
				at, why = t.origins[c.origin].Value, reason
			}
			sums[c.origin] = sum
		}
		if sum == nil {
			outs = append(outs, output{passed: c})
			continue
		}
		rotated++
		o := sum[c.index]
		o.terms[0].sign *= c.sign
		o.terms[1].sign *= c.sign
		outs = append(outs, o)
	}
	if rotated == 0 {
		return nil, at, why
	}
	return outs, nil, nil
}

// sum writes the result of an Add or Sub as sums of two products; it returns nil without a reason for other blocks.
func (t *tracer) sum(b match.Block) (outs []output, why *reason.Reason) {
	n := b.Value.Producer
	if !(n.Is("Add") || n.Is("Sub") || n.Is("Sum")) || len(n.Inputs) != 2 {
		return nil, nil
	}
	dims, count, ok := t.dims(b)
	if !ok {
		return nil, nil
	}
	outs = make([]output, count)
	products := 0
	for side, in := range n.Inputs {
		sign := 1.0
		if side == 1 && n.Is("Sub") {
			sign = -1
		}
		for i, c := range t.operand(in, dims) {
			a, b, ok := t.product(c)
			if !ok {
				break
			}
			outs[i].rotated, outs[i].terms[side] = true, term{a, b, sign * c.sign}
			products++
		}
	}
	switch {
	case products == 2*count:
		t.computed[slices.Index(t.origins, b)] = true
		return outs, nil
	case products == 0:
		return nil, nil
	}
	return nil, oneProduct
}

// product returns the factors of a channel that a Mul computes.
func (t *tracer) product(c channel) (a, b channel, ok bool) {
	o := t.origins[c.origin]
	n := o.Value.Producer
	if !n.Is("Mul") || len(n.Inputs) != 2 {
		return a, b, false
	}
	dims, _, known := t.dims(o)
	if !known {
		return a, b, false
	}
	m, done := t.products[c.origin]
	if !done {
		m = [2][]channel{t.operand(n.Inputs[0], dims), t.operand(n.Inputs[1], dims)}
		t.products[c.origin] = m
		t.computed[c.origin] = true
	}
	if m[0] == nil || m[1] == nil {
		return a, b, false
	}
	return m[0][c.index], m[1][c.index], true
}
