// Package models tells what the exports in this folder, or in another like it, are made of; README.md says what they are.
package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Blocks counts the blocks of a model, known from its architecture and not from its graph.
type Blocks struct {
	RMSNorm   int `json:"rmsnorm"`
	LayerNorm int `json:"layernorm"` // those that are spelled out: without bias, or of an old opset
	Rope      int `json:"rope"`      // applications of a rotary embedding
	GLU       int `json:"glu"`       // gated MLPs outside experts
}

// ReadTruth reads the truth.json of a folder of models, which stands in it or beside it, by model name; nil if there is
// none. The counts of a model stand in a "blocks" object of its own, or in the model's object itself; the models
// stand in a "models" object or at the top.
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
			Blocks
			Nested *Blocks `json:"blocks"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("model %s: %w", name, err)
		}
		truth[name] = m.Blocks
		if m.Nested != nil {
			truth[name] = *m.Nested
		}
	}
	return truth, nil
}
