package weights_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/weights"
)

func TestReadMap(t *testing.T) {
	m, err := weights.ReadMap(filepath.Join("..", "..", "models", "smollm2", "map.json"))
	if err != nil || len(m) != 211 {
		t.Fatalf("%d entries (%v)", len(m), err)
	}
	if e := m["val_82"]; e.Tensor != "blk.0.attn_k.weight" || !slices.Equal(e.Shape, []int64{576, 192}) ||
		!e.Transposed || e.RopeHeads != 3 {
		t.Errorf("%+v", e)
	}
	m, err = weights.ParseMap([]byte(`{"weights_file": "w.bin", "total_bytes": 4, "source": "", "note": "", "map": {
		"w": {"gguf": "t", "shape": [1], "dtype": "float32", "transposed": false, "rope_unpermute_heads": 0,
			"gguf_type": "F32", "offset": 0, "length": 4}}}`))
	if err != nil || len(m) != 1 || m["w"].Tensor != "t" {
		t.Errorf("%v (%v)", m, err)
	}
	for text, want := range map[string]string{
		``:                        "a JSON object",
		`[]`:                      "a JSON object",
		`{}`:                      `no field "map"`,
		`{"map": {}, "maps": {}}`: `unknown field "maps"`,
		`{"map": {"w": {"tensor": "t", "transpose": true}}}`:    `unknown field "transpose"`,
		`{"map": {"w": {"tensor": "t", "gguf": "t"}}}`:          "which mean the same",
		`{"map": {"w": {"shape": [1]}}}`:                        `names no "tensor"`,
		`{"map": {"w": {"tensor": "t"}, "w": {"tensor": "t"}}}`: `"w" occurs twice`,
		`{"map": {"w": {"tensor": "t", "shape": [-1]}}}`:        "negative",
		`{"map": {"w": {"tensor": 1}}}`:                         `field "tensor"`,
		`{"map": {}} {}`:                                        "after the JSON object",
	} {
		if _, err := weights.ParseMap([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %s", text, err, want)
		}
	}
}

func FuzzParseMap(f *testing.F) {
	f.Add([]byte(`{"map": {"w": {"tensor": "t", "shape": [1, 2], "transposed": true, "rope_unpermute_heads": 2, ` +
		`"add": -1}}}`))
	f.Add([]byte(`{"note": "", "map": {"w": {"gguf": "t"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := weights.ParseMap(text)
		for name, e := range m {
			if err != nil || e.Tensor == "" || e.RopeHeads < 0 {
				t.Errorf("entry %q: %+v (%v)", name, e, err)
			}
		}
	})
}
