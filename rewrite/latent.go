package rewrite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// latentAttends is the fused op whose cache holds latents.
const latentAttends = "LatentAttention"

// ruleLatent is what the metadata of what is added for it has for a pattern (MetaRule).
const ruleLatent = "LatentCache"

// WithLatentCache has latent attention (DeepSeek's MLA) keep the latents of its tokens, of which keys and values of all
// heads follow: the past of a layer's keys becomes one [batch, 1, tokens, channels], under its name, and that of its
// values is dropped. So are their presents. All caches of a model are changed or, with an error that names what is in
// the way, none.
func WithLatentCache() Option { return func(c *config) { c.latentCache = true } }

// LatentReport says which caches of a model hold latents.
type LatentReport struct {
	Inputs        []string     `json:"inputs"`          // the caches
	Dropped       []string     `json:"dropped"`         // inputs that are no more
	BytesPerToken int64        `json:"bytes_per_token"` // of one sequence, in all caches together
	BytesBefore   int64        `json:"bytes_before"`    // the same before
	Check         *CheckReport `json:"check,omitempty"`
}

// Text says it in a line.
func (r *LatentReport) Text() string {
	names := strings.Join(r.Inputs[:min(listed, len(r.Inputs))], ", ")
	if more := len(r.Inputs) - listed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d caches hold latents (%s): %d bytes a token of a sequence, %d before", len(r.Inputs), names,
		r.BytesPerToken, r.BytesBefore)
}

// latentChange makes caches of latents of the caches of one model.
type latentChange struct {
	*applier
	facts   *infer.Facts // of the model with fused blocks
	sites   []*latentSite
	checked *CheckReport
}

// latentSite is a node of attention whose cache becomes one of latents: keys, then values.
type latentSite struct {
	node          *onnx.Node
	latent        *attention.Latent
	past, present [2]*onnx.Value
}

// keepLatents makes caches of latents, if the options say so.
func (p *Plan) keepLatents() error {
	a := p.applier
	if !a.config.latentCache {
		return nil
	}
	c := &latentChange{applier: a, facts: infer.Analyze(a.model)}
	for _, step := range []func() error{c.find, c.checkReaders, c.checkSites, c.change} {
		if err := step(); err != nil {
			return fmt.Errorf("the cache cannot hold latents: %w", err)
		}
	}
	a.report.Latent, a.report.Changed, a.report.Variants = c.report(), true, variants(a.model)
	return nil
}

func (c *latentChange) report() *LatentReport {
	r := &LatentReport{Check: c.checked}
	for _, s := range c.sites {
		l := s.latent
		r.Inputs, r.Dropped = append(r.Inputs, s.past[0].Name), append(r.Dropped, s.past[1].Name)
		bytes := int64(c.facts.DataType(s.past[0]).Bits()) / 8
		r.BytesPerToken += bytes * (l.Width + l.Rotated)
		r.BytesBefore += bytes * l.Heads * (l.Nope + l.Rotated + l.Values)
	}
	return r
}

// find finds the attention with a cache, and what its keys and values are made of.
func (c *latentChange) find() error {
	view := match.New(c.model.Graph, c.facts, nil)
	for _, s := range c.scopes() {
		for _, n := range s.graph.Nodes {
			if n.Domain != fused.Domain || n.OpType != attends || n.Input(fused.AttentionPastKey) == nil {
				continue
			}
			if s.graph != c.model.Graph || s.function != nil {
				return fmt.Errorf("node %q stands in a function, a branch or a loop (%s): inline functions with "+
					"--inline all", nodeName(n), s.place)
			}
			site, err := c.site(view, n)
			if err != nil {
				return fmt.Errorf("node %q: %w", nodeName(n), err)
			}
			c.sites = append(c.sites, site)
		}
	}
	if c.sites == nil {
		return errors.New("there is no mojo.Attention with a cache, which inputs and outputs of the model hold")
	}
	return nil
}

// site looks at one node of attention.
func (c *latentChange) site(view *match.View, n *onnx.Node) (*latentSite, error) {
	for input, what := range map[int]string{fused.AttentionPastLength: "a cache that is a buffer",
		fused.AttentionBias: "a bias", fused.AttentionSink: "a sink"} {
		if n.Input(input) != nil {
			return nil, fmt.Errorf("it has %s, which mojo.%s has not", what, latentAttends)
		}
	}
	if n.AttrInt("window", 0) != 0 || n.AttrFloat("softcap", 0) != 0 {
		return nil, fmt.Errorf("it has a window or bounds its scores, as mojo.%s does not", latentAttends)
	}
	layout := func(tensor string) string { return n.AttrString(tensor+"_layout", "") }
	l, why := attention.FindLatent(view, n.Inputs[fused.AttentionK], n.Inputs[fused.AttentionV],
		n.Input(fused.AttentionPastKey), layout("k"), layout("v"))
	if why != nil {
		return nil, fmt.Errorf("it is no latent attention: %w", why)
	}
	q, axis := n.Inputs[fused.AttentionQ], 1
	if layout("q") == "bsnh" {
		axis = 2
	}
	if d, ok := c.facts.Dim(q, axis); !ok || d != l.Heads {
		return nil, fmt.Errorf("it has not as many heads of keys, %d, as of queries", l.Heads)
	}
	if before := l.Heads * (l.Nope + l.Rotated + l.Values); l.Width+l.Rotated >= before {
		return nil, fmt.Errorf("latents of %d numbers a token take no less room than keys and values of %d",
			l.Width+l.Rotated, before)
	}
	s := &latentSite{node: n, latent: l}
	for k := range s.past {
		s.past[k], s.present[k] = n.Input(fused.AttentionPastKey+k), n.OutputValue(1+k)
		if !s.past[k].IsInput || s.past[k].Const != nil {
			return nil, fmt.Errorf("%q, its past, is no input of the model", s.past[k].Name)
		}
		if s.present[k] == nil || !s.present[k].IsOutput() {
			return nil, fmt.Errorf("what becomes of input %q is no output of the model", s.past[k].Name)
		}
	}
	return s, nil
}

// checkReaders finds who reads the caches besides attention: their shapes are given as they were, no more can be.
func (c *latentChange) checkReaders() error {
	seen := map[*onnx.Value]*onnx.Node{}
	for _, s := range c.sites {
		for _, v := range append(s.past[:], s.present[:]...) {
			if other := seen[v]; other != nil {
				return fmt.Errorf("nodes %q and %q have one cache, %q", nodeName(other), nodeName(s.node), v.Name)
			}
			seen[v] = s.node
			for _, use := range v.Uses() {
				if n := use.Node; n != s.node && !n.Is("Shape") {
					return fmt.Errorf("node %q (%s) reads %q as well, which would hold latents", nodeName(n), n.OpType,
						v.Name)
				}
			}
		}
	}
	return nil
}
