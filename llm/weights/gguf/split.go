package gguf

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// Split returns the index of this file and the number of files that llama-gguf-split cut the model into: part 0 of 3 to
// part 2 of 3. An unsplit file is part 0 of 1.
func (f *File) Split() (part, parts int64) {
	parts, ok := f.Int("split.count")
	if !ok || parts <= 1 {
		return 0, 1
	}
	part, _ = f.Int("split.no")
	return part, parts
}

// OpenSplit opens a file and, if it is one part of a split file (NAME-00001-of-00003.gguf), the other parts in its
// folder; path may be any of them. It returns an error if a part is missing or does not belong to the others. The
// model's metadata are in the first part.
func OpenSplit(path string) ([]*File, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	part, parts := f.Split()
	if parts == 1 {
		return []*File{f}, nil
	}
	f.Close()
	suffix := splitSuffix(part, parts)
	prefix, ok := strings.CutSuffix(path, suffix)
	if !ok {
		return nil, fmt.Errorf("%s is part %d of %d, but its name does not end in %s, by which the other parts are "+
			"found",
			path, part+1, parts, suffix)
	}
	dir, name := filepath.Split(prefix)
	var names []string
	for i := range min(parts, math.MaxUint16) { // of which ten may be missing
		names = append(names, name+splitSuffix(i, parts))
	}
	missing := fmt.Sprintf("%s is part %d of %d, but other parts are", path, part+1, parts)
	return tensors.OpenParts(names, missing, func(name string) (*File, error) { return Open(dir + name) }, checkSplit)
}

func splitSuffix(part, parts int64) string { return fmt.Sprintf("-%05d-of-%05d.gguf", part+1, parts) }

// checkSplit compares the part numbers that the parts contain.
func checkSplit(files []*File) error {
	held := 0
	for i, f := range files {
		if part, parts := f.Split(); part != int64(i) || parts != int64(len(files)) {
			return fmt.Errorf("%s says that it is part %d of %d: it does not belong to the files beside it", f.Path,
				part+1, parts)
		}
		held += len(f.Tensors)
	}
	if n, ok := files[0].Int("split.tensors.count"); ok && n != int64(held) {
		return fmt.Errorf("%s says that the %d files hold %d tensors, but they hold "+
			"%d", files[0].Path, len(files), n, held)
	}
	return nil
}
