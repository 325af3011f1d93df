package roles

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Presents returns the output that holds the successor of each past: the one with the same name except for the words
// for past and present, or else the next one of its type and shape, in model order. It returns an error if a past has
// no such output, because then it is not a cache.
func Presents(pasts []*Input, outputs []*onnx.Value) ([]*onnx.Value, error) {
	found := make([]*onnx.Value, len(pasts))
	taken := make([]bool, len(outputs))
	byName := map[string]int{}
	for i, v := range outputs {
		key := remainder(v.Name)
		if _, exists := byName[key]; exists {
			byName[key] = -1
			continue
		}
		byName[key] = i
	}
	keys := map[string]int{}
	for _, p := range pasts {
		keys[remainder(p.Value.Name)]++
	}
	for i, p := range pasts {
		key := remainder(p.Value.Name)
		if k, ok := byName[key]; ok && k >= 0 && keys[key] == 1 && follows(outputs[k], p) {
			found[i], taken[k] = outputs[k], true
		}
	}
	for i, p := range pasts {
		if found[i] != nil {
			continue
		}
		k := 0
		for k < len(outputs) && (taken[k] || !follows(outputs[k], p)) {
			k++
		}
		if k == len(outputs) {
			return nil, fmt.Errorf("cannot tell the purpose of input %q: it is not a cache, since no output can be "+
				"its successor",
				p.Value.Name)
		}
		found[i], taken[k] = outputs[k], true
	}
	return found, nil
}

// follows reports whether an output can be the successor of a past: same type and rank, and same fixed dimensions. An
// output without a declared shape fits any past.
func follows(present *onnx.Value, past *Input) bool {
	t, ok := present.Type()
	if !ok || t.DataType != past.DataType {
		return false
	}
	if len(t.Dims) == 0 {
		return true
	}
	if len(t.Dims) != len(past.Dims) {
		return false
	}
	for i, d := range t.Dims {
		if d = Number(d); d.Value >= 0 && past.Dims[i].Value >= 0 && d.Value != past.Dims[i].Value {
			return false
		}
	}
	return true
}

var (
	keyValues = regexp.MustCompile(`(?i)key_?values?|pkvs?|kvs?(_cache)?`)
	words     = regexp.MustCompile(`[A-Za-z]+|[0-9]+`)
)

// passing are the words that only distinguish past from present.
var passing = onnx.Words(`
	past present input inputs in output outputs out new next updated prev previous old cur current cache caches
	cached layer layers state states
`)

// remainder returns the numbers and the kind in the name of a past or present. past_key_values.3.key, present.3.key,
// input.past_key_values.layers.3.keys and new_cache_k_3 have the same remainder.
func remainder(name string) string {
	var left []string
	for _, w := range words.FindAllString(keyValues.ReplaceAllString(strings.ToLower(name), " "), -1) {
		switch w {
		case "key", "keys":
			w = "k"
		case "value", "values":
			w = "v"
		}
		if !passing[w] {
			left = append(left, w)
		}
	}
	slices.Sort(left)
	return strings.Join(left, " ")
}
