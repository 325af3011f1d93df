package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// Config holds the settings for generation from the files beside a model.
type Config struct {
	EOS       []int64  // the ids that end a text
	EOSToken  string   // the text of the tokenizer's end token, which may end a chat instead of the ids
	Positions int      // the number of positions that the model was trained for, 0 if no file has it
	Files     []string // the files that were read
}

// configFiles are the files of Hugging Face and onnxruntime-genai models. Earlier files take precedence.
var configFiles = []string{"generation_config.json", "config.json", "genai_config.json", "tokenizer_config.json"}

// configFields are the fields read from them. Models with several kinds of input keep those for text in text_config.
type configFields struct {
	EOS       json.RawMessage `json:"eos_token_id"` // a number or a list
	EOSToken  json.RawMessage `json:"eos_token"`    // a string, or an object with its content
	Positions int             `json:"max_position_embeddings"`
	OldNames  int             `json:"n_positions"`
	Context   int             `json:"context_length"`
	Text      *configFields   `json:"text_config"`
	Model     *configFields   `json:"model"`
}

// maxConfig bounds the size of a file that ReadConfig reads, in bytes.
const maxConfig = 64 << 20

// ReadConfig reads generation_config.json, config.json, genai_config.json and tokenizer_config.json of a folder. It
// skips missing files.
func ReadConfig(folder string) (Config, error) {
	var c Config
	for _, name := range configFiles {
		path := filepath.Join(folder, name)
		b, err := regular.ReadFile(path, maxConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var f configFields
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err == nil {
			err = c.take(&f)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
		c.Files = append(c.Files, path)
	}
	return c, nil
}

func (c *Config) take(f *configFields) error {
	if f == nil {
		return nil
	}
	if len(c.EOS) == 0 && len(f.EOS) > 0 && string(f.EOS) != "null" {
		var one int64
		if json.Unmarshal(f.EOS, &one) == nil {
			c.EOS = []int64{one}
		} else if err := json.Unmarshal(f.EOS, &c.EOS); err != nil {
			return fmt.Errorf("eos_token_id is neither a number nor a list of numbers: %w", err)
		}
	}
	if c.EOSToken == "" {
		var token struct{ Content string }
		if json.Unmarshal(f.EOSToken, &c.EOSToken) != nil && json.Unmarshal(f.EOSToken, &token) == nil {
			c.EOSToken = token.Content
		}
	}
	if c.Positions == 0 {
		c.Positions = max(f.Positions, f.OldNames, f.Context)
	}
	if err := c.take(f.Text); err != nil {
		return err
	}
	return c.take(f.Model)
}
