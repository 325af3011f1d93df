// Package generate generates text with decoder language models in onnxruntime, original or patched.
//
// The package finds out from the graph how to feed a model (package onnx/roles and Check): which inputs hold the ids,
// masks, positions and lengths, and which pairs of input and output are a cache. It pairs pasts with presents by the
// common parts of their names (past_key_values.0.key and present.0.key, input.past_key_values.layers.0.keys and
// output.past_key_values.layers.0.keys, past_k0 and present_k0, …), else by their order, types and shapes. It finds the
// batch axis and the token axis by symbolic dimensions, or by the Concat that joins past and new tokens. States of
// fixed size start as zeros. A model without a cache is fed the whole text for each token.
//
// A model of apply --cache paged keeps its cache in blocks of pools (package llm/paged). Its sequences run together
// without padding, prompts in pieces, and a common start of 16 or more tokens is computed once.
//
// The cache passes from step to step as onnxruntime values that stay where they are (ort.Binding), on a device too.
// Only logits come to the host. A past is freed when the next step has read it.
//
// Prompts of different lengths are computed together with padding. The padding goes after the prompts if a model
// without a cache returns logits for every position. Otherwise it goes before them, with zeros in the mask and
// positions counted from the first token. Some models do not support that: those without a mask, those with
// com.microsoft.GroupQueryAttention, those with a vector for each position of the cache, and those with states that do
// not mask it. So each generator tries it once, on a few tokens of the prompts with and without padding. If the logits
// differ by more than rounding, only prompts of the same length are computed together, one group after another. Either
// way each prompt gets the tokens that it gets by itself, except at near ties that rounding decides.
package generate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// Generator is an open language model. Several runs may be active at once.
type Generator struct {
	session *ort.Session
	own     bool // whether Close closes the session
	layout  *layout
	half    bool // whether the model has weights in half precision
	// right reports that padding goes after sequences: the model has no cache, and returns logits for every position.
	right bool

	steady  bool         // whether decoding steps run in fixed memory
	chooses bool         // whether the session chooses the tokens; see OpenSession
	graphs  atomic.Int64 // the number of CUDA graphs so far

	mu     sync.Mutex
	padded *bool // whether padding before a sequence keeps its logits; nil until it is tried
}

// Open reads the model at path, finds out how to feed it, and opens it in onnxruntime with the options, such as the
// kernels of a patched model (ort.WithKernels), threads and execution providers.
func Open(path string, options ...ort.Option) (*Generator, error) {
	m, err := onnx.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := Check(m); err != nil { // before the slow load in onnxruntime
		return nil, err
	}
	session, err := OpenSession(m, options...)
	if err != nil {
		return nil, err
	}
	g, err := New(m, session)
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	g.own = true
	return g, nil
}

// CheckSteady returns nil if decoding steps of the model can run in fixed memory, as CUDA graphs require. The error
// names the input or output that prevents it.
func CheckSteady(m *onnx.Model) error {
	l, err := newLayout(m)
	if err == nil {
		err = l.steady()
	}
	return err
}

// Check returns nil if the model can generate text, else the error of New.
func Check(m *onnx.Model) error {
	if _, err := newLayout(m); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return nil
}

// New returns a generator for a session that is open on model m; m may be closed afterwards. It returns a *LayoutError
// that lists the inputs and their meanings if m is not a decoder or has inputs of unknown meaning. Close leaves the
// session open.
func New(m *onnx.Model, session *ort.Session) (*Generator, error) {
	l, err := newLayout(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", session.Path(), err)
	}
	g := &Generator{session: session, layout: l, half: golden.Half(m) != onnx.Undefined, steady: l.steady() == nil}
	g.chooses = slices.ContainsFunc(session.Outputs(), func(i ort.Info) bool { return i.Name == rememberedOut })
	if !l.cached() && len(l.logits.dims) == 3 {
		ids, out := l.ids.dims, l.logits.dims[1]
		g.right = out.Value != 1 && (out.Param == ids[len(ids)-1].Param || out.Value > 1)
	}
	return g, nil
}

// Cached reports whether the model keeps the keys and values of earlier tokens. A model that does not is fed whole
// sequences again.
func (g *Generator) Cached() bool { return g.layout.cached() }

// Vocabulary returns the number of token ids that the model accepts, 0 if its graph leaves it open.
func (g *Generator) Vocabulary() int64 { return g.layout.vocabulary }

// Positions returns the most tokens that the model's position tables allow in a sequence, 0 for no limit.
func (g *Generator) Positions() int64 { return g.layout.positions }

// Half reports whether the model has weights in half precision.
func (g *Generator) Half() bool { return g.half }

// Close closes the session, if Open opened it.
func (g *Generator) Close() error {
	if !g.own {
		return nil
	}
	return g.session.Close()
}
