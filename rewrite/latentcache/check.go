package latentcache

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Attention to latents computes the same as attention to a model's keys and values if the model computes these from the
// latents. checkSites computes them, for past and new tokens, with the model's own nodes and weights. It compares the
// op's definition, and its kernel, with the original attention. It also attends to the latents directly, because
// kernels may absorb the weights that way, which a definition with keys and values does not cover.

// latentTrial is one set of lengths.
type latentTrial struct {
	batch, past, added int64
	padding            prove.Padding
}

var latentTrials = []latentTrial{{2, 3, 1, prove.NoPadding}, {3, 0, 4, prove.LeftPadding}, {2, 5, 3, prove.Holes},
	{3, 4, 1, prove.LeftPadding}, {2, 0, 1, prove.NoPadding}, {3, 2, 9, prove.RightPadding}}

func (c *latentChange) checkSites() error {
	p := c.NewWeightProver()
	absorbs := p.Other() // of the same claims
	for _, s := range c.sites {
		claim, err := c.claim(s)
		if err != nil {
			return err
		}
		if err = p.Prove(claim); err == nil {
			err = absorbs.Prove(c.absorbed(s, claim))
		}
		if err != nil {
			return fmt.Errorf("node %q: %w", s.node.Label(), err)
		}
	}
	r := p.Checked()
	if r == nil {
		return nil
	}
	c.checked = &prove.CheckReport{MaxRel: r.MaxRel, Structural: max(r.Structural, absorbs.Report.Structural),
		Cases: r.Cases, Kernel: r.Kernel, KernelTold: r.KernelTold}
	return nil
}

// absorbed claims the same for attention to the latents themselves, which kernels may compute instead of the
// definition.
func (c *latentChange) absorbed(s *latentSite, claim *prove.Claim) *prove.Claim {
	site, other := c.fusedSite(s), *claim
	other.Typed, other.Also = nil, nil
	other.After = func(_ reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		y, err := absorbed(site, in)
		return []*reference.Tensor{y, allLatents(in)}, err
	}
	return &other
}

// claim claims that attention to latents computes the same as the node at a site, and that its kernel does so too.
func (c *latentChange) claim(s *latentSite) (*prove.Claim, error) {
	site := c.fusedSite(s)
	f, err := fused.Lookup(fused.LatentAttentionName).Function(site)
	if err != nil {
		return nil, err
	}
	node := &onnx.Node{Domain: fused.Domain, OpType: fused.LatentAttentionName, Overload: f.Overload,
		Attributes: site.Attributes,
		Outputs:    make([]*onnx.Value, 2)}
	naive := map[*reference.Tensor][]*reference.Tensor{} // inputs of the original attention, by queries
	return &prove.Claim{
		What: "attention on latents", Outputs: fused.Lookup(fused.LatentAttentionName).OutputNames(),
		Exact: prove.First(prove.Structural), Typed: prove.First(prove.SumOf(1)),
		Key: fmt.Sprint(site.Types, site.Dims, onnx.AttributesKey(site.Attributes), s.node.Overload),
		Before: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			out, err := reference.NewForOpset(site.Opset, c.Model.Functions, o).Op(s.node,
				naive[in[fused.LatentAttentionQ]])
			if err != nil {
				return nil, err
			}
			return []*reference.Tensor{out[0], allLatents(in)}, nil
		},
		After: prove.Op(site.Opset, node, f),
		Also: func(t prove.Trial, _, got []*reference.Tensor, r *prove.CheckReport) error {
			return c.latentKernel(site, t.Inputs, got, r)
		},
		Trials: func(yield func(prove.Trial, error) bool) {
			w, err := reference.FromONNX(s.latent.W.Constant())
			if err != nil {
				yield(prove.Trial{}, &prove.EvalError{Err: err})
				return
			}
			for i, t := range latentTrials {
				in, old, err := c.trial(s, t, i, w)
				if err != nil {
					err = &prove.EvalError{Err: err}
				} else {
					naive[in[fused.LatentAttentionQ]] = old
				}
				name := fmt.Sprintf("%d tokens in the cache and %d new ones, %s", t.past, t.added, t.padding.Name)
				if !yield(prove.Trial{Name: name, Inputs: in}, err) {
					return
				}
			}
		},
	}, nil
}

