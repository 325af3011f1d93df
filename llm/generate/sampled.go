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
type sampled struct{ samplers []*Sampler }

// samplersOf returns the samplers of a group of sequences whose tokens the model may choose, and nil if the host must
// read the logits.
func (r *Run) samplersOf(group []int) []*Sampler {
	o := &r.options
	if o.Choose != nil || o.Margins || o.Speculate > 0 || r.g.chooses && o.Sampling.likeliest() {
		return nil
	}
	list := make([]*Sampler, len(group))
	for k, i := range group {
		list[k] = r.sequences[i].sampler
	}
	return list
}

// canSample reports whether the model chooses tokens, and whether the last slot of each sequence is its last token.
func (g *Generator) canSample(prompts [][]int64) bool {
	if g.layout.sample == nil || g.layout.paged != nil || !g.layout.cached() && g.layout.sequence() > 0 {
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

// sampleInputs returns the inputs of Sample: the options, a random number for each sequence if draws says so, and its
// first length tokens if penalties read them.
func (b *batch) sampleInputs(draws bool, length int) ([]*onnx.Tensor, error) {
	p, rows := b.g.layout.sample, b.rows()
	opts := &b.sampled.samplers[0].opts
	random := make([]int64, rows)
	for i, s := range b.sampled.samplers {
		if draws && opts.Temperature > 0 {
			random[i] = s.random()
		}
	}
	list := []*onnx.Tensor{onnx.NewFloat32s(p.controls, []int64{1, sample.Controls}, opts.controls()),
		onnx.NewInt64s(p.random, random)}
	if !opts.penalises() {
		return list, nil
	}
	tokens, prompt := make([]int64, rows*length), make([]int64, rows)
	for i := range tokens {
		tokens[i] = -1
	}
	for i, s := range b.sequences {
		copy(tokens[i*length:(i+1)*length], s)
		prompt[i] = int64(b.prompts[i])
	}
	t := onnx.NewInt64s(p.tokens, tokens)
	t.Dims = []int64{int64(rows), int64(length)}
	return append(list, t, onnx.NewInt64s(p.prompt, prompt)), nil
}

// bindSample binds the inputs of Sample for a run of fresh slots. Only a run that ends with the last tokens draws.
func (b *batch) bindSample(starts []int, fresh int) error {
	last, longest := true, 0
	for i, s := range b.sequences {
		last = last && starts[i]+fresh >= b.left[i]+len(s)
		longest = max(longest, len(s))
	}
	list, err := b.sampleInputs(last, longest)
	for _, t := range list {
		err = errors.Join(err, b.binding.Input(t))
	}
	return err
}

// sampleLength returns the number of tokens that steps in fixed memory have room for.
func (b *batch) sampleLength() int { return max(b.buffers.Slots, b.context) }

// allocateSample allocates the inputs of Sample for steps in fixed memory.
func (b *batch) allocateSample() (values []*ort.Value, err error) {
	list, err := b.sampleInputs(false, b.sampleLength())
	for _, t := range list {
		v, e := b.g.session.Allocate(t.Name, t.Dims)
		if err = errors.Join(err, e); e == nil {
			values = append(values, v)
		}
	}
	return values, err
}

// writeSample writes these inputs for the next step.
func (b *batch) writeSample(values []*ort.Value) error {
	if b.sampled == nil {
		return nil
	}
	list, err := b.sampleInputs(true, b.sampleLength())
	for i, t := range list {
		err = errors.Join(err, values[i].Write(t))
	}
	return err
}
