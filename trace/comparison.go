package trace

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
)

// Step is a way into a node of control flow.
type Step struct {
	Node string `json:"node"`
	// Graph is the attribute with the body: then_branch, else_branch or body.
	Graph string `json:"graph"`
	// Iteration of the body; nil of a branch.
	Iteration *int `json:"iteration,omitempty"`
}

// String is, for example, `iteration 3 of "/model/Loop"`.
func (s Step) String() string {
	if s.Iteration != nil {
		return fmt.Sprintf("iteration %d of %q", *s.Iteration, s.Node)
	}
	return fmt.Sprintf("%s of %q", s.Graph, s.Node)
}

// Path leads from the main graph to a value in a body; it is empty for values of the main graph.
type Path []Step

// Where says the way, "" in the main graph.
func (p Path) Where() string {
	var steps []string
	for _, s := range p {
		steps = append(steps, s.String())
	}
	return strings.Join(steps, ", ")
}

// Row is how far one value is from that of the other model.
type Row struct {
	Value string `json:"value"`           // its name in the first model
	Other string `json:"other,omitempty"` // in the second, where it has another
	Block string `json:"block"`
	Op    string `json:"op"` // what makes it, in the first model
	OpB   string `json:"other_op"`
	By    string `json:"aligned_by"`
	Case  int    `json:"case"`
	// Path leads to the value where it is one of a branch or loop. Of a loop's iterations it names the worst, whose
	// figures these are.
	Path `json:"within,omitempty"`
	// Iterations is how many iterations of the loop were compared, FirstOut the first that is out of tolerance.
	Iterations int          `json:"iterations,omitempty"`
	FirstOut   *int         `json:"first_out,omitempty"`
	Error      float64      `json:"error"` // the greatest difference over the greatest magnitude
	Stats      golden.Stats `json:"stats"`
	// Place is the block, as parts.
	Place Block `json:"-"`
	// Before is the greatest error of what it is computed from, for the first value out of tolerance; nil where nothing
	// of that was compared.
	Before *float64 `json:"before,omitempty"`
}

// Comparison is what came of comparing two models value by value.
type Comparison struct {
	Rows []Row `json:"values"` // in the first model's order
	// Unlike are values that were taken for the same and have other shapes or types.
	Unlike []string `json:"unlike,omitempty"`
	// Skipped says which branches and loops were not looked into, and why.
	Skipped []string       `json:"skipped,omitempty"`
	Routers []Choice       `json:"routers,omitempty"`
	Outputs []golden.Stats `json:"-"` // of the models' outputs, among Rows
	Bytes   int64          `json:"bytes"`
	Peak    int64          `json:"peak_bytes"` // of values that were held at once
	Pieces  int            `json:"pieces"`

	first *Row // out of tolerance, in the order in which values were computed
}

// First returns the first value that came out of tolerance, nil where none did. In a loop it is that of its iteration.
func (c *Comparison) First() *Row { return c.first }

// Worst returns the row with the greatest error, one with a NaN or an infinity that has no equal before all; nil where
// there are no rows.
func (c *Comparison) Worst() *Row {
	var worst *Row
	for i := range c.Rows {
		if worst == nil || c.Rows[i].Worse(worst) {
			worst = &c.Rows[i]
		}
	}
	return worst
}

// Worse reports whether a row is further off than another.
func (r *Row) Worse(than *Row) bool {
	if a, b := r.Stats.Got != r.Stats.Want, than.Stats.Got != than.Stats.Want; a != b {
		return a
	}
	return r.Error > than.Error
}

// BlockRow sums up the values of one block.
type BlockRow struct {
	Block  string  `json:"block"`
	Place  Block   `json:"-"` // the same, as parts
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
			list = append(list, BlockRow{Block: r.Block, Place: r.Place})
		}
		b := &list[k]
		b.Values++
		if !r.Stats.Passed {
			b.Failed++
		}
		b.NaN += max(0, r.Stats.Got.NaN-r.Stats.Want.NaN)
		if worst[r.Block] == nil || r.Worse(worst[r.Block]) {
			worst[r.Block], b.Error, b.Worst = r, r.Error, r.Value
		}
	}
	return list
}

// Add adds the rows of another case.
func (c *Comparison) Add(o *Comparison) {
	c.Rows = append(c.Rows, o.Rows...)
	c.Unlike = append(c.Unlike, o.Unlike...)
	c.Skipped = append(c.Skipped, o.Skipped...)
	c.first = cmp.Or(c.first, o.first)
	c.Routers = append(c.Routers, o.Routers...)
	c.Outputs = append(c.Outputs, o.Outputs...)
	c.Bytes += o.Bytes
	c.Peak = max(c.Peak, o.Peak)
	c.Pieces += o.Pieces
}