// trial returns the inputs of attention to latents, and of the model's original attention.
func (c *latentChange) trial(s *latentSite, t latentTrial, seed int, w *reference.Tensor) (in,
	naive []*reference.Tensor, err error) {
	l, typ := s.latent, c.facts.DataType(s.past[0])
	in, naive = make([]*reference.Tensor, fused.LatentAttentionPast+1), make([]*reference.Tensor, len(s.node.Inputs))
	in[fused.LatentAttentionW] = w
	q := []int64{t.batch, l.Heads, t.added, l.Nope + l.Rotated}
	if s.node.AttrString(fused.AttrQLayout, "") == "bsnh" {
		q[1], q[2] = q[2], q[1]
	}
	for i, shape := range map[int][]int64{fused.LatentAttentionQ: q, fused.LatentAttentionC: {t.batch, t.added,
		l.Width},
		fused.LatentAttentionKPE:  {t.batch, 1, t.added, l.Rotated},
		fused.LatentAttentionPast: {t.batch, 1, t.past, l.Width + l.Rotated}} {
		if in[i], err = prove.MakeInput(prove.Normal, 8*seed+i, typ, shape); err != nil {
			return nil, nil, err
		}
	}
	if s.node.Input(fused.AttentionKeyValid) != nil {
		in[fused.LatentAttentionKeyValid] = t.padding.Tensor(onnx.Int64, []int64{t.batch, t.past + t.added})
		naive[fused.AttentionKeyValid] = in[fused.LatentAttentionKeyValid]
	}
	latents, shared, tokens := in[fused.LatentAttentionC].F, in[fused.LatentAttentionKPE].F, t.added
	if !s.byHeads {
		latents, shared = parts(allLatents(in), int(l.Width))
		tokens += t.past
	}
	k, v, err := l.HeadsOf(t.batch, tokens, latents, shared)
	if err != nil {
		return nil, nil, err
	}
	naive[fused.AttentionK], naive[fused.AttentionV] = k, v
	if s.byHeads {
		if err := c.pastOf(s, t, in[fused.LatentAttentionPast], naive); err != nil {
			return nil, nil, err
		}
	}
	calm(in[fused.LatentAttentionQ], k, math.Abs(float64(s.node.AttrFloat(fused.AttrScale, 1))))
	naive[fused.AttentionQ] = in[fused.LatentAttentionQ]
	return in, naive, nil
}

// pastOf computes the keys and values of past latents.
func (c *latentChange) pastOf(s *latentSite, t latentTrial, past *reference.Tensor, naive []*reference.Tensor) error {
	l := s.latent
	latents, shared := parts(past, int(l.Width))
	for k, width := range []int64{l.Nope + l.Rotated, l.Values} {
		naive[fused.AttentionPastKey+k] = reference.NewFloats(past.DataType,
			[]int{int(t.batch), int(l.Heads), int(t.past), int(width)}, nil)
	}
	if t.past == 0 {
		return nil
	}
	k, v, err := l.HeadsOf(t.batch, t.past, latents, shared)
	if err != nil {
		return err
	}
	for i, made := range []*reference.Tensor{k, v} {
		if s.node.AttrString([]string{fused.AttrKLayout, fused.AttrVLayout}[i], "") == "bsnh" {
			made = prove.SwapHeads(made)
		}
		naive[fused.AttentionPastKey+i].F = made.F
	}
	return nil
}

// parts returns the first channels of each row, and the others.
func parts(t *reference.Tensor, first int) (latents, shared []float64) {
	width := t.Shape[3]
	for i := 0; i < len(t.F); i += width {
		latents, shared = append(latents, t.F[i:i+first]...), append(shared, t.F[i+first:i+width]...)
	}
	return latents, shared
}

// calm scales queries by a power of two so that scores have a magnitude of about 1. Larger ones would show only
// rounding.
func calm(q, k *reference.Tensor, scale float64) {
	squares := 0.0
	for _, x := range k.F {
		squares += x * x
	}
	size := scale * math.Sqrt(squares/float64(max(len(k.F), 1))*float64(q.Shape[3]))
	if size == 0 || math.IsInf(size, 0) {
		return
	}
	factor := math.Exp2(-math.Round(math.Log2(size)))
	for i := range q.F {
		q.F[i] *= factor
	}
}

