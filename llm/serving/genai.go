package serving

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// GenAIOptions controls how onnxruntime-genai runs a model.
type GenAIOptions struct {
	Tokenizer string // the folder with tokenizer.json and the files beside it
	Library   string // the kernel library; empty for a model without fused ops
	Provider  string // "cpu" or "cuda"
	// CUDAGraph makes the CUDA provider record a decoding step as a graph.
	CUDAGraph bool
	// ContextLength is the most tokens of a sequence; 0 for the value of the files beside the tokenizer.
	ContextLength int64
	// Engine is for a model whose caches are pools; nil for any other model.
	Engine *EngineOptions
}

// GenAIFolder describes a folder written for onnxruntime-genai.
type GenAIFolder struct {
	Files         []string `json:"files"`
	FusedOps      int      `json:"fused_ops"`
	Layers        int      `json:"layers"`
	Cache         string   `json:"cache"` // "shared": past and present are one buffer; "appended"; "paged": pools
	ContextLength int64    `json:"context_length"`
	Batch         string   `json:"batch"`                 // "any", or "one"
	OneBecause    string   `json:"one_because,omitempty"` // why only one sequence is possible
	Computed      []string `json:"computed,omitempty"`    // inputs of the model that the graph computes from genai's
	EOS           []int64  `json:"eos_token_id"`
}

// The values of GenAIFolder.Cache and Batch.
const (
	cacheShared   = "shared"
	cacheAppended = "appended"
	cachePaged    = "paged"
	batchAny      = "any"
	batchOne      = "one"
)

// modelFile is the name of the written model.
const modelFile = "model.onnx"

// WriteGenAI writes a decoder for onnxruntime-genai to an existing folder: the model with its weights, the kernels,
// genai_config.json, and the tokenizer's files. It changes the model.
func WriteGenAI(folder string, m *onnx.Model, o GenAIOptions) (*GenAIFolder, error) {
	hub, err := readHub(o.Tokenizer)
	if err != nil {
		return nil, err
	}
	read, fit := readDecoder, (*decoder).fitGenAI
	if o.Engine != nil {
		read, fit = readPaged, (*decoder).fitEngine
	}
	d, err := read(m)
	if err != nil {
		return nil, err
	}
	f := &GenAIFolder{FusedOps: fusedOps(m), Layers: len(d.Caches) / 2, Cache: cacheAppended, EOS: hub.EOS}
	if f.FusedOps > 0 && o.Library == "" {
		return nil, errors.New("the model has fused ops, so it needs the library with their kernels")
	}
	if f.FusedOps == 0 {
		o.Library = ""
	}
	for _, id := range append([]int64{hub.pad}, hub.EOS...) { // genai rejects them when it generates
		if id < 0 || id >= d.vocabulary() {
			return nil, fmt.Errorf("%s is the tokenizer of another model: token %d ends or pads a text, but %s has "+
				"only the tokens 0 to %d", o.Tokenizer, id, m.Path, d.vocabulary()-1)
		}
	}
	switch {
	case d.paged != nil:
		f.Cache = cachePaged
	case d.buffers:
		f.Cache = cacheShared
	}
	// The mask of a CUDA graph covers every possible token.
	if o.CUDAGraph && d.paged == nil && (!d.buffers || d.Input(roles.PastLength) == nil) {
		return nil, fmt.Errorf("%s counts tokens by the length of the mask, which under a CUDA graph is always the "+
			"same: patch it with --cache static --past-length=rows", m.Path)
	}
	if f.ContextLength, err = contextLength(d, hub, o.ContextLength); err != nil {
		return nil, err
	}
	if err := fit(d, f); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if d.onlyOnCUDA() && o.Provider != "cuda" {
		return nil, fmt.Errorf("%s has onnxruntime's PagedAttention, which only its CUDA provider runs: use "+
			"--provider cuda, or patch it without --target", m.Path)
	}
	if err := onnx.Write(filepath.Join(folder, modelFile), m); err != nil {
		return nil, err
	}
	if err := hub.copyTokenizer(folder); err != nil {
		return nil, err
	}
	if o.Library != "" {
		if err := copyFile(filepath.Join(folder, filepath.Base(o.Library)), o.Library); err != nil {
			return nil, err
		}
	}
	if err := writeJSON(filepath.Join(folder, "genai_config.json"), d.genAIConfig(hub, f, o)); err != nil {
		return nil, err
	}
	f.Files, err = filesIn(folder)
	return f, err
}

// contextLength returns the most tokens of a sequence: as requested, or as in the files, within the limits of the
// model's buffers and positions.
func contextLength(d *decoder, hub *hub, asked int64) (int64, error) {
	most, why := d.room(), "its buffers hold"
	if p := d.Positions; p > 0 && (most == 0 || p < most) {
		most, why = p, "the model has positions for"
	}
	if asked > 0 && most > 0 && asked > most {
		return 0, fmt.Errorf("a context of %d tokens is too long: %s %d", asked, why, most)
	}
	length := asked
	if length == 0 {
		length = int64(hub.Positions)
	}
	if most > 0 && (length == 0 || length > most) {
		length = most
	}
	if length == 0 {
		return 0, errors.New("the maximum number of tokens is unknown: neither the model nor a config.json " +
			"beside the tokenizer has it: use --context-length")
	}
	return length, nil
}

// layerNames are genai's names of keys and values, with %d for the layer number.
var layerNames = [2]struct{ past, present string }{
	{"past_key_values.%d.key", "present.%d.key"},
	{"past_key_values.%d.value", "present.%d.value"},
}

func layerName(form string, layer int) string {
	return strings.Replace(form, "%d", fmt.Sprint(layer), 1)
}
