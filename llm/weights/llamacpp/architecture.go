// Package llamacpp knows how llama.cpp's conversion to GGUF names the tensors of a model and changes their elements.
package llamacpp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/weights/gguf"
)

// Architecture describes, from the metadata of GGUF files, how llama.cpp's conversion changed the tensors.
type Architecture struct {
	Name         string // general.architecture, empty if the files do not have it
	blocks       int64
	heads, kv    []int64          // per layer, or one number for all layers
	width        int64            // of a head, 0 if the files do not have it
	rotated      int64            // the rotated channels of a head, 0 if the files do not have it
	rows         map[string]int64 // of the weights of queries and keys
	conversion   conversion
	isUnderstood bool
}

// conversion is the changes that llama.cpp's conversion makes to an architecture's tensors besides naming them.
type conversion struct {
	ropeRows bool // reorders the rows of q and k: reshape(heads, 2, d/2, …).swapaxes(1, 2)
	normPlus bool // adds 1 to the weights of norms
	qkvParts bool // regroups the rows of a fused q, k, v from one of each per head to all of q, all of k, all of v
}

// conversions are the architectures whose tensors can be found by name, from conversion/*.py of llama.cpp
// (LlamaModel.permute and undo_permute; norm_shift; GPTNeoXModel). Other conversions, such as splitting fused tensors,
// are not undone here: they need a map.
var conversions = map[string]conversion{
	"llama": {ropeRows: true}, "granite": {ropeRows: true}, "arcee": {ropeRows: true}, "smollm3": {ropeRows: true},
	"olmo":  {ropeRows: true},
	"gemma": {normPlus: true}, "gemma2": {normPlus: true}, "gemma3": {normPlus: true}, "nemotron": {normPlus: true},
	"gptneox": {qkvParts: true}, "bloom": {qkvParts: true},
	"qwen2": {}, "qwen2moe": {}, "qwen3": {}, "qwen3moe": {}, "phi2": {}, "phi3": {}, "gpt2": {}, "starcoder2": {},
	"stablelm": {},
	"olmo2":    {}, "olmoe": {}, "command-r": {}, "cohere2": {},
}

// Read reads the architecture. Fields that the files lack stay empty.
func Read(files []*gguf.File) *Architecture {
	a := &Architecture{rows: map[string]int64{}}
	for _, f := range files {
		for _, t := range f.Tensors {
			if _, rest, ok := layerOf(t.Name); ok && len(t.Dims) > 0 && (rest == queryWeight || rest == keyWeight) {
				a.rows[t.Name] = t.Dims[0]
			}
		}
	}
	for _, f := range files {
		name, _ := f.Value("general.architecture").(string)
		if name == "" {
			continue
		}
		a.Name = name
		a.conversion, a.isUnderstood = conversions[name]
		a.blocks, _ = f.Int(name + ".block_count")
		a.heads = integers(f, name+".attention.head_count")
		a.kv = integers(f, name+".attention.head_count_kv")
		a.width, _ = f.Int(name + ".attention.key_length")
		a.rotated, _ = f.Int(name + ".rope.dimension_count")
		if a.kv == nil {
			a.kv = a.heads
		}
		break
	}
	return a
}

// integers reads a number or an array of numbers.
func integers(f *gguf.File, key string) []int64 {
	if n, ok := f.Int(key); ok {
		return []int64{n}
	}
	switch v := f.Value(key).(type) {
	case []int32:
		return widened(v)
	case []uint32:
		return widened(v)
	case []int64:
		return v
	case []uint64:
		return widened(v)
	}
	return nil
}

func widened[T int32 | uint32 | uint64](v []T) []int64 {
	list := make([]int64, len(v))
	for i, x := range v {
		list[i] = int64(x)
	}
	return list
}

// RopeHeads returns the number of heads whose rows were reordered in a tensor, or 0.
func (a *Architecture) RopeHeads(tensor string) (int64, error) {
	if a == nil || !a.conversion.ropeRows {
		return 0, nil
	}
	layer, rest, ok := layerOf(tensor)
	if !ok {
		return 0, nil
	}
	var heads []int64
	switch rest {
	case queryWeight, "attn_q.bias":
		heads = a.heads
	case keyWeight, "attn_k.bias":
		heads = a.kv
	default:
		return 0, nil
	}
	n := ofLayer(heads, layer)
	if n <= 0 {
		return 0, fmt.Errorf("the rows of %s are in llama.cpp's order, but the file does not have the number of heads "+
			"(%s.attention.head_count)", tensor, a.Name)
	}
	return n, a.checkHeads(layer)
}

// The names of the attention weights of a layer.
const (
	queryWeight = "attn_q.weight"
	keyWeight   = "attn_k.weight"
)

// ofLayer returns a layer's number from a list with one per layer or one for all, 0 if the list is too short.
func ofLayer(list []int64, layer int64) int64 {
	if len(list) == 1 {
		layer = 0
	}
	if layer >= int64(len(list)) {
		return 0
	}
	return list[layer]
}

// ErrHeads reports that head counts in the metadata contradict the tensors.
var ErrHeads = errors.New("contradicts the tensor; fix the metadata, or use --map with rope_unpermute_heads")

// checkHeads returns an error if the head counts of the metadata do not fit the weights of a layer. The heads of
// queries and keys have the same width.
func (a *Architecture) checkHeads(layer int64) error {
	width, from := a.width, "attention.key_length"
	for _, w := range []struct {
		weight, key string
		heads       int64
	}{
		{queryWeight, "attention.head_count", ofLayer(a.heads, layer)},
		{keyWeight, "attention.head_count_kv", ofLayer(a.kv, layer)},
	} {
		name := fmt.Sprintf("blk.%d.%s", layer, w.weight)
		rows := a.rows[name]
		if rows == 0 || w.heads <= 0 {
			continue
		}
		if rows%w.heads != 0 || width > 0 && rows != w.heads*width || rows < w.heads*a.rotated {
			least := a.rotated
			if width > 0 {
				least = width
			}
			why := ""
			if least > 0 {
				why = fmt.Sprintf(" of %d rows (%s.%s)", least, a.Name, from)
			}
			return fmt.Errorf("%s has %d rows, which is not a multiple of %d heads%s: the number of heads in the "+
				"metadata (%s.%s) %w", name, rows, w.heads, why, a.Name, w.key, ErrHeads)
		}
		if width == 0 {
			width, from = rows/w.heads, w.key
		}
	}
	return nil
}

// QKVHeads returns the number of heads whose rows were regrouped in a fused q, k and v, 0 if they were not.
func (a *Architecture) QKVHeads(tensor string) (int64, error) {
	if a == nil || !a.conversion.qkvParts {
		return 0, nil
	}
	if _, rest, ok := layerOf(tensor); !ok || rest != "attn_qkv.weight" && rest != "attn_qkv.bias" {
		return 0, nil
	}
	if len(a.heads) != 1 || a.heads[0] <= 0 {
		return 0, fmt.Errorf("the rows of %s are grouped by llama.cpp, but the file does not have the number of heads "+
			"(%s.attention.head_count)", tensor, a.Name)
	}
	return a.heads[0], nil
}

// AddsOne reports whether the conversion added 1 to the tensor.
func (a *Architecture) AddsOne(tensor string) bool {
	return a != nil && a.conversion.normPlus && strings.HasSuffix(tensor, "norm.weight")
}
