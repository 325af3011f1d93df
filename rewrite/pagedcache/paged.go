// Package pagedcache turns the caches of a decoder into pools of blocks that all sequences share, and its batch into
// packed tokens.
package pagedcache

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

// Form names caches that are pools of blocks.
const Form = "paged"

// DefaultBlock is the number of tokens of a block. The engine of onnxruntime-genai and, for heads of up to 64 channels,
// the FlashAttention of onnxruntime take multiples of 256.
const DefaultBlock = 256

// The additional inputs of a model with pools, as the engine of onnxruntime-genai names them.
const (
	CumulativeName = "cumulative_sequence_lengths"
	PastName       = "past_sequence_lengths"
	TableName      = "block_table"
	// WindowedName is the table of layers with a window, if others have none.
	WindowedName = "block_table_windowed"
)

// Parse parses the option for caches: "paged", or "paged=N" for blocks of N tokens.
func Parse(s string) (block int64, err error) {
	form, number, given := strings.Cut(s, "=")
	if form != Form {
		return 0, fmt.Errorf("%q: write %s, or %s=N for blocks of N tokens", s, Form, Form)
	}
	if !given {
		return DefaultBlock, nil
	}
	block, err = strconv.ParseInt(number, 10, 64)
	if err != nil || block < 1 || block > math.MaxInt32 {
		return 0, fmt.Errorf("%q: a block holds 1 to %d tokens", s, math.MaxInt32)
	}
	return block, nil
}

// A Report describes the pools of a model.
type Report struct {
	Form          string   `json:"form"`             // Form
	Block         int64    `json:"block"`            // tokens of a block
	Pools         []string `json:"pools"`            // the inputs [blocks, block, heads, width]
	BytesPerToken int64    `json:"bytes_per_token"`  // in all pools together
	Window        int64    `json:"window,omitempty"` // the longest window of attention, 0 without any
	Packed        []string `json:"packed"`           // the inputs [tokens, ...]
	Removed       []string `json:"removed"`          // inputs that follow from the lengths, or are not read
	LastOnly      bool     `json:"last_only"`        // one row of logits per sequence, instead of per token
	Merged        string   `json:"merged,omitempty"` // an If reduced to its branch with a past
	// Type is the type of the codes in the pools, "" for pools of the model's own type. Scales are then the inputs with
	// their scales, [blocks, heads], and ScaleBytes the bytes of a block's scales in all pools.
	Type       string             `json:"type,omitempty"`
	Scales     []string           `json:"scales,omitempty"`
	ScaleBytes int64              `json:"scale_bytes,omitempty"`
	Rounding   *Rounding          `json:"rounding,omitempty"` // absent without codes or proof
	Check      *prove.CheckReport `json:"check,omitempty"`
	StandIns   int                `json:"stand_ins,omitempty"` // functions of rows that stood for products in the proof
}

// Text returns the report in one line.
func (r *Report) Text() string {
	rows := "each token"
	if r.LastOnly {
		rows = "the last token of each sequence"
	}
	merged := ""
	if r.Merged != "" {
		merged = fmt.Sprintf("; node %q (If) is replaced by its branch with a past", r.Merged)
	}
	bytes := r.Block*r.BytesPerToken + r.ScaleBytes
	parts := ""
	if r.StandIns > 0 {
		parts = fmt.Sprintf("; proven by parts, with stand-ins for %s with constant weights",
			english.Counted(r.StandIns, "product"))
	}
	window := ""
	if r.Window > 0 {
		window = fmt.Sprintf("; layers with a window read the last %d tokens", r.Window)
	}
	return fmt.Sprintf("%s, %d pools (%s) of blocks of %d tokens, %d bytes per block in all pools (%.4g per token); "+
		"%s packed, logits of %s%s%s%s%s", r.Form, len(r.Pools), english.Some(r.Pools), r.Block, bytes,
		float64(bytes)/float64(r.Block), english.Some(r.Packed), rows, window, merged, parts, r.typeText())
}

