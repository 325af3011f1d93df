// Package latentcache makes latent attention cache latents instead of keys and values.
package latentcache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ruleLatent is the pattern name in the metadata of the added nodes (MetaRule).
const ruleLatent = "LatentCache"

// ErrLatentCache reports that the caches of a model cannot hold latents. Apply wraps it together with the reason.
var ErrLatentCache = errors.New("the cache cannot hold latents")

// A LatentReport lists the caches of a model that hold latents.
type LatentReport struct {
	Inputs        []string           `json:"inputs"`          // the caches
	Dropped       []string           `json:"dropped"`         // removed inputs
	BytesPerToken int64              `json:"bytes_per_token"` // of one sequence, in all caches together
	BytesBefore   int64              `json:"bytes_before"`    // the same before
	Check         *prove.CheckReport `json:"check,omitempty"`
}

// Text returns the report in one line.
func (r *LatentReport) Text() string {
	return fmt.Sprintf("latents of %d layers (%s): %d bytes per token of a sequence, %d before", len(r.Inputs),
		english.Some(r.Inputs), r.BytesPerToken, r.BytesBefore)
}

// latentChange turns the caches of one model into caches of latents.
type latentChange struct {
	*pass.Run
	edit    edit.Change
	facts   *infer.Facts // of the model with fused blocks
	sites   []*latentSite
	checked *prove.CheckReport
}

// latentSite is an attention node whose cache will hold latents. Its two pasts hold keys and values or, if it reads no
// cache itself, the latents and the channels shared by all heads, from which its keys and values are computed.
type latentSite struct {
	node          *onnx.Node
	latent        *attention.Latent
	c, kPE        *onnx.Value // of new tokens
	past, present [2]*onnx.Value
	byHeads       bool         // keys and values are in the cache
	joins         []*onnx.Node // append new tokens outside attention, or reshape the result
}

// Apply makes latent attention (DeepSeek's MLA) cache the latents of its tokens, from which keys and values of all
// heads are computed. The past of a layer's keys becomes [batch, 1, tokens, channels] under the same name, and that of
// its values is dropped. Their presents change in the same way. Apply changes all caches of a model, or returns an
// error that wraps ErrLatentCache and names the obstacle, and changes none. The model's blocks must be fused already.
func Apply(run *pass.Run) (*LatentReport, error) {
	c := &latentChange{Run: run, facts: infer.Analyze(run.Model)}
	for _, step := range []func() error{c.find, c.checkReaders, c.checkSites, c.change} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLatentCache, err)
		}
	}
	return c.report(), nil
}

func (c *latentChange) report() *LatentReport {
	r := &LatentReport{Check: c.checked}
	for _, s := range c.sites {
		l := s.latent
		r.Inputs, r.Dropped = append(r.Inputs, s.past[0].Name), append(r.Dropped, s.past[1].Name)
		bytes := int64(c.facts.DataType(s.past[0]).Bits()) / 8
		r.BytesPerToken += bytes * (l.Width + l.Rotated)
		r.BytesBefore += bytes * s.before()
	}
	return r
}

// before returns the number of elements per token in the two old caches.
func (s *latentSite) before() int64 {
	l := s.latent
	if s.byHeads {
		return l.Heads * (l.Nope + l.Rotated + l.Values)
	}
	return l.Width + l.Rotated
}

// find finds attention with a cache, and the latents of its keys and values.
func (c *latentChange) find() error {
	view := match.New(c.Model.Graph, c.facts, nil)
	var without error
	for _, s := range c.Scopes() {
		for _, n := range s.Graph.Nodes {
			if n.Domain != fused.Domain || n.OpType != fused.AttentionName {
				continue
			}
			byHeads := n.Input(fused.AttentionPastKey) != nil
			if s.Graph != c.Model.Graph && !byHeads {
				continue
			}
			switch {
			case s.Function != nil:
				return fmt.Errorf("node %q is in function %s.%s: inline functions with --inline all", n.Label(),
					s.Function.Domain, s.Function.Name)
			case s.Graph != c.Model.Graph:
				return fmt.Errorf("node %q is in a branch or a loop (%s): if that is the branch with a past, "+
					"--cache static keeps only this branch", n.Label(), s.Place)
			}
			site, err := c.site(view, n)
			if err != nil {
				err = fmt.Errorf("node %q: %w", n.Label(), err)
				if byHeads {
					return err
				}
				without = cmp.Or(without, err) // it may have no cache at all
				continue
			}
			c.sites = append(c.sites, site)
		}
	}
	if c.sites == nil {
		return cmp.Or(without, errors.New("the model has no mojo.Attention"))
	}
	return c.checkOthers()
}

