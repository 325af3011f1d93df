package recurrent

import (
	"math"

	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

var recurrentOps = map[string]op.Def{
	"RNN":  op.Arith(3, recurrent(1, 1, simpleCell)),
	"GRU":  op.Arith(3, recurrent(3, 1, gruCell)),
	"LSTM": op.Arith(3, recurrent(4, 2, lstmCell)),
}

// cell is a recurrent unit of one direction. It has the gates of its op, in the op's order.
type cell struct {
	width, hidden  int
	w, r, wb, rb   []float64 // weights of inputs and states, and their biases
	peep           []float64 // of an LSTM, or nil
	clip           float64   // 0: no clipping
	before, forget bool      // linear_before_reset, input_forget
}

// gate sums row i of a gate, without activation; state may be nil.
func (u *cell) gate(gate, i int, x, state []float64) float64 {
	row := gate*u.hidden + i
	sum := u.wb[row]
	for k, v := range u.w[row*u.width : (row+1)*u.width] {
		sum += v * x[k]
	}
	if state != nil {
		sum += u.state(row, state)
	}
	return sum
}

func (u *cell) state(row int, state []float64) float64 {
	sum := u.rb[row]
	for k, v := range u.r[row*u.hidden : (row+1)*u.hidden] {
		sum += v * state[k]
	}
	return sum
}

func (u *cell) clipped(x float64) float64 {
	if u.clip > 0 {
		return math.Max(-u.clip, math.Min(u.clip, x))
	}
	return x
}

func simpleCell(u *cell, x []float64, s [2][]float64) [2][]float64 {
	next := make([]float64, u.hidden)
	for i := range next {
		next[i] = math.Tanh(u.clipped(u.gate(0, i, x, s[0])))
	}
	return [2][]float64{next}
}

// gruCell has the gates update, reset, hidden.
func gruCell(u *cell, x []float64, s [2][]float64) [2][]float64 {
	h, next, reset := s[0], make([]float64, u.hidden), make([]float64, u.hidden)
	for i := range next {
		reset[i] = elementwise.Sigmoid(u.clipped(u.gate(1, i, x, h)))
	}
	scaled := make([]float64, u.hidden)
	for i := range h {
		scaled[i] = reset[i] * h[i]
	}
	for i := range next {
		z := elementwise.Sigmoid(u.clipped(u.gate(0, i, x, h)))
		made := u.gate(2, i, x, nil)
		if row := 2*u.hidden + i; u.before {
			made += reset[i] * u.state(row, h)
		} else {
			made += u.state(row, scaled)
		}
		next[i] = (1-z)*math.Tanh(u.clipped(made)) + z*h[i]
	}
	return [2][]float64{next}
}

// lstmCell has the gates input, output, forget, cell.
func lstmCell(u *cell, x []float64, s [2][]float64) [2][]float64 {
	h, c := s[0], s[1]
	next := [2][]float64{make([]float64, u.hidden), make([]float64, u.hidden)}
	peep := func(gate, i int, c float64) float64 {
		if u.peep == nil {
			return 0
		}
		return u.peep[gate*u.hidden+i] * c
	}
	for i := range h {
		in := elementwise.Sigmoid(u.clipped(u.gate(0, i, x, h) + peep(0, i, c[i])))
		forget := 1 - in
		if !u.forget {
			forget = elementwise.Sigmoid(u.clipped(u.gate(2, i, x, h) + peep(2, i, c[i])))
		}
		next[1][i] = forget*c[i] + in*math.Tanh(u.clipped(u.gate(3, i, x, h)))
		next[0][i] = elementwise.Sigmoid(u.clipped(u.gate(1, i, x, h)+peep(1, i, next[1][i]))) * math.Tanh(next[1][i])
	}
	return next
}

// recurrent is an op of cells with these gates and states. It supports the default activations.
func recurrent(gates, states int, step func(*cell, []float64, [2][]float64) [2][]float64) op.Func {
	return func(c *op.Call) []*tensor.Tensor {
		x, w, r := c.Floats(0), c.Floats(1), c.Floats(2)
		if c.Attr("activations") != nil && !usualActivations(c, gates) {
			tensor.Fail("only the default activations are supported")
		}
		if x.Rank() != 3 || w.Rank() != 3 || r.Rank() != 3 {
			tensor.Fail("an input of %v and weights of %v and %v do not fit", x.Shape, w.Shape, r.Shape)
		}
		batchFirst := c.Int("layout", 0) != 0
		length, batch, width := x.Shape[0], x.Shape[1], x.Shape[2]
		if batchFirst {
			length, batch = batch, length
		}
		dirs, hidden := w.Shape[0], r.Shape[2]
		direction := c.Str("direction", "forward")
		if w.Shape[1] != gates*hidden || w.Shape[2] != width || r.Shape[1] != gates*hidden || r.Shape[0] != dirs ||
			dirs != tensor.Pick(direction == "bidirectional", 2, 1) {
			tensor.Fail("an input of %v and weights of %v and %v do not fit", x.Shape, w.Shape, r.Shape)
		}
		given := func(i, n int) []float64 {
			if c.Arg(i) == nil {
				return make([]float64, n)
			}
			if t := c.Floats(i); t.Len() == n {
				return t.F
			}
			tensor.Fail("input %d is %s, expected %d elements", i, c.Arg(i), n)
			return nil
		}
		bias := given(3, dirs*2*gates*hidden)
		lengths, _ := c.Integers(4)
		if c.Arg(4) == nil {
			lengths = make([]int64, batch)
			for b := range lengths {
				lengths[b] = int64(length)
			}
		} else if len(lengths) != batch {
			tensor.Fail("%d lengths of %d sequences", len(lengths), batch)
		}
		y := tensor.ZeroFloats(x.DataType, []int{length, dirs, batch, hidden})
		var last [2]*tensor.Tensor
		var start [2][]float64
		for k := range states {
			last[k] = tensor.ZeroFloats(x.DataType, []int{dirs, batch, hidden})
			start[k] = given(5+k, dirs*batch*hidden)
		}
		outer := [3]int{batch * dirs * hidden, hidden, batch * hidden} // of a step, a sequence and a direction in y
		perState := [2]int{hidden, batch * hidden}                     // of a sequence and a direction in states
		if batchFirst {
			y.Shape = []int{batch, length, dirs, hidden}
			outer, perState = [3]int{dirs * hidden, length * dirs * hidden, hidden}, [2]int{dirs * hidden, hidden}
			for k := range states {
				last[k].Shape = []int{batch, dirs, hidden}
			}
		}
		for d := range dirs {
			n := gates * hidden
			u := &cell{width: width, hidden: hidden, w: w.F[d*n*width : (d+1)*n*width],
				r: r.F[d*n*hidden : (d+1)*n*hidden], wb: bias[d*2*n : d*2*n+n], rb: bias[d*2*n+n : (d+1)*2*n],
				clip: c.Float("clip", 0), before: c.Int("linear_before_reset", 0) != 0,
				forget: c.Int("input_forget", 0) != 0}
			if states == 2 && c.Arg(7) != nil {
				u.peep = given(7, dirs*3*hidden)[d*3*hidden : (d+1)*3*hidden]
			}
			backwards := direction == "reverse" || d == 1
			for b := range batch {
				at := b*perState[0] + d*perState[1]
				var s [2][]float64
				for k := range states {
					s[k] = start[k][at : at+hidden]
				}
				for i := range int(min(max(lengths[b], 0), int64(length))) {
					t := tensor.Pick(backwards, int(lengths[b])-1-i, i)
					from := (t*batch + b) * width
					if batchFirst {
						from = (b*length + t) * width
					}
					s = step(u, x.F[from:from+width], s)
					copy(y.F[t*outer[0]+b*outer[1]+d*outer[2]:], s[0])
				}
				for k := range states {
					copy(last[k].F[at:], s[k])
				}
			}
		}
		return append([]*tensor.Tensor{y}, last[:states]...)
	}
}

// usualActivations reports whether the attribute activations names the defaults of an op with this many gates.
func usualActivations(c *op.Call, gates int) bool {
	usual := map[int][]string{1: {"Tanh"}, 3: {"Sigmoid", "Tanh"}, 4: {"Sigmoid", "Tanh", "Tanh"}}[gates]
	for i, s := range c.Attr("activations").Strings {
		if string(s) != usual[i%len(usual)] {
			return false
		}
	}
	return true
}
