package trace

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
)

// Step is a step into a node of control flow.
type Step struct {
	Node string `json:"node"`
	// Graph is the attribute with the body: then_branch, else_branch or body.
	Graph string `json:"graph"`
	// Iteration of the body; nil for a branch.
	Iteration *int `json:"iteration,omitempty"`
}

// String returns, for example, `iteration 3 of "/model/Loop"`.
func (s Step) String() string {
	if s.Iteration != nil {
		return fmt.Sprintf("iteration %d of %q", *s.Iteration, s.Node)
	}
	return fmt.Sprintf("%s of %q", s.Graph, s.Node)
}

// Path leads from the main graph to a value in a body. It is empty for values of the main graph.
type Path []Step

// Where describes the path, "" in the main graph.
func (p Path) Where() string {
	var steps []string
	for _, s := range p {
		steps = append(steps, s.String())
	}
	return strings.Join(steps, ", ")
}

// Row compares one value with its partner in the other model.
type Row struct {
	Value string `json:"value"`           // its name in the first model
	Other string `json:"other,omitempty"` // in the second model, if it differs
	Block string `json:"block"`
	Op    string `json:"op"` // the op that computes it in the first model
	OpB   string `json:"other_op"`
	By    string `json:"aligned_by"`
	Case  int    `json:"case"`
	// Path leads to a value in a branch or loop. In a loop it names the worst iteration, and the numbers are that
	// iteration's.
	Path `json:"within,omitempty"`
	// Iterations is the number of compared iterations of a loop, FirstOut the first one out of tolerance.
	Iterations int          `json:"iterations,omitempty"`
	FirstOut   *int         `json:"first_out,omitempty"`
	Error      float64      `json:"error"` // the greatest difference over the greatest magnitude
	Stats      golden.Stats `json:"stats"`
	// Place is Block in parts.
	Place Block `json:"-"`
	// Before is the greatest error of the compared values that the first value out of tolerance is computed from, nil
	// if there are none.
	Before *float64 `json:"before,omitempty"`
}

// Comparison is the result of comparing two models value by value.
type Comparison struct {
	Rows []Row `json:"values"` // in the first model's order
	// Unlike lists pairs whose shapes or types differ.
	Unlike []string `json:"unlike,omitempty"`
	// Skipped names the branches and loops that were not compared, and why.
	Skipped []string       `json:"skipped,omitempty"`
	Routers []Choice       `json:"routers,omitempty"`
	Near    []Near         `json:"near_ties,omitempty"`
	Outputs []golden.Stats `json:"-"` // of the models' outputs, included in Rows
	Bytes   int64          `json:"bytes"`
	Peak    int64          `json:"peak_bytes"` // of values held at once
	Pieces  int            `json:"pieces"`

	first *Row // the first row out of tolerance, in order of computation
}

// First returns the first value out of tolerance, nil if all pass. In a loop it belongs to one iteration.
func (c *Comparison) First() *Row { return c.first }

// Worst returns the row with the greatest error, nil without rows. A row with an unmatched NaN or infinity is worse
// than any error.
func (c *Comparison) Worst() *Row {
	var worst *Row
	for i := range c.Rows {
		if worst == nil || c.Rows[i].Worse(worst) {
			worst = &c.Rows[i]
		}
	}
	return worst
}

// Worse reports whether a row differs more than another.
func (r *Row) Worse(than *Row) bool {
	if a, b := r.Stats.Got != r.Stats.Want, than.Stats.Got != than.Stats.Want; a != b {
		return a
	}
	return r.Error > than.Error
}

// BlockRow summarizes the values of one block.
type BlockRow struct {
	Block  string  `json:"block"`
	Place  Block   `json:"-"` // Block in parts
	Values int     `json:"values"`
	Failed int     `json:"failed"`
	Error  float64 `json:"error"` // the greatest error of its values
	Worst  string  `json:"worst"`
	NaN    int64   `json:"nan"` // in the second model, if the first has other values
}

// Blocks summarizes the rows by block, in the order of the model.
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
	c.Near = append(c.Near, o.Near...)
	c.Outputs = append(c.Outputs, o.Outputs...)
	c.Bytes += o.Bytes
	c.Peak = max(c.Peak, o.Peak)
	c.Pieces += o.Pieces
}
