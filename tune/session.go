package tune

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// Variable is the environment variable that names tables for the kernel library.
const Variable = "MOJO_MOE_CONFIG"

const (
	opset, irVersion = 21, 10
	// A model has as many nodes as read this much, so that no node finds its weights in the device's cache.
	readBytes              = 400 << 20
	leastNodes, most       = 4, 16
	rounds                 = 7
	roundMicros            = 3000 // of runs in a row, about
	mostRuns               = 50
	refused                = "the kernels have no such way" // what the library says of an entry that it lacks
	ulps                   = 16                             // results may differ by: what docs/kernels.md allows QMoE
	bfloat16ULP            = 1.0 / 256
	patternBytes     int64 = 1 << 24
)

// Sessions is a Timer: it runs the experts in onnxruntime, as CUDA graphs.
type Sessions struct {
	experts *Experts
	options []ort.Option
	holder  *ort.Session // of the weights
	weights map[string]*ort.Value
}

// NewSessions puts random weights onto the device. The options of its sessions are those of a prober: the provider, the
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

// input is an input of a measuring model: number of the op's inputs.
type input struct {
	name   string
	number int
	typ    onnx.DataType
	dims   []int64
}

// model has so many nodes, with tokens and choices of their own, and weights in common.
func (e *Experts) model(tokens int64, nodes int) (*onnx.Model, []input) {
	m := onnx.New(irVersion, opset)
	m.ImportOpset(fused.Domain, fused.Version)
	m.Graph.Name = "experts"
	site := e.site(tokens)
	var inputs []input
	values := map[string]*onnx.Value{}
	for i := range nodes {
		var in []*onnx.Value
		for k, p := range e.op.Inputs {
			if site.Types[k] == onnx.Undefined {
				in = append(in, nil)
				continue
			}
			name := p.Name
			if k < fused.MoEGateUp {
				name = fmt.Sprintf("%s_%d", p.Name, i)
			}
			if values[name] == nil {
				values[name] = m.Graph.AddInput(name, fixed(site.Types[k], site.Dims[k]))
				inputs = append(inputs, input{name, k, site.Types[k], site.Dims[k]})
			}
			in = append(in, values[name])
		}
		for len(in) > 0 && in[len(in)-1] == nil {
			in = in[:len(in)-1]
		}
		y := m.Graph.NewValue(fmt.Sprintf("Y_%d", i))
		y.SetType(fixed(site.Types[fused.MoEX], site.Dims[fused.MoEX]))
		n := m.Graph.AddNode(e.op.Name, in, []*onnx.Value{y}, e.attributes...)
		n.Domain = fused.Domain
		m.Graph.AddOutput(y)
	}
	return m, inputs
}

func fixed(t onnx.DataType, dims []int64) onnx.Type {
	typ := onnx.Type{DataType: t, HasShape: true}
	for _, d := range dims {
		typ.Dims = append(typ.Dims, onnx.Dim{Value: d})
	}
	return typ
}

// weight makes an input that holds weights. Numbers repeat: each expert's are read from where they lie all the same.
func (e *Experts) weight(in input) (*onnx.Tensor, error) {
	t := &onnx.Tensor{DataType: in.typ, Dims: in.dims}
	b := make([]byte, t.Size())
	r := rand.New(rand.NewPCG(uint64(in.number), 7))
	name, width := e.op.Inputs[in.number].Name, float64(max(e.Shape.Hidden, e.Shape.Inner))
	size := in.typ.Bits() / 8
	pattern := b[:min(int64(len(b)), patternBytes)]
	for i := 0; i+size <= len(pattern); i += size {
		x := r.NormFloat64() / math.Sqrt(width)
		switch {
		case in.typ == onnx.Uint8 && strings.HasSuffix(name, "scale"): // exponents
			pattern[i] = byte(127 - math.Ceil(math.Log2(width)/2) - 1)
		case in.typ == onnx.Uint8:
			if pattern[i] = byte(r.Uint32()); e.Shape.Format == FP8 {
				pattern[i] &= 0xbf // magnitudes below 2, and no NaN
			}
		case strings.HasSuffix(name, "scale"):
			put(pattern[i:], in.typ, 1/math.Sqrt(width))
		default:
			put(pattern[i:], in.typ, x)
		}
	}
	for at := len(pattern); at < len(b); at *= 2 {
		copy(b[at:], b[:at])
	}
	return onnx.NewTensor(in.name, in.typ, in.dims, b)
}

