package trace

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
)

// Row is how far one value is from that of the other model.
type Row struct {
	Value string       `json:"value"`           // its name in the first model
	Other string       `json:"other,omitempty"` // in the second, where it has another
	Block string       `json:"block"`
	Op    string       `json:"op"` // what makes it, in the first model
	OpB   string       `json:"other_op"`
	By    string       `json:"aligned_by"`
	Case  int          `json:"case"`
	Error float64      `json:"error"` // the greatest difference over the greatest magnitude
	Stats golden.Stats `json:"stats"`
	// Before is the greatest error of what it is computed from, for the first value out of tolerance; nil where nothing
	// of that was compared.
	Before *float64 `json:"before,omitempty"`
}

// Comparison is what came of comparing two models value by value.
type Comparison struct {
	Rows []Row `json:"values"` // in the first model's order
	// Unlike are values that were taken for the same and have other shapes or types.
	Unlike  []string       `json:"unlike,omitempty"`
	Routers []Choice       `json:"routers,omitempty"`
	Outputs []golden.Stats `json:"-"` // of the models' outputs, among Rows
	Bytes   int64          `json:"bytes"`
	Peak    int64          `json:"peak_bytes"` // of values that were held at once
	Pieces  int            `json:"pieces"`
}

// First returns the first row that is out of tolerance, nil where none is.
func (c *Comparison) First() *Row {
	i := slices.IndexFunc(c.Rows, func(r Row) bool { return !r.Stats.Passed })
	if i < 0 {
		return nil
	}
	return &c.Rows[i]
}

// Worst returns the row with the greatest error, one with a NaN or an infinity that has no equal before all; nil where
// there are no rows.
func (c *Comparison) Worst() *Row {
	var worst *Row
	for i := range c.Rows {
		if worst == nil || c.Rows[i].worse(worst) {
			worst = &c.Rows[i]
		}
	}
	return worst
}

func (r *Row) worse(than *Row) bool {
	if a, b := r.Stats.Got != r.Stats.Want, than.Stats.Got != than.Stats.Want; a != b {
		return a
	}
	return r.Error > than.Error
}

// BlockRow sums up the values of one block.
type BlockRow struct {
	Block  string  `json:"block"`
	Values int     `json:"values"`
	Failed int     `json:"failed"`
	Error  float64 `json:"error"` // the greatest of its values
	Worst  string  `json:"worst"`
	NaN    int64   `json:"nan"` // in the second model, where the first has other values
}

// Blocks sums up the rows by block, in the order of the model.
func (c *Comparison) Blocks() []BlockRow {
	var list []BlockRow
	at := map[string]int{}
	worst := map[string]*Row{}
	for i := range c.Rows {
		r := &c.Rows[i]
		k, known := at[r.Block]
		if !known {
			k = len(list)
			at[r.Block] = k
			list = append(list, BlockRow{Block: r.Block})
		}
		b := &list[k]
		b.Values++
		if !r.Stats.Passed {
			b.Failed++
		}
		b.NaN += max(0, r.Stats.Got.NaN-r.Stats.Want.NaN)
		if worst[r.Block] == nil || r.worse(worst[r.Block]) {
			worst[r.Block], b.Error, b.Worst = r, r.Error, r.Value
		}
	}
	return list
}

// Add adds the rows of another case.
func (c *Comparison) Add(o *Comparison) {
	c.Rows = append(c.Rows, o.Rows...)
	c.Unlike = append(c.Unlike, o.Unlike...)
	c.Routers = append(c.Routers, o.Routers...)
	c.Outputs = append(c.Outputs, o.Outputs...)
	c.Bytes += o.Bytes
	c.Peak = max(c.Peak, o.Peak)
	c.Pieces += o.Pieces
}
