package formula

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/reference"
)

// table is a constant with the strides of its dimensions.
type table struct {
	t       *reference.Tensor
	strides []int
	lines   map[string][]run // memo of runs along sum places, by the other places
}

func newTable(t *reference.Tensor) *table {
	b := &table{t: t, strides: make([]int, len(t.Shape)), lines: map[string][]run{}}
	n := 1
	for i := len(t.Shape) - 1; i >= 0; i-- {
		b.strides[i] = n
		n *= t.Shape[i]
	}
	return b
}

func (b *table) at(i int) float64 {
	if b.t.F != nil {
		return b.t.F[i]
	}
	return float64(b.t.I[i])
}

// run is a range of places up to last, along which a table grows by step.
type run struct {
	last   int
	number float64 // at the last one
	step   float64
}

// maxRuns bounds the runs of a table.
const maxRuns = 8

// lookup reads a table. Along a place that is a sum, or along the distance of two such places, its numbers must form a
// few runs.
func (c *Case) lookup(e *Expr, at []Value) (Value, error) {
	b, first := e.table, 0
	var open []int // dimensions whose places are sums
	key := ""
	for k, v := range at {
		if v.Sum != nil {
			open = append(open, k)
			key += " *"
			continue
		}
		x, size := int(v.Number), b.t.Shape[k]
		if x < 0 || x >= size {
			return Value{}, &UnknownError{e.node, fmt.Sprintf("the constant %q is read beyond its end", e.what)}
		}
		first += x * b.strides[k]
		key += fmt.Sprint(" ", x)
	}
	if len(open) == 0 {
		return Value{Number: b.at(first)}, nil
	}
	runs, known := b.lines[key]
	if !known {
		switch len(open) {
		case 1:
			runs = b.along(first, open[0])
		case 2:
			runs = b.across(first, open[0], open[1])
		}
		b.lines[key] = runs
	}
	if runs == nil {
		return Value{}, &UnknownError{e.node, fmt.Sprintf("the constant %q differs at each position", e.what)}
	}
	place := at[open[0]].Sum
	if len(open) == 2 {
		place = at[open[1]].Sum.Minus(place)
	}
	for i, r := range runs {
		behind := place.Minus(Number(int64(r.last)))
		if i < len(runs)-1 {
			if is, err := c.AtMostZero(behind); err != nil {
				return Value{}, err
			} else if !is {
				continue
			}
		}
		if r.step == 0 {
			return Value{Number: r.number}, nil
		}
		n, ok := Value{Number: r.number}.asSum()
		if !ok || r.step != math.Trunc(r.step) || math.Abs(r.step) > 1<<20 {
			break
		}
		return valueOf(behind.Times(int64(r.step)).Plus(n)), nil
	}
	return Value{}, &UnknownError{e.node, fmt.Sprintf("the constant %q differs at each position", e.what)}
}

// along reads the runs along a dimension.
func (b *table) along(first, dim int) []run {
	list := make([]float64, b.t.Shape[dim])
	for i := range list {
		list[i] = b.at(first + i*b.strides[dim])
	}
	return runsOf(list, 0)
}

// across reads the runs along the distance of two places; nil if the numbers depend on more.
func (b *table) across(first, rows, cols int) []run {
	high, wide := b.t.Shape[rows], b.t.Shape[cols]
	at := func(i, j int) float64 { return b.at(first + i*b.strides[rows] + j*b.strides[cols]) }
	list := make([]float64, 0, high+wide-1)
	for i := high - 1; i > 0; i-- {
		list = append(list, at(i, 0))
	}
	for j := range wide {
		list = append(list, at(0, j))
	}
	for i := range high {
		for j := range wide {
			if x, y := at(i, j), list[high-1+j-i]; x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				return nil
			}
		}
	}
	return runsOf(list, 1-high)
}

// runsOf returns the runs of numbers at places from first on; nil if there are too many.
func runsOf(list []float64, first int) (runs []run) {
	grows := func(i int, step float64) bool {
		return i+1 < len(list) && (step == 0 && list[i+1] == list[i] || step != 0 && list[i+1]-list[i] == step)
	}
	for i := 0; i < len(list); i++ {
		step := 0.0
		if i+1 < len(list) && list[i+1] != list[i] {
			step = list[i+1] - list[i]
		}
		if grows(i, step) && (step == 0 || grows(i+1, step)) {
			for grows(i, step) {
				i++
			}
		} else {
			step = 0
		}
		if runs = append(runs, run{first + i, list[i], step}); len(runs) > maxRuns {
			return nil
		}
	}
	return runs
}