// Buffers are the values of a model whose caches are buffers with a length for each sequence (staticcache.Apply).
type Buffers struct {
	// Positions are the values [batch, tokens] that hold the position of each new token.
	Positions []*onnx.Value
	// Merged is the If that was reduced to its branch with a past, or "".
	Merged string
}

// A Change turns the caches of one model into pools.
type Change struct {
	*pass.Run
	block   int64
	codes   onnx.DataType // of the pools; Undefined for the type of keys and values
	coded   []*codedPool
	prover  *prove.Prover
	pending *prove.Pending
	trial   *scenario
	parts   *standIns // nil if the proof multiplies with the model's weights

	edit      edit.Change
	facts     *infer.Facts
	length    *onnx.Value // the input with the length of each sequence
	sites     []*site
	batch     [infer.Worlds]int64
	added     [infer.Worlds]int64
	packed    []*onnx.Value // inputs with a row for each token
	positions []*onnx.Value // inputs and values that hold positions
	masks     []*onnx.Value
	unread    []*onnx.Value // inputs that nothing reads
	lastOnly  bool

	cumulative, past, table *onnx.Value
	windowed                map[*onnx.Value]bool // pools
	rings                   *onnx.Value          // the table of these pools, or table
	starts, ends            *onnx.Value          // [B]
	row                     *onnx.Value          // the position of each token, [1, tokens]; nil if nothing reads it
	report                  *Report
}

// site is an attention node with the buffers that it reads.
type site struct {
	node          *onnx.Node
	past, present [2]*onnx.Value // keys and values; present is nil if another node writes them
	scale         [2]*onnx.Value // the scales of present, of pools of codes
	use           fused.Site     // with pools of floats
	in            []*onnx.Value  // the inputs with pools of floats
}

// Before evaluates the unconverted model, whose blocks are fused already, on several sequences, one by one. Apply
// compares the converted model with the results. codes is the type of the pools (ParseType).
func Before(run *pass.Run, block int64, codes onnx.DataType) (*Change, error) {
	c := &Change{Run: run, block: block, codes: codes, prover: run.NewWeightProver()}
	var err error
	if c.trial, err = newScenario(run.Model); err != nil {
		return nil, fmt.Errorf("the cache cannot be paged: %w", err)
	}
	claim := c.claim()
	if settled, _ := c.prover.Settled(claim.What, claim.Key); !settled {
		if c.parts, err = chooseProof(run, c.trial.facts, codes); err != nil {
			return nil, fmt.Errorf("the cache cannot be paged: %w", err)
		}
	}
	c.pending = c.prover.Before(claim)
	return c, nil
}

// Apply packs the tokens of all sequences of a model whose caches became buffers since Before. Each buffer becomes a
// pool [blocks, block, heads, width], and so does its present; one tensor may be bound to both. Inputs [batch, tokens,
// ...] become [tokens, ...], and new inputs name the tokens and the blocks of each sequence. Positions and
// masks follow from them. After an error, the model must not be used.
func (c *Change) Apply(b Buffers) (*Report, error) {
	none := func() error { return nil }
	return c.apply(b, none, none)
}

// apply is Apply with another step between the change and its proof, and one after codes replaced floats in the pools.
func (c *Change) apply(b Buffers, changed, coded func() error) (*Report, error) {
	c.facts = infer.Analyze(c.Model)
	c.report = &Report{Form: Form, Block: c.block, Merged: b.Merged, Removed: []string{}}
	c.positions = b.Positions
	for _, step := range []func() error{c.find, c.inputs, c.change, changed, c.checkFar, c.pending.Holds,
		c.quantize, coded,
		c.checkCodes, c.declare} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("the cache cannot be paged: %w", err)
		}
	}
	c.report.LastOnly, c.report.Check = c.lastOnly, c.prover.Checked()
	if c.parts != nil {
		c.report.StandIns = len(c.parts.known)
	}
	return c.report, nil
}
