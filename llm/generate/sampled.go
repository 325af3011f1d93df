package generate

import (
	"errors"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/fused/sample"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// errNoToken is the error of a row from which Sample chooses no token.
var errNoToken = errors.New("logits: the model chose no token: a logit is NaN or infinite, or all are -Inf")

// samplePorts names the inputs and the output of a node Sample behind the logits, as apply --sample adds it.
type samplePorts struct{ controls, random, tokens, prompt, ids string }

// findSample finds the node that chooses tokens from the last rows of the logits, and returns nil if there is none. Its
// other inputs are inputs of the model.
func findSample(m *onnx.Model, logits string) *samplePorts {
	for _, n := range m.Graph.Nodes {
		if n.Domain != fused.Domain || n.OpType != fused.SampleName || len(n.Inputs) <= sample.SamplePrompt {
			continue
		}
		from := n.Inputs[sample.SampleLogits]
		for from.Producer != nil && (from.Producer.Is("Slice") || from.Producer.Is("Reshape")) {
			from = from.Producer.Input(0)
		}
		if from.Name != logits || !n.Outputs[0].IsOutput() {
			continue
		}
		input := func(i int) string {
			v := n.Inputs[i]
			if v.Producer != nil && v.Producer.Is("Expand") {
				v = v.Producer.Input(0)
			}
			if !v.IsInput {
				return ""
			}
			return v.Name
		}
		p := &samplePorts{input(sample.SampleControls), input(sample.SampleRandom), input(sample.SampleTokens),
			input(sample.SamplePrompt), n.Outputs[0].Name}
		if p.controls != "" && p.random != "" && p.tokens != "" && p.prompt != "" {
			return p
		}
	}
	return nil
}

// sampled is how a model chooses the tokens of a batch. The host draws the random numbers.
type sampled struct {
	samplers  []*Sampler // of each sequence
	penalises bool       // whether Sample reads earlier tokens
}

// sampleRow describes the choice from one row of logits. The token of a row without a sampler is not read.
type sampleRow struct {
	sampler *Sampler
	random  int64
	tokens  []int64 // all earlier ones
	prompt  int
}

// row describes the choice after tokens, which is the next one but n.
func (s *Sampler) row(n int, tokens []int64, prompt int) sampleRow {
	r := sampleRow{s, 0, tokens, prompt}
	if s.opts.Temperature > 0 {
		r.random = s.ahead(n)
	}
	return r
}

// samplersOf returns the samplers of a group of sequences whose tokens the model may choose, and nil if the host must
// read the logits.
func (r *Run) samplersOf(group []int) []*Sampler {
	o := &r.options
	if o.Choose != nil || o.Margins || o.Speculate > 0 && r.g.layout.paged == nil || r.g.chooses && r.likeliest() {
		return nil
	}
	list := make([]*Sampler, len(group))
	for k, i := range group {
		list[k] = r.sequences[i].sampler
	}
	return list
}

// likeliest reports whether every sequence takes the tokens of the greatest logits.
func (r *Run) likeliest() bool {
	return !slices.ContainsFunc(r.sequences, func(s *sequence) bool { return !s.sampler.opts.likeliest() })
}

// canSample reports whether the model chooses tokens, and whether the last slot of each sequence is its last token.
func (g *Generator) canSample(prompts [][]int64) bool {
	if g.layout.sample == nil || !g.layout.cached() && g.layout.sequence() > 0 {
		return false
	}
	return !g.right || !slices.ContainsFunc(prompts, func(p []int64) bool { return len(p) != len(prompts[0]) })
}

// chooses returns the name of the output that shows the next tokens: the logits, or the tokens themselves.
func (b *batch) chooses() string {
	if b.sampled != nil {
		return b.g.layout.sample.ids
	}
	return b.g.layout.logits.name
}

// drawn returns the token that the model chose after the last token of a sequence that is not only proposed.
func (b *batch) drawn(i int) (int64, error) {
	list, at := b.chosen, i
	if b.paged != nil {
		list = b.paged.ends[i].chosen
		at = len(list) - 1 - b.proposed[i]
	}
	if list[at] >= 0 {
		return list[at], nil
	}
	return 0, errNoToken
}

// next chooses the token after those of sequence i that are not only proposed, or takes the one that the model chose.
func (b *batch) next(i int, s *Sampler, prompt, generated []int64) (int64, error) {
	if b.chosen != nil {
		if s.opts.Temperature > 0 {
			s.random()
		}
		return b.drawn(i)
	}
	logits, err := b.row(i)
	if err != nil {
		return 0, err
	}
	return s.Next(logits, prompt, generated)
}

// controls returns the options as Sample takes them.
func (o *Sampling) controls() []float32 {
	list := make([]float32, sample.Controls)
	for column, v := range map[int]float64{sample.Temperature: o.Temperature, sample.TopK: float64(o.TopK),
		sample.TopP: o.TopP, sample.MinP: o.MinP, sample.Repetition: o.RepetitionPenalty,
		sample.Frequency: o.FrequencyPenalty, sample.Presence: o.PresencePenalty} {
		list[column] = float32(v)
	}
	return list
}

// sampleRows returns a row for each sequence of a batch without pools.
func (b *batch) sampleRows() []sampleRow {
	list := make([]sampleRow, b.rows())
	for i, s := range b.sampled.samplers {
		list[i] = s.row(0, b.sequences[i], b.prompts[i])
	}
	return list
}

// sampleInputs returns the inputs of Sample: options and a random number of each row, and length tokens if penalties
// read them.
func (b *batch) sampleInputs(list []sampleRow, length int) []*onnx.Tensor {
	p, rows := b.g.layout.sample, int64(len(list))
	var controls []float32
	random, prompt := make([]int64, rows), make([]int64, rows)
	for i, r := range list {
		opts := &Sampling{}
		if r.sampler != nil {
			opts = &r.sampler.opts
		}
		controls = append(controls, opts.controls()...)
		random[i], prompt[i] = r.random, int64(r.prompt)
	}
	out := []*onnx.Tensor{onnx.NewFloat32s(p.controls, []int64{rows, sample.Controls}, controls),
		onnx.NewInt64s(p.random, random)}
	if !b.sampled.penalises {
		return out
	}
	tokens := slices.Repeat([]int64{-1}, len(list)*length)
	for i, r := range list {
		copy(tokens[i*length:(i+1)*length], r.tokens)
	}
	t := onnx.NewInt64s(p.tokens, tokens)
	t.Dims = []int64{rows, int64(length)}
	return append(out, t, onnx.NewInt64s(p.prompt, prompt))
}

// bindSample binds the inputs of Sample for a run.
func (b *batch) bindSample(list []sampleRow) (err error) {
	longest := 0
	for _, r := range list {
		longest = max(longest, len(r.tokens))
	}
	for _, t := range b.sampleInputs(list, longest) {
		err = errors.Join(err, b.binding.Input(t))
	}
	return err
}

// sampleLength returns the number of tokens that steps in fixed memory have room for.
func (b *batch) sampleLength() int { return max(b.buffers.Slots, b.context) }

// allocateSample allocates the inputs of Sample for steps in fixed memory.
func (b *batch) allocateSample() (values []*ort.Value, err error) {
	for _, t := range b.sampleInputs(b.sampleRows(), b.sampleLength()) {
		v, e := b.g.session.Allocate(t.Name, t.Dims)
		if err = errors.Join(err, e); e == nil {
			values = append(values, v)
		}
	}
	return values, err
}

// writeSample writes these inputs for the next step.
func (b *batch) writeSample(values []*ort.Value) (err error) {
	if b.sampled == nil {
		return nil
	}
	for i, t := range b.sampleInputs(b.sampleRows(), b.sampleLength()) {
		err = errors.Join(err, values[i].Write(t))
	}
	return err
}
