package onnx

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// FolderData is the name of the data file that the models of a folder share.
const FolderData = "weights.data"

// FolderModel is a model that WriteFolder writes, and the name of its file.
type FolderModel struct {
	File  string
	Model *Model
}

// WriteFolder writes models into a new folder, with all larger weights in one data file. Elements that several models
// use, whole or as contiguous slices (View), are stored once. Other slices are streamed into the same file, next to the
// other slices of their tensor, so that the tensor is read from disk once. more writes further files into the folder.
//
// The folder appears when it is complete, or not at all. An empty folder may be at path; anything else is an error.
// The models may share tensors. Nothing else may use them meanwhile.
func WriteFolder(path string, models []FolderModel, more func(folder string) error) error {
	if err := CheckNewFolder(path); err != nil {
		return err
	}
	return atomicfile.WriteFolder(path, func(folder string) error {
		if err := writeModels(folder, models); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
		if err := more(folder); err != nil {
			return err
		}
		if err := CheckNewFolder(path); err != nil { // again, after a while
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// CheckNewFolder returns an error if WriteFolder cannot make a folder at path because something is there.
func CheckNewFolder(path string) error {
	list, err := os.ReadDir(path)
	info, missing := os.Lstat(path)
	switch {
	case missing == nil && !info.IsDir():
		return fmt.Errorf("%s exists and is not a folder: choose a new name", path)
	case err == nil && len(list) > 0:
		return fmt.Errorf("the folder %s is not empty: choose a new one", path)
	case err != nil && missing == nil:
		return err
	}
	return nil
}

// writeModels arranges all models to learn which elements they use, writes the data, and arranges each model again to
// write it.
func writeModels(folder string, models []FolderModel) error {
	c := &commonData{roots: map[any]*commonRoot{}, groups: map[string]int{}}
	for _, m := range models {
		if err := c.layout(folder, m, func(*layout) error { return nil }); err != nil {
			return err
		}
	}
	c.place()
	if len(c.entries) > 0 {
		l := &layout{data: c.entries}
		if err := writeNew(filepath.Join(folder, FolderData), l.writeData); err != nil {
			return err
		}
	}
	for _, m := range models {
		if err := c.layout(folder, m, (*layout).writeCommon); err != nil {
			return err
		}
	}
	return nil
}

// layout arranges a model beside the common data, calls then, and restores the model.
func (c *commonData) layout(folder string, m FolderModel, then func(*layout) error) error {
	if m.Model.files != nil && m.Model.files.isClosed() {
		return ErrClosed
	}
	l := unplaced(filepath.Join(folder, m.File), m.Model)
	l.common, l.dataPath = c, filepath.Join(folder, FolderData)
	defer l.restore()
	err := l.arrange(func(size int64, initializer bool) bool { return initializer && size > smallTensor })
	if err == nil {
		err = then(l)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.File, err)
	}
	return nil
}

// writeCommon writes the model file.
func (l *layout) writeCommon() error {
	l.data = l.common.entries
	size, err := l.encode(FolderData)
	if err != nil {
		return err
	}
	if size > maxModelFile {
		return fmt.Errorf("the model takes %d bytes even without its weights, more than the %d that other tools read",
			size, maxModelFile)
	}
	return writeNew(l.path, l.writeModel)
}

// writeNew writes a file that must not exist and syncs it to disk.
func writeNew(path string, contents func(*fileWriter) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	w := &fileWriter{Writer: bufio.NewWriterSize(f, 1<<16), file: f}
	for _, step := range []func() error{func() error { return contents(w) }, w.Flush, f.Sync} {
		if err := step(); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

// commonData is a data file that several models share.
type commonData struct {
	roots   map[any]*commonRoot
	order   []*commonRoot  // by first use
	groups  map[string]int // tensors by identity; the slices of a tensor have one number
	entries []dataEntry    // once placed
}

// commonRoot is a range of bytes of which models use parts: an external file, or the elements of a tensor.
type commonRoot struct {
	entry dataEntry // of the whole range, for parts of a file without its place
	raw   []byte    // elements in memory
	group int
	whole bool   // the range cannot be written in parts
	spans []span // used parts; once placed they are sorted and do not overlap
	first int    // the index of the first span's entry, once placed
}

type span struct{ start, end int64 }

// locate returns the range with the elements of a tensor and their place there.
func (c *commonData) locate(t *Tensor) (*commonRoot, int64, error) {
	base, at := t, int64(0)
	if a := t.assembly; a != nil && len(a.parts) == 1 && a.parts[0].outer == 0 {
		base, at = a.parts[0].from, a.parts[0].offset*int64(t.DataType.Bits()/8)
	}
	r, key := &commonRoot{}, any(nil)
	switch {
	case base.External != nil && base.files != nil:
		x, _, err := base.files.place(base)
		if err != nil {
			return nil, 0, fmt.Errorf("tensor %q: %w", base.Name, err)
		}
		r.entry.source, r.entry.sourceFiles = x, base.files
		key, at = x, at+base.External.Offset
	case base.External != nil || base.raw != nil:
		var err error
		if r.raw, err = base.Bytes(); err != nil {
			return nil, 0, err
		}
		key = unsafe.SliceData(r.raw)
	default:
		r.entry.made, r.entry.size, r.whole = base, base.Size(), true
		key = base.identity()
	}
	if known := c.roots[key]; known != nil {
		return known, at, nil
	}
	c.roots[key] = r
	c.order = append(c.order, r)
	source := t.Sources()[0].identity()
	if _, ok := c.groups[source]; !ok {
		c.groups[source] = len(c.groups)
	}
	r.group = c.groups[source]
	return r, at, nil
}

// identity returns a text that is equal for tensors with the same elements from the same places.
func (t *Tensor) identity() string {
	switch {
	case t.deferred != nil:
		return fmt.Sprintf("%s %v %p", t.DataType, t.Dims, t.deferred)
	case t.assembly == nil:
		return fmt.Sprintf("%p", t)
	}
	text := fmt.Sprintf("%s %v %d", t.DataType, t.Dims, t.assembly.axis)
	for _, p := range t.assembly.parts {
		text += fmt.Sprintf("(%s from %d by %v, %v at %d)", p.from.identity(), p.offset, p.strides, p.dims, p.start)
	}
	return text
}

// use returns the entry with the elements of a tensor and their place there. Before the entries are placed it only
// notes that they are used.
func (c *commonData) use(t *Tensor) (entry int, inside int64, err error) {
	r, at, err := c.locate(t)
	if err != nil {
		return 0, 0, err
	}
	if c.entries == nil {
		r.spans = append(r.spans, span{at, at + t.Size()})
		return 0, 0, nil
	}
	i, found := slices.BinarySearchFunc(r.spans, at, func(s span, at int64) int { return cmp.Compare(s.start, at) })
	if !found {
		i--
	}
	return r.first + i, at - r.spans[i].start, nil
}

// place makes the entries of the data file: the used parts of each range, each on a page. Parts that overlap are one.
func (c *commonData) place() {
	slices.SortStableFunc(c.order, func(a, b *commonRoot) int { return cmp.Compare(a.group, b.group) })
	end := int64(0)
	for _, r := range c.order {
		slices.SortFunc(r.spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
		apart := r.spans[:0]
		for _, s := range r.spans {
			if n := len(apart); n > 0 && (s.start < apart[n-1].end || s.start == apart[n-1].start) {
				apart[n-1].end = max(apart[n-1].end, s.end)
			} else {
				apart = append(apart, s)
			}
		}
		if r.whole {
			apart = []span{{0, r.entry.size}}
		}
		r.spans, r.first = apart, len(c.entries)
		for _, s := range apart {
			e := r.entry
			e.offset, e.size = (end+pageSize-1)/pageSize*pageSize, s.end-s.start
			switch {
			case e.source != nil:
				e.sourceOffset = s.start
			case e.made == nil:
				e.bytes = func() ([]byte, error) { return r.raw[s.start:s.end], nil }
			}
			c.entries = append(c.entries, e)
			end = e.offset + e.size
		}
	}
}
