package safetensors

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOpenIndex(t *testing.T) {
	files, err := OpenIndex("testdata/model.safetensors.index.json")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		defer f.Close()
		for _, x := range f.Tensors {
			names = append(names, filepath.Base(f.Path)+" "+x.Name)
		}
	}
	slices.Sort(names)
	want := []string{"model-00001-of-00002.safetensors a", "model-00001-of-00002.safetensors b",
		"model-00002-of-00002.safetensors c"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestOpenIndexErrors(t *testing.T) {
	const one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for index, want := range map[string]string{
		`{"weight_map":{"a":"` + one + `","d":"` + two + `"}}`: two + ` does not contain tensor "d", although `,
		`{"weight_map":{"a":"` + one + `","c":"third.safetensors"}}`: "names files that are missing in its folder " +
			"(third.safetensors)",
		`{"weight_map":{"a":"` + one + `","b":"copy.safetensors"}}`: `: tensor "a" is also in `,
		`{"weight_map":{"a":"../` + one + `"}}`: `tensor "a" is said to be in "../` + one +
			`", which is not in the index's folder`,
		`{"weight_map":{"a":"sub/../../` + one + `"}}`:         "which is not in the index's folder",
		`{"weight_map":{"a":"/etc/passwd"}}`:                   "which is not in the index's folder",
		`{"weight_map":{"a":""}}`:                              "which is not in the index's folder",
		`{"weight_map":{"a":"."}}`:                             "which is not in the index's folder",
		`{"weight_map":{"a":"x\u0000"}}`:                       "which is not in the index's folder",
		`{"weight_map":{"a":"` + one + `","a":"` + one + `"}}`: `the key "a" occurs twice`,
		`{"weight_map":{"a":1}}`:                               `tensor "a": found 1, expected a string`,
		`{"weight_map":["a"]}`:                                 `found [, expected "{"`,
		`{"metadata":{}}`:                                      `it has no "weight_map"`,
		`{"weight_map":{`:                                      "not JSON, at byte",
		`[]`:                                                   `found [, expected "{"`,
		"\xff":                                                 "not UTF-8",
		`{"weight_map":{"a":"index.json"}}`:                    "not a safetensors file",
	} {
		folder := t.TempDir()
		for to, from := range map[string]string{one: one, two: two, "copy.safetensors": one} {
			b, err := os.ReadFile(filepath.Join("testdata", from))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, to), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(folder, "index.json")
		if err := os.WriteFile(path, []byte(index), 0o666); err != nil {
			t.Fatal(err)
		}
		files, err := OpenIndex(path)
		if err == nil || !strings.Contains(err.Error(), want) || files != nil {
			t.Errorf("%q: %v, want %q", index, err, want)
		}
		if strings.Contains(want, "missing") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: wrong kind of error: %v", index, err)
		}
	}
	if _, err := OpenIndex("testdata/none.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
