package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/llm/tokenizer"
)

// hub holds the settings in the files of a Hugging Face model: tokens, sizes and sampling defaults.
type hub struct {
	generate.Config
	hubFields
	folder    string
	tokenizer []byte // tokenizer.json
	pad       int64
}

// hubFields are fields of config.json and generation_config.json; the latter takes precedence.
type hubFields struct {
	BOS               *int64   `json:"bos_token_id"`
	Pad               *int64   `json:"pad_token_id"`
	HiddenSize        int64    `json:"hidden_size"`
	AttentionHeads    int64    `json:"num_attention_heads"`
	DoSample          bool     `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopK              *int64   `json:"top_k"`
	TopP              *float64 `json:"top_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
}

// tokenizerFiles are the files beside a tokenizer.json that define how text becomes tokens.
var tokenizerFiles = []string{"tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model"}

// maxConfig is the limit on the size of a config.json, in bytes.
const maxConfig = 16 << 20

// readHub reads the folder of a tokenizer.
func readHub(folder string) (*hub, error) {
	h := &hub{folder: folder}
	var err error
	if h.Config, err = generate.ReadConfig(folder); err != nil {
		return nil, err
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		path := filepath.Join(folder, name)
		b, err := regular.ReadFile(path, maxConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(b, &h.hubFields)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if h.tokenizer, err = tokenizer.ReadFile(folder); err != nil {
		return nil, err
	}
	if len(h.EOS) == 0 && h.EOSToken != "" {
		t, err := tokenizer.Parse(h.tokenizer)
		if err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w", tokenizer.Find(folder), err)
		}
		if id, ok := t.ID(h.EOSToken); ok {
			h.EOS = []int64{id}
		}
	}
	if len(h.EOS) == 0 {
		return nil, fmt.Errorf("%s: no file names the token that ends a text: it is eos_token_id in config.json or "+
			"generation_config.json, or eos_token in tokenizer_config.json", folder)
	}
	if h.pad = h.EOS[0]; h.Pad != nil && *h.Pad >= 0 { // -1 means no token
		h.pad = *h.Pad
	}
	return h, nil
}

// copyTokenizer copies the tokenizer's files, uncompressed.
func (h *hub) copyTokenizer(folder string) error {
	if err := os.WriteFile(filepath.Join(folder, tokenizer.File), h.tokenizer, 0o666); err != nil {
		return err
	}
	for _, name := range tokenizerFiles {
		err := copyFile(filepath.Join(folder, name), filepath.Join(h.folder, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
