package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// OpenIndex reads the index of weights cut into several files, model.safetensors.index.json, and opens them, in the
// order of their names. Its weight_map gives the file of each tensor, in the index's folder or below. Symbolic links
// are followed: the cache folders of model hubs consist of them.
//
// It errs where files are missing, where a tensor is not in the file that the index names, or in two. A tensor that the
// index does not list is listed by its file.
func OpenIndex(path string) (files []*File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = nil
		}
	}()
	places, err := readIndex(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the index of safetensors files %s: %w", path, err)
	}
	byName := map[string]*File{}
	var missing []string
	for _, name := range slices.Compact(slices.Sorted(maps.Values(places))) {
		f, err := Open(filepath.Join(filepath.Dir(path), filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			if missing = append(missing, name); len(missing) == 10 {
				break
			}
			continue
		} else if err != nil {
			return files, err
		}
		byName[name] = f
		files = append(files, f)
	}
	if missing != nil {
		return files, fmt.Errorf("%s names files that are missing in its folder (%s): %w", path,
			strings.Join(missing, ", "), os.ErrNotExist)
	}
	for _, tensor := range slices.Sorted(maps.Keys(places)) {
		if f := byName[places[tensor]]; f.Tensor(tensor) == nil {
			return files, fmt.Errorf("%s: there is no tensor %q, although %s says so", f.Path, tensor, path)
		}
	}
	in := map[string]*File{}
	for _, f := range files {
		for _, t := range f.Tensors {
			if other := in[t.Name]; other != nil {
				return files, fmt.Errorf("%s: tensor %q is in %s, too", f.Path, t.Name, other.Path)
			}
			in[t.Name] = f
		}
	}
	return files, nil
}

// readIndex returns the file of each tensor.
func readIndex(path string) (places map[string]string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxHeader+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("it has more than %d bytes", maxHeader)
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
			name, err := r.string()
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
