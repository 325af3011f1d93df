package tune

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// Variable is the environment variable that names tables for the kernel library.
const Variable = "MOJO_MOE_CONFIG"

const (
	rounds      = 7
	roundMicros = 3000 // of runs in a row, about
	mostRuns    = 50
	refused     = "the kernels have no such way" // the library's message for an entry that it lacks
	ulps        = 16                             // allowed difference of results: as docs/kernels.md has it for QMoE
	bfloat16ULP = 1.0 / 256
)

// Sessions is a Timer: it runs the experts in onnxruntime, as CUDA graphs.
type Sessions struct {
	experts *Experts
	options []ort.Option
	holder  *ort.Session // holds the weights
	weights map[string]*ort.Value
}

// NewSessions puts random weights onto the device. Its options are the options of a prober: the provider and the
// kernels.
func NewSessions(e *Experts, options ...ort.Option) (_ *Sessions, err error) {
	s := &Sessions{experts: e, options: options, weights: map[string]*ort.Value{}}
	restore, err := configured("none")
	if err != nil {
		return nil, err
	}
	defer restore()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	model, inputs := e.model(1, 1)
	if s.holder, err = open(model, options); err != nil {
		return nil, err
	}
	for _, in := range inputs {
		if in.number < fused.MoEGateUp {
			continue
		}
		t, err := e.weight(in)
		if err == nil {
			s.weights[in.name], err = s.holder.Allocate(in.name, t.Dims)
		}
		if err == nil {
			err = s.weights[in.name].Write(t)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close frees the weights.
func (s *Sessions) Close() error {
	if s.holder == nil {
		return nil
	}
	return s.holder.Close()
}

// run is a timed session.
type run struct {
	session *ort.Session
	binding *ort.Binding
	micros  []float64
}

// Time opens a session for each config and runs them in turn.
func (s *Sessions) Time(tokens int64, configs []Config) (_ []Time, err error) {
	nodes := s.experts.nodes(tokens)
	model, inputs := s.experts.model(tokens, nodes)
	var shared []*onnx.Tensor
	r := rand.New(rand.NewPCG(uint64(tokens), 3))
	for _, in := range inputs {
		if in.number < fused.MoEGateUp {
			t, err := s.experts.call(in, r)
			if err != nil {
				return nil, err
			}
			shared = append(shared, t)
		}
	}
	times := make([]Time, len(configs))
	runs := make([]*run, len(configs))
	defer func() {
		for _, r := range runs {
			if r != nil {
				err = errors.Join(err, r.session.Close())
			}
		}
	}()
	var want *onnx.Tensor
	for i, c := range configs {
		runs[i], err = s.open(model, tokens, c, shared)
		if err != nil && strings.Contains(err.Error(), refused) {
			times[i].Err, err = fmt.Errorf("%w: %w", ErrRefused, err), nil
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		got, err := runs[i].first()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		if want == nil {
			want = got
		}
		if err := s.near(got, want, tokens); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
	}
	for range rounds {
		for _, r := range runs {
			if r == nil {
				continue
			}
			if err := r.round(nodes); err != nil {
				return nil, err
			}
		}
	}
	for i, r := range runs {
		if r != nil {
			slices.Sort(r.micros)
			times[i].Micros = r.micros[len(r.micros)/2]
		}
	}
	return times, nil
}

// open opens a session with a config, and binds its inputs and outputs.
func (s *Sessions) open(model *onnx.Model, tokens int64, c Config, shared []*onnx.Tensor) (_ *run, err error) {
	value := "none"
	if c != Auto {
		dir, err := os.MkdirTemp("", "mojo-patch-tune-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		value = filepath.Join(dir, "config.json")
		table := &Table{Shape: s.experts.Shape, Entries: map[int64]Entry{tokens: {Config: c}}}
		if err := table.WriteFile(value); err != nil {
			return nil, err
		}
	}
	restore, err := configured(value)
	if err != nil {
		return nil, err
	}
	defer restore()
	r := &run{}
	if r.session, err = open(model, s.options); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.session.Close()
		}
	}()
	if r.binding, err = r.session.Bind(); err != nil {
		return nil, err
	}
	for _, t := range shared {
		if err := r.binding.Input(t); err != nil {
			return nil, err
		}
	}
	for name, v := range s.weights {
		if err := r.binding.InputValue(name, v); err != nil {
			return nil, err
		}
	}
	for _, o := range r.session.Outputs() {
		if err := r.binding.Output(o.Name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// open opens a model in memory.
func open(m *onnx.Model, options []ort.Option) (*ort.Session, error) {
	encoded, err := onnx.Marshal(m)
	if err != nil {
		return nil, err
	}
	return ort.OpenBytes(encoded, "", options...)
}

// configured sets the variable for new sessions, until restore is called.
func configured(value string) (restore func(), err error) {
	old, had := os.LookupEnv(Variable)
	if err := os.Setenv(Variable, value); err != nil {
		return nil, err
	}
	return func() {
		if had {
			os.Setenv(Variable, old)
		} else {
			os.Unsetenv(Variable)
		}
	}, nil
}

// first runs the model until its graph is recorded, and returns the first output.
func (r *run) first() (_ *onnx.Tensor, err error) {
	for range 3 {
		if err := r.binding.Run(context.Background()); err != nil {
			return nil, err
		}
	}
	values, err := r.binding.Outputs()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, v := range values {
			err = errors.Join(err, v.Close())
		}
	}()
	return values[0].Tensor()
}

// round times some runs in a row, in microseconds per node.
func (r *run) round(nodes int) error {
	count := 5
	if len(r.micros) > 0 {
		count = min(max(int(roundMicros/(r.micros[0]*float64(nodes))), 2), mostRuns)
	}
	start := time.Now()
	for range count - 1 {
		if err := r.binding.Queue(context.Background()); err != nil {
			return err
		}
	}
	if err := r.binding.Run(context.Background()); err != nil {
		return err
	}
	r.micros = append(r.micros, float64(time.Since(start).Nanoseconds())/1e3/float64(count*nodes))
	return nil
}

// near returns an error if results are NaN, or further from the library's own than the op allows.
func (s *Sessions) near(got, want *onnx.Tensor, tokens int64) error {
	d, err := golden.Compare(got, want, golden.Tolerance{})
	if err != nil {
		return err
	}
	allowed := ulps*bfloat16ULP + s.experts.op.Open(s.experts.site(tokens))
	if !(float64(d.MaxAbs) <= allowed*float64(d.MaxWant)) {
		return fmt.Errorf("its results differ from the library's by %g, with a greatest value of %g", d.MaxAbs,
			d.MaxWant)
	}
	return nil
}