// put stores a number of small magnitude.
func put(to []byte, t onnx.DataType, x float64) {
	switch t {
	case onnx.Float:
		binary.LittleEndian.PutUint32(to, math.Float32bits(float32(x)))
	case onnx.BFloat16:
		binary.LittleEndian.PutUint16(to, blocks.BFloat16(float32(x)))
	case onnx.Float16:
		binary.LittleEndian.PutUint16(to, float16(x))
	}
}

// float16 is x cut off to a float16; what is less than its least normal number is 0.
func float16(x float64) uint16 {
	b := math.Float32bits(float32(x))
	exponent := int(b>>23&255) - 112
	if exponent < 1 {
		return 0
	}
	return uint16(b>>16&0x8000) | uint16(min(exponent, 30))<<10 | uint16(b>>13&1023)
}

// call makes an input that is not weights: tokens, and experts of each that differ, chosen at random.
func (e *Experts) call(in input, r *rand.Rand) (*onnx.Tensor, error) {
	t := &onnx.Tensor{DataType: in.typ, Dims: in.dims}
	b := make([]byte, t.Size())
	switch in.number {
	case fused.MoEIDs:
		for token := range in.dims[0] {
			for j, id := range r.Perm(int(e.Shape.Experts))[:e.Shape.TopK] {
				binary.LittleEndian.PutUint64(b[8*(token*e.Shape.TopK+int64(j)):], uint64(id))
			}
		}
	default:
		size := in.typ.Bits() / 8
		for i := 0; i < len(b); i += size {
			x := r.NormFloat64()
			if in.number == fused.MoEWeights {
				x = 1 / float64(e.Shape.TopK)
			}
			put(b[i:], in.typ, x)
		}
	}
	return onnx.NewTensor(in.name, in.typ, in.dims, b)
}

// nodes is how many nodes a model has.
func (e *Experts) nodes(tokens int64) int {
	hit := min(float64(e.Shape.Experts), float64(tokens*e.Shape.TopK))
	bits := map[string]float64{MXFP4: 4.25, FP8: 8}[e.Shape.Format]
	if bits == 0 {
		bits = 16
	}
	bytes := hit * 3 * float64(e.Shape.Hidden*e.Shape.Inner) * bits / 8
	return min(max(int(math.Ceil(readBytes/bytes)), leastNodes), most)
}

// run is a session that is timed.
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
	var want []*onnx.Tensor
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

// open opens a session that has a config, and binds what it reads.
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

// configured sets the variable for sessions that are opened, until restore is called.
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
func (r *run) first() ([]*onnx.Tensor, error) {
	for range 3 {
		if err := r.binding.Run(context.Background()); err != nil {
			return nil, err
		}
	}
	values, err := r.binding.Outputs()
	if err != nil {
		return nil, err
	}
	var list []*onnx.Tensor
	for _, v := range values {
		if len(list) == 0 {
			t, err := v.Tensor()
			if err != nil {
				return nil, err
			}
			list = append(list, t)
		}
		if err := v.Close(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// round times some runs in a row: the microseconds of a node.
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

// near errs where results are no numbers, or further from what the library gives by itself than the op allows.
func (s *Sessions) near(got, want []*onnx.Tensor, tokens int64) error {
	stats, err := golden.CompareAll(got, want, golden.Tolerances{})
	if err != nil {
		return err
	}
	allowed := ulps*bfloat16ULP + s.experts.op.Open(s.experts.site(tokens))
	for _, d := range stats {
		if !(float64(d.MaxAbs) <= allowed*float64(d.MaxWant)) {
			return fmt.Errorf("its results differ from the library's own by %g where the greatest is %g", d.MaxAbs,
				d.MaxWant)
		}
	}
	return nil
}