// absorbed attends to the latents: queries are first multiplied by the weights of keys, and the result by the weights
// of values.
func absorbed(site fused.Site, in []*reference.Tensor) (*reference.Tensor, error) {
	q, w := in[fused.LatentAttentionQ], in[fused.LatentAttentionW]
	if site.Attr(fused.AttrQLayout).String == "bsnh" {
		q = prove.SwapHeads(q)
	}
	batch, heads, queries, width := q.Shape[0], q.Shape[1], q.Shape[2], q.Shape[3]
	latent, rotated := in[fused.LatentAttentionC].Shape[2], in[fused.LatentAttentionKPE].Shape[3]
	w, err := w.Dense()
	if err != nil {
		return nil, err
	}
	weights := w.F
	outputs := len(weights) / latent
	nope := width - rotated
	at := func(output, input int) float64 {
		if site.Attr(fused.AttrWLayout).String == "out_in" {
			return weights[output*latent+input]
		}
		return weights[input*outputs+output]
	}
	wide := make([]float64, 0, batch*heads*queries*(latent+rotated))
	for row := range batch * heads * queries {
		h, x := row/queries%heads, q.F[row*width:(row+1)*width]
		for i := range latent {
			sum := 0.0
			for e := range nope {
				sum += x[e] * at(h*(outputs/heads)+e, i)
			}
			wide = append(wide, sum)
		}
		wide = append(wide, x[nope:]...)
	}
	attended, err := attendLatents(site, in, reference.NewFloats(q.DataType,
		[]int{batch, heads, queries, latent + rotated}, wide))
	if err != nil {
		return nil, err
	}
	values := outputs/heads - nope
	y := make([]float64, 0, batch*heads*queries*values)
	for row := range batch * heads * queries {
		h, x := row/queries%heads, attended.F[row*latent:(row+1)*latent]
		for d := range values {
			sum := 0.0
			for i := range latent {
				sum += x[i] * at(h*(outputs/heads)+nope+d, i)
			}
			y = append(y, sum)
		}
	}
	out := reference.NewFloats(q.DataType, []int{batch, heads, queries, values}, y)
	if site.Attr(fused.AttrYLayout).String == "bsnh" {
		out = prove.SwapHeads(out)
	}
	return out, nil
}

// attendLatents computes attention with latents as the keys of all heads, and their first channels as values.
func attendLatents(site fused.Site, in []*reference.Tensor, q *reference.Tensor) (*reference.Tensor, error) {
	keys := allLatents(in)
	batch, tokens, width, latent := keys.Shape[0], keys.Shape[2], keys.Shape[3], in[fused.LatentAttentionC].Shape[2]
	var first []float64
	for i := range batch * tokens {
		first = append(first, keys.F[i*width:i*width+latent]...)
	}
	inputs := []*reference.Tensor{q, keys, reference.NewFloats(keys.DataType, []int{batch, 1, tokens, latent}, first),
		in[fused.LatentAttentionKeyValid]}
	op := fused.Read[fused.LatentAttention](site.Attributes)
	attention := fused.Site{Opset: site.Opset, Attributes: fused.Attention{Scale: op.Scale, Causal: op.Causal,
		Empty: op.Empty, HeadOrder: "blocked", QLayout: "bnsh", KLayout: "bnsh", VLayout: "bnsh",
		YLayout: "bnsh"}.Attributes()}
	for _, x := range inputs {
		if x == nil {
			attention.Types, attention.Dims = append(attention.Types, onnx.Undefined), append(attention.Dims, nil)
			continue
		}
		attention.Types, attention.Dims = append(attention.Types, x.DataType), append(attention.Dims, x.Dims())
	}
	f, err := fused.Lookup(fused.AttentionName).Function(attention)
	if err != nil {
		return nil, err
	}
	n := &onnx.Node{Domain: fused.Domain, OpType: f.Name, Overload: f.Overload, Attributes: attention.Attributes,
		Outputs: make([]*onnx.Value, 1)}
	out, err := reference.NewForOpset(site.Opset, []*onnx.Function{f}, reference.Options{Exact: true}).Op(n, inputs)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// allLatents returns the latents of past and new tokens.
func allLatents(in []*reference.Tensor) *reference.Tensor {
	past, c, pe := in[fused.LatentAttentionPast], in[fused.LatentAttentionC], in[fused.LatentAttentionKPE]
	latent, rotated := c.Shape[2], pe.Shape[3]
	var all []float64
	for b := range c.Shape[0] {
		row := past.Shape[2] * past.Shape[3]
		all = append(all, past.F[b*row:(b+1)*row]...)
		for i := range c.Shape[1] {
			at := b*c.Shape[1] + i
			all = append(append(all, c.F[at*latent:(at+1)*latent]...), pe.F[at*rotated:(at+1)*rotated]...)
		}
	}
	return reference.NewFloats(past.DataType, []int{c.Shape[0], 1, past.Shape[2] + c.Shape[1], latent + rotated}, all)
}

// latentKernel compares the kernel, if there is one, with the definition.
func (c *latentChange) latentKernel(site fused.Site, in, want []*reference.Tensor, r *prove.CheckReport) error {
	got, err := c.CompareKernel(&prove.KernelRun{Op: fused.Lookup(fused.LatentAttentionName), Site: site, In: in,
		Want: want}, r)
	switch {
	case got != nil && err != nil:
		err = fmt.Errorf("it differs from the op's definition: %w", err)
	case got != nil && !slices.Equal(got[1].F, want[1].F):
		err = errors.New("the latents in present differ")
	}
	if err != nil {
		return fmt.Errorf("its kernel: %w", err)
	}
	return nil
}
