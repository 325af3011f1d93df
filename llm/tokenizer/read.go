package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// file is a tokenizer.json. Parts of several kinds are decoded later.
type file struct {
	Version       string          `json:"version"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// File is the name of the file beside a model.
const File = "tokenizer.json"

// most is the limit on the size of a tokenizer.json, in bytes. The largest known file has 40 MB.
const most = 128 << 20

// Find returns the path of the tokenizer.json in the folder path, or of its .gz if only that exists. It returns any
// other path unchanged.
func Find(path string) string {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return path
	}
	path = filepath.Join(path, File)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if _, err := os.Stat(path + ".gz"); err == nil {
		return path + ".gz"
	}
	return path
}

// Read reads a tokenizer.json from a file or a folder (see [Find]), possibly compressed with gzip. Its errors name the
// file, the place in it and the problem.
func Read(path string) (*Tokenizer, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", Find(path), err)
	}
	return t, nil
}

// ReadFile returns the decompressed content of the file that [Read] reads.
func ReadFile(path string) ([]byte, error) {
	path = Find(path)
	data, err := regular.ReadFile(path, most)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		if data, err = unzip(data); err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w", path, err)
		}
	}
	return data, nil
}

func unzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(r, most+1))
	if len(data) > most {
		return nil, fmt.Errorf("more than %d MiB when it is decompressed", most>>20)
	}
	return data, err
}

// Parse is [Read] for a file's content.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if f.Version != "" && f.Version != "1.0" {
		return nil, fmt.Errorf("version is %q, only 1.0 is supported", f.Version)
	}
	if absent(f.Model) {
		return nil, errors.New("no model: a tokenizer.json of Hugging Face's tokenizers library is expected")
	}
	t := &Tokenizer{}
	var err error
	if t.model, err = readModel(f.Model); err != nil {
		return nil, err
	}
	if t.normalize, err = readNormalizer(f.Normalizer, "normalizer"); err != nil {
		return nil, err
	}
	if t.split, err = readPreTokenizer(f.PreTokenizer, "pre_tokenizer"); err != nil {
		return nil, err
	}
	if t.template, err = readPostProcessor(f.PostProcessor, "post_processor"); err != nil {
		return nil, err
	}
	if t.decoder, err = readDecoder(f.Decoder, "decoder"); err != nil {
		return nil, err
	}
	if t.added, err = newAddedTokens(f.AddedTokens, t.model, t.normalize); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	return t, nil
}

// absent reports whether a part is missing or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// decode reads a part of the file into v.
func decode(raw json.RawMessage, where string, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

// kindOf returns the type of a part.
func kindOf(raw json.RawMessage, where string) (string, error) {
	var k struct {
		Type string `json:"type"`
	}
	if err := decode(raw, where, &k); err != nil {
		return "", err
	}
	if k.Type == "" {
		return "", fmt.Errorf("%s: no type", where)
	}
	return k.Type, nil
}

// unsupported is the error for a kind that this package does not support.
func unsupported(where, kind string, supported ...string) error {
	return fmt.Errorf("%s: %s is not supported, only %s", where, kind, strings.Join(supported, ", "))
}

// element names the i-th entry of a list in the file.
func element(where, list string, i int) string { return fmt.Sprintf("%s.%s[%d]", where, list, i) }
