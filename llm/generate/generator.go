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

// Generator is a language model that is open. Several runs may be on at once.
type Generator struct {
	session *ort.Session
	own     bool // whether Close closes the session
	layout  *layout
	half    bool // whether it has numbers of half precision
	// right says that padding stands behind sequences: the model has no cache, and logits for every position.
	right bool

	steady  bool         // whether tokens are decoded in memory that stays where it is
	chooses bool         // whether the session chooses their successors: see OpenSession
	graphs  atomic.Int64 // that were numbered

	mu     sync.Mutex
	padded *bool // whether padding before a sequence leaves its logits as they are; nil before it was tried
}

// Open reads the model at path, finds out how it is fed, and opens it in onnxruntime with the options: the kernels of a
// patched model (ort.WithKernels), threads, execution providers.
func Open(path string, options ...ort.Option) (*Generator, error) {
	m, err := onnx.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := Check(m); err != nil { // before onnxruntime takes its time
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

// CheckSteady reports whether text is generated in memory that stays where it is from token to token, as CUDA graphs
// need it: the error says why not.
func CheckSteady(m *onnx.Model) error {
	l, err := newLayout(m)
	if err == nil {
		err = l.steady()
	}
	return err
}

// Check reports whether text can be generated with a model: the error is that of New.
func Check(m *onnx.Model) error {
	if _, err := newLayout(m); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return nil
}

// New makes a generator of a session that is open on model m, which may be closed afterwards. The error is a
// *LayoutError, with what was understood of the inputs, where m is no decoder or has inputs that nothing is known of.
// Close leaves the session open.
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

// Cached reports whether the model keeps keys and values of earlier tokens; one that does not is fed whole sequences
// again.
func (g *Generator) Cached() bool { return g.layout.cached() }

// Vocabulary is the number of token ids that the model takes, 0 where its graph does not say.
func (g *Generator) Vocabulary() int64 { return g.layout.vocabulary }

// Positions is how many tokens a sequence can have by the model's tables of positions, 0 where they set no limit.
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
