// Package models lists the contents of the exports in this folder, or in a similar one; README.md describes them.
package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/fused"
)

// Blocks counts the blocks of a model, known from its architecture and not from its graph.
type Blocks struct {
	RMSNorm   int `json:"rmsnorm"`
	LayerNorm int `json:"layernorm"` // without bias, or of an old opset
	Rope      int `json:"rope"`      // applications of a rotary embedding
	GLU       int `json:"glu"`       // gated MLPs outside experts
	Router    int `json:"router"`    // of experts; as many as MoE if missing
	MoE       int `json:"moe"`       // blocks of routed experts
}

// Plus adds counts.
func (b Blocks) Plus(c Blocks) Blocks {
	return Blocks{b.RMSNorm + c.RMSNorm, b.LayerNorm + c.LayerNorm, b.Rope + c.Rope, b.GLU + c.GLU, b.Router + c.Router,
		b.MoE + c.MoE}
}

// Of returns the blocks that one fused op, or standard op, replaces.
func Of(op string) (blocks Blocks) {
	switch op {
	case "LayerNormalization":
		return Blocks{LayerNorm: 1}
	case fused.TopKRouterName:
		return Blocks{Router: 1}
	}
	o := fused.Lookup(op)
	if o == nil {
		return Blocks{}
	}
	if len(o.Parts) > 0 {
		for _, part := range o.Parts {
			blocks = blocks.Plus(Of(part.Name))
		}
		return blocks
	}
	return map[string]Blocks{"rmsnorm": {RMSNorm: 1}, "rope": {Rope: 1}, "swiglu": {GLU: 1},
		"moe": {MoE: 1}}[o.Family.Name]
}

// Compare compares the fused blocks with the existing ones. It returns how many are not fused; ok is false if more are
// fused than exist. If a block of experts is not fused, extra gated MLPs count as its experts.
func (b Blocks) Compare(got Blocks) (left int, ok bool) {
	if got.MoE < b.MoE {
		got.GLU = min(got.GLU, b.GLU)
	}
	ok = true
	for _, n := range []int{b.RMSNorm - got.RMSNorm, b.LayerNorm - got.LayerNorm, b.Rope - got.Rope, b.GLU - got.GLU,
		b.Router - got.Router, b.MoE - got.MoE} {
		ok = ok && n >= 0
		left += max(n, 0)
	}
	return left, ok
}

// ReadTruth reads the truth.json in or beside a folder of models, by model name, or returns nil without one. A
// model's counts are in its object or in a "blocks" object inside; the models are in a "models" object or at the top.
func ReadTruth(dir string) (map[string]Blocks, error) {
	for _, p := range []string{filepath.Join(dir, "truth.json"), filepath.Join(dir, "..", "truth.json")} {
		b, err := os.ReadFile(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		truth, err := parseTruth(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		return truth, nil
	}
	return nil, nil
}

func parseTruth(b []byte) (map[string]Blocks, error) {
	var file struct {
		Models map[string]json.RawMessage `json:"models"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, err
	}
	if file.Models == nil {
		if err := json.Unmarshal(b, &file.Models); err != nil {
			return nil, err
		}
	}
	truth := map[string]Blocks{}
	for name, raw := range file.Models {
		var m struct {
			counts
			Nested *counts `json:"blocks"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("model %s: %w", name, err)
		}
		c := m.counts
		if m.Nested != nil {
			c = *m.Nested
		}
		if c.Router = c.MoE; c.Routers != nil {
			c.Router = *c.Routers
		}
		truth[name] = c.Blocks
	}
	return truth, nil
}

// counts are Blocks without the routers if these are missing.
type counts struct {
	Blocks
	Routers *int `json:"router"`
}
