// Package staticcache turns the caches of a decoder into buffers that attention writes in place.
package staticcache

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Form names caches that are buffers written in place.
const Form = "static"

// Parse parses the option for caches: "static", or "static=M" for buffers of M tokens. length is 0 if the callers
// choose it.
func Parse(s string) (length int64, err error) {
	form, number, given := strings.Cut(s, "=")
	if form != Form {
		return 0, fmt.Errorf("%q: write %s, or %s=M for buffers of M tokens", s, Form, Form)
	}
	if !given {
		return 0, nil
	}
	length, err = strconv.ParseInt(number, 10, 64)
	if err != nil || length < 1 || length > math.MaxInt32 {
		return 0, fmt.Errorf("%q: a buffer holds 1 to %d tokens", s, math.MaxInt32)
	}
	return length, nil
}

// Options configure static caches.
type Options struct {
	// Length is the number of tokens that a buffer holds. 0 leaves it to the callers.
	Length int64
	// PastLength makes the model read the number of tokens in the buffers from an additional input past_length, an
	// int64 vector with one element. Inputs that were as long as the tokens, such as the attention mask, become as long
	// as the buffers. Then no input changes its shape between steps, as CUDA graphs require, and none must be on the
	// host.
	PastLength bool
	// RowLengths makes past_length hold a number for each sequence of a batch, with padding on the right. It implies
	// PastLength.
	RowLengths bool
	// Packed tells that sequences will be packed without padding, which attention then need not hide.
	Packed bool
}

// A CacheReport describes the caches of a model.
type CacheReport struct {
	Form          string             `json:"form"`                // Form
	Length        int64              `json:"length,omitempty"`    // tokens of a buffer; absent if callers choose
	Inputs        []string           `json:"inputs"`              // the buffers
	BytesPerToken int64              `json:"bytes_per_token"`     // of one sequence, in all buffers together
	LengthFrom    string             `json:"length_from"`         // the input that determines the number of tokens
	Rows          bool               `json:"rows,omitempty"`      // whether it does so for each sequence of a batch
	Positions     []string           `json:"positions,omitempty"` // values replaced by positions of each sequence
	Readers       []string           `json:"readers,omitempty"`   // readers of lengths, corrected to the tokens
	Merged        string             `json:"merged,omitempty"`    // an If reduced to its branch with a past
	Check         *prove.CheckReport `json:"check,omitempty"`

	// Counted are the values [batch, tokens] with the position of each new token, if each sequence has its own length.
	Counted []*onnx.Value `json:"-"`
}

// Text returns the report in one line.
func (r *CacheReport) Text() string {
	size := fmt.Sprintf("of any length, %d bytes per token of a sequence", r.BytesPerToken)
	if r.Length > 0 {
		size = fmt.Sprintf("of %d tokens, %d bytes per sequence", r.Length, r.Length*r.BytesPerToken)
	}
	padding := "there are, padding is on the left"
	if r.Rows {
		padding = "there are of each sequence, padding is on the right"
	}
	if r.Merged != "" {
		padding += fmt.Sprintf("; node %q (If) is replaced by its branch with a past", r.Merged)
	}
	return fmt.Sprintf("%s, %d buffers %s (%s); %s tells how many tokens %s", r.Form, len(r.Inputs), size,
		english.Some(r.Inputs), r.LengthFrom, padding)
}

// Apply makes attention write keys and values into buffers. Each past becomes a buffer [batch, heads, length, width],
// and so does its present; one tensor may be bound to both. The number of tokens in a buffer is the length of the
// attention mask minus the new ones, or as the options say. Apply changes all caches of a model, or returns an error
// that names the obstacle and changes none. The model's blocks must be fused already. run.Facts are the facts of the
// model before that, whose masks show which lengths are equal. merged is the result of TakeMerged.
func Apply(run *pass.Run, o Options, merged string) (*CacheReport, error) {
	c := newChange(run, o, merged)
	for _, step := range []func() error{c.find, c.measure, c.checkReaders, c.checkSites, c.change, c.checkLengths,
		c.checkRowPositions} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("the cache cannot be static: %w", err)
		}
	}
	return c.report(), nil
}

