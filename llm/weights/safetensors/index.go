package safetensors

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// OpenIndex reads the index of split weights, model.safetensors.index.json, and opens the files in name order. Its
// weight_map names the file of each tensor, in the index's folder or below. Symbolic links are followed, because the
// cache folders of model hubs consist of them.
//
// It returns an error if a file is missing, if a tensor is not in the file that the index names, or if two files have
// it. A tensor that the index omits is still listed by its file.
func OpenIndex(path string) ([]*File, error) {
	places, err := readIndex(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the index of safetensors files %s: %w", path, err)
	}
	names := slices.Compact(slices.Sorted(maps.Values(places)))
	open := func(name string) (*File, error) {
		return Open(filepath.Join(filepath.Dir(path), filepath.FromSlash(name)))
	}
	return tensors.OpenParts(names, path+" names files that are", open, func(files []*File) error {
		for _, tensor := range slices.Sorted(maps.Keys(places)) {
			if f := files[slices.Index(names, places[tensor])]; f.Tensor(tensor) == nil {
				return fmt.Errorf("%s does not contain tensor %q, although %s says so", f.Path, tensor, path)
			}
		}
		return nil
	})
}

// readIndex returns the file of each tensor.
func readIndex(path string) (places map[string]string, err error) {
	text, err := regular.ReadFile(path, maxHeader)
	if err != nil {
		return nil, err
	}
	return parseIndex(text)
}

func parseIndex(text []byte) (places map[string]string, err error) {
	err = readObject(text, func(r reader, key string) error {
		if key != "weight_map" {
			return r.skip()
		}
		places = map[string]string{}
		return r.object(func(tensor string) (err error) {
			name, err := r.name()
			if err != nil {
				return fmt.Errorf("weight_map: tensor %q: %w", tensor, err)
			}
			if local := filepath.FromSlash(name); !filepath.IsLocal(local) || filepath.Clean(local) == "." ||
				strings.Contains(name, "\x00") {
				return fmt.Errorf("weight_map: tensor %q is said to be in %q, which is not in the index's folder",
					tensor, name)
			}
			places[tensor] = name
			return nil
		})
	})
	if err == nil && places == nil {
		err = errors.New(`it has no "weight_map"`)
	}
	return places, err
}
