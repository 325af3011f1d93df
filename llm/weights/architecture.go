package weights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/weights/gguf"
)

// architecture is what the metadata of GGUF files say of how llama.cpp's conversion changed the tensors.
type architecture struct {
	name         string
	blocks       int64
	heads, kv    []int64 // of each layer, or one number for all
	conversion   conversion
	isUnderstood bool
}

// conversion is what llama.cpp's conversion does to the tensors of an architecture besides naming them.
type conversion struct {
	ropeRows bool // the rows of q and k: reshape(heads, 2, d/2, …).swapaxes(1, 2)
	normPlus bool // 1 is added to the weights of norms
	qkvParts bool // the rows of a fused q, k and v, one of each for every head, become all of q, all of k, all of v
}

// conversions are the architectures whose tensors can be told by names, from conversion/*.py of llama.cpp
// (LlamaModel.permute and undo_permute; norm_shift; GPTNeoXModel). What others do, such as cutting fused tensors up, is
// not undone here: they need a map.
var conversions = map[string]conversion{
	"llama": {ropeRows: true}, "granite": {ropeRows: true}, "arcee": {ropeRows: true}, "smollm3": {ropeRows: true},
	"olmo":  {ropeRows: true},
	"gemma": {normPlus: true}, "gemma2": {normPlus: true}, "gemma3": {normPlus: true}, "nemotron": {normPlus: true},
	"gptneox": {qkvParts: true}, "bloom": {qkvParts: true},
	"qwen2": {}, "qwen2moe": {}, "qwen3": {}, "qwen3moe": {}, "phi2": {}, "phi3": {}, "gpt2": {}, "starcoder2": {},
	"stablelm": {},
	"olmo2":    {}, "olmoe": {}, "command-r": {}, "cohere2": {},
}

// readArchitecture reads what is known of the architecture; what the files do not say stays empty.
func readArchitecture(files []*gguf.File) *architecture {
	a := &architecture{}
	for _, f := range files {
		name, _ := f.Value("general.architecture").(string)
		if name == "" {
			continue
		}
		a.name = name
		a.conversion, a.isUnderstood = conversions[name]
		a.blocks, _ = f.Int(name + ".block_count")
		a.heads = integers(f, name+".attention.head_count")
		a.kv = integers(f, name+".attention.head_count_kv")
		if a.kv == nil {
			a.kv = a.heads
		}
		break
	}
	return a
}

// integers reads a number, or an array of them.
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

// ropeHeads returns the number of heads that the rows of a tensor are reordered in, 0 where they are not.
func (a *architecture) ropeHeads(tensor string) (int64, error) {
	if a == nil || !a.conversion.ropeRows {
		return 0, nil
	}
	layer, rest, ok := layerOf(tensor)
	if !ok {
		return 0, nil
	}
	var heads []int64
	switch rest {
	case "attn_q.weight", "attn_q.bias":
		heads = a.heads
	case "attn_k.weight", "attn_k.bias":
		heads = a.kv
	default:
		return 0, nil
	}
	if len(heads) == 1 {
		layer = 0
	}
	if layer >= int64(len(heads)) || heads[layer] <= 0 {
		return 0, fmt.Errorf("the rows of %s are in llama.cpp's order, and the file does not say the number of heads "+
			"(%s.attention.head_count)", tensor, a.name)
	}
	return heads[layer], nil
}

// qkvHeads returns the number of heads by which the rows of a fused q, k and v have been regrouped, 0 where they were
// not.
func (a *architecture) qkvHeads(tensor string) (int64, error) {
	if a == nil || !a.conversion.qkvParts {
		return 0, nil
	}
	if _, rest, ok := layerOf(tensor); !ok || rest != "attn_qkv.weight" && rest != "attn_qkv.bias" {
		return 0, nil
	}
	if len(a.heads) != 1 || a.heads[0] <= 0 {
		return 0, fmt.Errorf("the rows of %s are grouped by llama.cpp, and the file does not say the number of heads "+
			"(%s.attention.head_count)", tensor, a.name)
	}
	return a.heads[0], nil
}

// addsOne reports whether the conversion has added 1 to the tensor.
func (a *architecture) addsOne(tensor string) bool {
	return a != nil && a.conversion.normPlus && strings.HasSuffix(tensor, "norm.weight")
}

// plusOne are the model types of Hugging Face whose norms multiply by 1 + weight.
var plusOne = []string{"gemma", "gemma2", "gemma3", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5", "qwen3_5_text",
	"qwen3_5_moe", "recurrent_gemma"}

func normsPlusOne(modelType string) bool { return slices.Contains(plusOne, modelType) }