func newChange(run *pass.Run, o Options, merged string) *cacheChange {
	o.PastLength = o.PastLength || o.RowLengths
	c := &cacheChange{Run: run, prover: run.NewProver(), options: o, merged: merged, facts: run.Facts,
		patched: infer.Analyze(run.Model)}
	if c.facts == nil {
		c.facts = c.patched
	}
	return c
}

func (c *cacheChange) report() *CacheReport {
	r := &CacheReport{Form: Form, Length: c.options.Length, Check: c.checked, Rows: c.options.RowLengths,
		Merged: c.merged, Counted: c.rowPositions}
	for _, v := range c.cuts {
		r.Positions = append(r.Positions, v.Name)
	}
	if r.LengthFrom = c.length.Name; !c.options.PastLength {
		r.LengthFrom = c.total.input.Name
	}
	for _, s := range c.sites {
		if s.writer != nil {
			continue
		}
		for k, v := range s.past {
			r.Inputs = append(r.Inputs, v.Name)
			r.BytesPerToken += s.heads * s.width[k] * int64(c.facts.DataType(v).Bits()) / 8
		}
	}
	for _, reader := range c.readers {
		r.Readers = append(r.Readers, reader.shape.Label())
	}
	return r
}

// cacheChange turns the caches of one model into buffers.
type cacheChange struct {
	*pass.Run
	edit    edit.Change
	prover  *prove.Prover
	options Options
	merged  string
	facts   *infer.Facts // of the model before fusion, whose masks show which lengths are equal
	patched *infer.Facts // of the model with fused blocks
	sites   []*cacheSite
	past    [infer.Worlds]int64 // tokens in the cache
	added   [infer.Worlds]int64 // new tokens
	total   sizeOf              // of the cached and new tokens
	fresh   sizeOf              // of the new tokens
	masks   []sizeOf            // these become as long as the buffers
	readers []*lengthReader
	runs    []lengthsRun  // of values that depend on the length of the past, if each sequence has its own
	cuts    []*onnx.Value // the positions among these values
	counted *onnx.Value   // a mask [batch, tokens] that positions may be sums of, or that new tokens have, or nil
	ofNew   []*onnx.Value // its columns of the new tokens
	checked *prove.CheckReport

	nodes  []*onnx.Node // added nodes
	length *onnx.Value  // of the past
	rows   *onnx.Value  // positions of each sequence; nil if none are computed
	// rowPositions are rows, and the numbers of valid tokens before the new ones.
	rowPositions []*onnx.Value
	all          *onnx.Value // the number of all tokens; nil until needed
}

// cacheSite is an attention node with its caches: keys, then values; or latents.
type cacheSite struct {
	node          *onnx.Node
	op            *fused.CachedOp
	past, present []*onnx.Value
	heads         int64
	width         []int64
	writer        *cacheSite // writes the caches that the node reads; nil if the node writes them itself
}

func newCacheSite(n *onnx.Node, op *fused.CachedOp, writer *cacheSite) *cacheSite {
	caches := len(op.Pasts)
	return &cacheSite{node: n, op: op, past: make([]*onnx.Value, caches), present: make([]*onnx.Value, caches),
		width: make([]int64, caches), writer: writer}
}

// writing returns the node that writes the caches of the site.
func (s *cacheSite) writing() *onnx.Node {
	if s.writer != nil {
		return s.writer.node
	}
	return s.node
}

// lengthReader is a Shape that returns the length of a future buffer, or of a value as long as one.
type lengthReader struct {
	shape     *onnx.Node
	from, to  int64 // the dimensions that it returns
	axis      int64 // the one that is a length
	total     bool  // of all tokens, instead of those in the cache
	corrected *onnx.Value
}

// sizeOf is a dimension of an input of the model or, without an input, a number.
type sizeOf struct {
	input  *onnx.Value
	axis   int
	number int64
}