// site analyzes one attention node.
func (c *latentChange) site(view *match.View, n *onnx.Node) (*latentSite, error) {
	for _, x := range []struct {
		input int
		what  string
	}{{fused.AttentionPastLength, "a cache that is a buffer"}, {fused.AttentionBias, "a bias"},
		{fused.AttentionSink, "a sink"}} {
		if n.Input(x.input) != nil {
			return nil, fmt.Errorf("it has %s, which mojo.%s does not support", x.what, fused.LatentAttentionName)
		}
	}
	a := fused.Read[fused.Attention](n.Attributes)
	if a.Window != 0 || a.Softcap != 0 {
		return nil, fmt.Errorf("it has a window or bounds its scores, which mojo.%s does not "+
			"support", fused.LatentAttentionName)
	}
	q, axis := n.Inputs[fused.AttentionQ], 1
	if a.QLayout == "bsnh" {
		axis = 2
	}
	var queries [infer.Worlds]int64
	for w := range queries {
		queries[w] = c.facts.Size(q, w, 3-axis)
	}
	l, why := attention.FindLatent(view, n.Inputs[fused.AttentionK], n.Inputs[fused.AttentionV],
		n.Input(fused.AttentionPastKey), a.KLayout, a.VLayout, queries)
	if why != nil {
		return nil, fmt.Errorf("it is not latent attention: %w", why)
	}
	if d, ok := c.facts.Dim(q, axis); !ok || d != l.Heads {
		return nil, fmt.Errorf("it has %d heads of keys, another number than of queries", l.Heads)
	}
	s := &latentSite{node: n, latent: l, c: l.C, kPE: l.KPE, byHeads: n.Input(fused.AttentionPastKey) != nil}
	if s.byHeads && l.Width+l.Rotated >= s.before() {
		return nil, fmt.Errorf("latents of %d numbers per token do not take less space than keys and values of %d",
			l.Width+l.Rotated, s.before())
	}
	if !s.byHeads {
		for k, fresh := range []**onnx.Value{&s.c, &s.kPE} {
			join, passed := joinOf(view, *fresh)
			if join == nil {
				return nil, fmt.Errorf("%q is not joined with a past", (*fresh).Name)
			}
			s.past[k], *fresh, s.present[k] = join.Inputs[0], join.Inputs[1], join.Outputs[0]
			s.joins = append(append(s.joins, join), passed...)
		}
	}
	for k := range s.past {
		if s.byHeads {
			s.past[k], s.present[k] = n.Input(fused.AttentionPastKey+k), n.OutputValue(1+k)
		}
		if !s.past[k].IsInput || s.past[k].Const != nil {
			return nil, fmt.Errorf("%q, its past, is not an input of the model", s.past[k].Name)
		}
		if s.present[k] == nil || !s.present[k].IsOutput() {
			return nil, fmt.Errorf("the model does not output the new cache of input %q", s.past[k].Name)
		}
	}
	return s, nil
}

// joinOf returns the Concat that appends new tokens to past ones, [batch, 1, tokens, channels], and whose result is v
// up to its shape, and the nodes in between, which reshape it or change nothing; nil if there is no such node.
func joinOf(view *match.View, v *onnx.Value) (join *onnx.Node, passed []*onnx.Node) {
	for n := v.Producer; n != nil; n = n.Inputs[0].Producer {
		for same := view.Resolve(n.Outputs[0]); n != nil && n.Outputs[0] != same; n = n.Inputs[0].Producer {
			passed = append(passed, n)
		}
		if n == nil {
			return nil, nil
		}
		switch {
		case n.Is("Concat"):
			if axis := n.AttrInt("axis", 0); len(n.Inputs) == 2 && (axis == 2 || axis == -2) {
				return n, passed
			}
			return nil, nil
		case !n.Is("Reshape") && !n.Is("Squeeze") && !n.Is("Unsqueeze") && !n.Is("Identity"):
			return nil, nil
		}
		passed = append(passed, n)
	}
	return nil, nil
}

// checkOthers returns an error if an input is a cache that would stay: something is appended to it, and the result is
// an output.
func (c *latentChange) checkOthers() error {
	taken := map[*onnx.Value]bool{}
	for _, s := range c.sites {
		taken[s.past[0]], taken[s.past[1]] = true, true
	}
	for _, v := range c.Model.Graph.Inputs {
		for _, use := range v.Uses() {
			if n := use.Node; !taken[v] && n.Is("Concat") && use.Index == 0 && n.Outputs[0].IsOutput() {
				return fmt.Errorf("input %q is not a cache of latent attention, but all caches must be", v.Name)
			}
		}
	}
	return nil
}

// checkReaders finds readers of the caches besides attention. Only readers of shapes are allowed; they get the old
// values.
func (c *latentChange) checkReaders() error {
	seen := map[*onnx.Value]*onnx.Node{}
	for _, s := range c.sites {
		for _, v := range append(s.past[:], s.present[:]...) {
			if other := seen[v]; other != nil {
				return fmt.Errorf("nodes %q and %q share the cache %q", other.Label(), s.node.Label(), v.Name)
			}
			seen[v] = s.node
			for _, use := range v.Uses() {
				n := use.Node
				own := n == s.node || slices.Contains(s.joins, n) || slices.Contains(s.latent.Nodes, n)
				if !own && !n.Is("Shape") {
					return fmt.Errorf("node %q (%s) also reads %q, which would hold latents", n.Label(), n.OpType,
						v.Name)
				}
			}
		}
	}
	return nil
}
