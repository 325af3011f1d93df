package llamacpp

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

//go:embed gguf_names.txt
var ggufNamesText string

// ggufNames holds llama.cpp's names of modules with N for the layer: under "" for any architecture, under an
// architecture's name if it differs.
var ggufNames = sync.OnceValue(func() map[string]map[string]string {
	all := map[string]map[string]string{"": {}}
	for line := range strings.Lines(ggufNamesText) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		arch, isOne := strings.CutPrefix(words[0], "@")
		if isOne {
			words = words[1:]
		} else {
			arch = ""
		}
		if all[arch] == nil {
			all[arch] = map[string]string{}
		}
		for _, module := range words[1:] {
			all[arch][module] = words[0]
		}
	}
	return all
})

// TensorName returns the GGUF name of a module's parameter, such as "blk.0.attn_q.weight" for
// "model.layers.0.self_attn.q_proj.weight". The parameter part may be missing, as in some fused experts.
func TensorName(arch, parameter string) (string, bool) {
	for _, kind := range []string{".weight", ".bias", ""} {
		module, ok := strings.CutSuffix(parameter, kind)
		if !ok {
			continue
		}
		words := strings.Split(module, ".")
		layer := ""
		for i, word := range words {
			if _, err := strconv.ParseUint(word, 10, 31); err == nil {
				layer, words[i] = word, "N"
				break
			}
		}
		pattern := strings.Join(words, ".")
		name := ggufNames()[arch][pattern]
		if name == "" {
			name = ggufNames()[""][pattern]
		}
		if name == "" {
			continue
		}
		if kind == "" {
			kind = ".weight"
		}
		return strings.Replace(name, "N", layer, 1) + kind, true
	}
	return "", false
}

// layerOf splits the name of a tensor in a GGUF file: "blk.3.attn_q.weight" is layer 3 and "attn_q.weight".
func layerOf(tensor string) (layer int64, rest string, ok bool) {
	rest, ok = strings.CutPrefix(tensor, "blk.")
	if !ok {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(rest, ".")
	layer, err := strconv.ParseInt(number, 10, 31)
	return layer, rest, ok && err == nil && layer >= 0
}

// Refusal returns why the tensors of this file cannot be found by name, "" if they can.
func (a *Architecture) Refusal() string {
	switch {
	case a == nil || a.isUnderstood:
		return ""
	case a.Name == "":
		return "the GGUF file does not have general.architecture: use --map"
	}
	return fmt.Sprintf("how llama.cpp converts the tensors of architecture %q is unknown here: use --map", a.Name)
}
