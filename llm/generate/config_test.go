package generate_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
)

func TestReadConfig(t *testing.T) {
	for _, c := range []struct {
		files     map[string]string
		eos       []int64
		positions int
		fails     bool
	}{
		{nil, nil, 0, false},
		{map[string]string{"config.json": `{"eos_token_id": 2, "max_position_embeddings": 64}`}, []int64{2}, 64, false},
		{map[string]string{"config.json": `{"eos_token_id": 2, "n_positions": 32}`,
			"generation_config.json": `{"eos_token_id": [7, 8]}`}, []int64{7, 8}, 32, false},
		{map[string]string{"config.json": `{"eos_token_id": null, "text_config": {"eos_token_id": 5, ` +
			`"max_position_embeddings": 9}}`}, []int64{5}, 9, false},
		{map[string]string{"genai_config.json": `{"model": {"eos_token_id": [3], "context_length": 128}}`}, []int64{3},
			128, false},
		{map[string]string{"tokenizer_config.json": `{"eos_token": "<end>", "model_max_length": 5}`}, nil, 0, false},
		{map[string]string{"tokenizer_config.json": `{"eos_token": {"content": "<end>"}}`,
			"config.json": `{"eos_token_id": 4}`}, []int64{4}, 0, false},
		{map[string]string{"config.json": `{"eos_token_id": "two"}`}, nil, 0, true},
		{map[string]string{"config.json": `{`}, nil, 0, true},
	} {
		folder := t.TempDir()
		for name, text := range c.files {
			must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666))
		}
		got, err := generate.ReadConfig(folder)
		if (err != nil) != c.fails || err == nil && (!slices.Equal(got.EOS, c.eos) || got.Positions != c.positions ||
			len(got.Files) != len(c.files)) {
			t.Errorf("%v: %+v, %v", c.files, got, err)
		}
		if want := strings.Contains(c.files["tokenizer_config.json"], "<end>"); want != (got.EOSToken == "<end>") {
			t.Errorf("%v: end token %q", c.files, got.EOSToken)
		}
	}
}
