package ranges

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/trace"
)

// Ranges are the ranges of a model's values over some runs.
type Ranges struct {
	Rows []*Row // in the order of execution
	at   map[string]*Row
}

// New returns empty ranges.
func New() *Ranges { return &Ranges{at: map[string]*Row{}} }

// Look returns the function to call for each value of a run on a case; see trace.Watcher.Run.
func (r *Ranges) Look(number int) func(*trace.Seen) error {
	return func(s *trace.Seen) error {
		key := fmt.Sprintf("%q", s.Value.Name)
		for _, step := range s.Path {
			key += fmt.Sprintf("%q%q", step.Node, step.Graph)
		}
		row := r.at[key]
		if row == nil {
			row = &Row{Value: s.Value.Name, Block: s.Block.String(), Op: s.Op, Path: s.Path, Case: number,
				place: s.Block}
			r.at[key], r.Rows = row, append(r.Rows, row)
		}
		greatest, err := row.add(s.Tensor, s.Hidden)
		if greatest > row.Greatest {
			row.Greatest, row.Path, row.Case = greatest, s.Path, number
		}
		return err
	}
}

// Finish computes the shares after all runs. float32 contains the names of the values that a conversion to float16
// leaves in float32.
func (r *Ranges) Finish(float32 map[string]bool) {
	for _, row := range r.Rows {
		row.finish()
		row.Float32 = float32[row.Value]
	}
}

// First returns the first value in execution order with an element beyond 65504, nil if there is no such value.
func (r *Ranges) First() *Row { return r.first(func(*Row) bool { return true }) }

// FirstIn16 returns the first such value that a conversion to float16 does not leave in float32.
func (r *Ranges) FirstIn16() *Row { return r.first(func(row *Row) bool { return !row.Float32 }) }

func (r *Ranges) first(takes func(*Row) bool) *Row {
	for _, row := range r.Rows {
		if row.over > 0 && takes(row) {
			return row
		}
	}
	return nil
}

// Worst returns up to most of the values that float16 holds worst: those that overflow, then by magnitude.
func (r *Ranges) Worst(most int) []*Row {
	rows := slices.Clone(r.Rows)
	slices.SortStableFunc(rows, (*Row).compare)
	return rows[:min(most, len(rows))]
}

// Overflows returns the number of values with elements beyond 65504.
func (r *Ranges) Overflows() (n int) {
	for _, row := range r.Rows {
		if row.over > 0 {
			n++
		}
	}
	return n
}

// BlockRow summarizes the values of one block.
type BlockRow struct {
	Block    string      `json:"block"`
	Place    trace.Block `json:"-"` // Block in parts
	Values   int         `json:"values"`
	Overflow int         `json:"overflow"` // the number of values with elements beyond 65504
	Greatest float64     `json:"greatest"`
	Under    float64     `json:"under"`    // the greatest share of a value
	Float16  float64     `json:"float16"`  // the greatest error of a value
	BFloat16 float64     `json:"bfloat16"` // the greatest error of a value
	Worst    string      `json:"worst"`    // the value that float16 holds worst
	worst    *Row
}

// Blocks summarizes the rows by block, in the order of the model.
func (r *Ranges) Blocks() []*BlockRow {
	var list []*BlockRow
	at := map[string]*BlockRow{}
	for _, row := range r.Rows {
		b := at[row.Block]
		if b == nil {
			b = &BlockRow{Block: row.Block, Place: row.place}
			at[row.Block], list = b, append(list, b)
		}
		b.Values++
		if row.over > 0 {
			b.Overflow++
		}
		b.Greatest, b.Under = max(b.Greatest, row.Greatest), max(b.Under, row.Under)
		b.Float16, b.BFloat16 = max(b.Float16, row.Float16.Error), max(b.BFloat16, row.BFloat16.Error)
		if b.worst == nil || row.compare(b.worst) < 0 {
			b.worst, b.Worst = row, row.Value
		}
	}
	return list
}
