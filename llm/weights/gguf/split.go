package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Split says which of how many files this one is, as llama-gguf-split cuts them: part 0 of 3 to part 2 of 3. A file
// that is whole is part 0 of 1.
func (f *File) Split() (part, parts int64) {
	parts, ok := f.Int("split.count")
	if !ok || parts <= 1 {
		return 0, 1
	}
	part, _ = f.Int("split.no")
	return part, parts
}

// OpenSplit opens a file and, where it is one of several (NAME-00001-of-00003.gguf), the others in its folder,
// whichever of them path is. It errs where one is missing or does not belong to the rest; the metadata of the model are
// those of the first.
func OpenSplit(path string) (files []*File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = nil
		}
	}()
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	files = append(files, f)
	part, parts := f.Split()
	if parts == 1 {
		return files, nil
	}
	suffix := splitSuffix(part, parts)
	prefix, ok := strings.CutSuffix(path, suffix)
	if !ok {
		return files, fmt.Errorf(
			"%s is part %d of %d, but its name does not end in %s, by which the others would be found", path, part+1,
			parts, suffix)
	}
	var missing []string
	for i := range parts {
		if i == part {
			continue
		}
		next, err := Open(prefix + splitSuffix(i, parts))
		if errors.Is(err, fs.ErrNotExist) {
			if missing = append(missing, filepath.Base(prefix+splitSuffix(i, parts))); len(missing) == 10 {
				break
			}
			continue
		} else if err != nil {
			return files, err
		}
		files = append(files, next)
	}
	if missing != nil {
		return files, fmt.Errorf("%s is part %d of %d, and others are missing in its folder (%s): %w", path, part+1,
			parts, strings.Join(missing, ", "), os.ErrNotExist)
	}
	slices.SortFunc(files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return files, checkSplit(files)
}

func splitSuffix(part, parts int64) string { return fmt.Sprintf("-%05d-of-%05d.gguf", part+1, parts) }

// checkSplit compares what the parts say of themselves.
func checkSplit(files []*File) error {
	in := map[string]*File{}
	for i, f := range files {
		if part, parts := f.Split(); part != int64(i) || parts != int64(len(files)) {
			return fmt.Errorf("%s says that it is part %d of %d: it does not belong to the files beside it", f.Path,
				part+1, parts)
		}
		for _, t := range f.Tensors {
			if other := in[t.Name]; other != nil {
				return fmt.Errorf("%s: tensor %q is in %s, too", f.Path, t.Name, other.Path)
			}
			in[t.Name] = f
		}
	}
	if n, ok := files[0].Int("split.tensors.count"); ok && n != int64(len(in)) {
		return fmt.Errorf("%s says that the %d files hold %d tensors, they hold %d", files[0].Path, len(files), n,
			len(in))
	}
	return nil
}
