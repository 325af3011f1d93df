package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// DataWritten describes the origins of the bytes of an external data file.
type DataWritten struct {
	File   string // the file; empty if none was written
	Source string // the file that provides most of its bytes; empty if they come from the model or from memory
	Copied int64  // bytes copied from other files
	Shared int64  // bytes that the file system shares with Source until one of the files changes (reflink)
	Linked int64  // bytes of Source if the file is a hard link of it
}

// carriedPart is the part of a data file that a model must use so that the file is copied whole.
const carriedPart = 63.0 / 64

// placeData sets the offsets of the data file's entries. If the model uses nearly all of a file, that file is copied
// whole with its own offsets, so that it can be cloned or linked. All other entries begin on a page. The result does
// not depend on the file system: the same model has the same bytes.
func (l *layout) placeData() {
	carried := l.mostlyUsed()
	if carried != nil {
		whole := *carried
		whole.offset, whole.sourceOffset, whole.size = 0, 0, carried.source.size
		entries, places := []dataEntry{whole}, make([]int, len(l.data))
		for i, e := range l.data {
			if e.source != whole.source {
				places[i] = len(entries)
				entries = append(entries, e)
			}
		}
		for i, t := range l.moved {
			l.moved[i].entry, l.moved[i].inside = places[t.entry], 0
			if places[t.entry] == 0 {
				l.moved[i].inside = l.data[t.entry].sourceOffset
			}
		}
		l.data = entries
	}
	for i := range l.data {
		e := &l.data[i]
		e.offset = (l.dataEnd + pageSize - 1) / pageSize * pageSize
		l.dataEnd = e.offset + e.size
	}
}

// mostlyUsed returns an entry of the external file with the most weights, nil unless they fill nearly all of it.
func (l *layout) mostlyUsed() *dataEntry {
	ranges := map[*externalFile][]*dataEntry{}
	for i, e := range l.data {
		if e.source != nil {
			ranges[e.source] = append(ranges[e.source], &l.data[i])
		}
	}
	var best *dataEntry
	most := int64(0)
	for source, entries := range ranges {
		slices.SortFunc(entries, func(a, b *dataEntry) int { return cmp.Compare(a.sourceOffset, b.sourceOffset) })
		used, end := int64(0), int64(0)
		for _, e := range entries {
			if after := e.sourceOffset + e.size; after > end {
				used += after - max(end, e.sourceOffset)
				end = after
			}
		}
		if float64(used) >= carriedPart*float64(source.size) && (used > most || used == most && best != nil &&
			source.path < best.source.path) {
			best, most = entries[0], used
		}
	}
	return best
}

// writeDataAside writes the data file, or a hard link, under a temporary name.
func (l *layout) writeDataAside(link bool) (temporary string, err error) {
	l.weights = DataWritten{File: l.dataPath}
	if link && len(l.data) == 1 && l.data[0].isWhole() {
		name, err := l.data[0].link(l.path)
		if err == nil {
			l.weights.Source, l.weights.Linked = l.data[0].source.path, l.data[0].size
		}
		return name, err
	}
	return writeAside(l.path, "data", l.writeData)
}

func (l *layout) writeData(w *fileWriter) error {
	zeros := make([]byte, pageSize)
	at, most := int64(0), int64(0)
	for _, e := range l.data {
		if _, err := w.Write(zeros[:e.offset-at]); err != nil {
			return err
		}
		if err := e.writeTo(w); err != nil {
			return err
		}
		at = e.offset + e.size
		if e.source != nil && e.size > most {
			most, l.weights.Source = e.size, e.source.path
		}
	}
	l.weights.Copied, l.weights.Shared = w.copied, w.shared
	return nil
}

func (e *dataEntry) writeTo(w *fileWriter) error {
	if e.source != nil {
		file, err := e.sourceFiles.open(e.source)
		if err != nil {
			return err
		}
		defer file.Close()
		return w.copyFrom(file, e.sourceOffset, e.size)
	}
	if e.made != nil {
		return e.made.WriteElements(w)
	}
	b, err := e.bytes()
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// isWhole reports whether an entry is a whole external file.
func (e *dataEntry) isWhole() bool {
	return e.source != nil && e.sourceOffset == 0 && e.size == e.source.size
}

// link makes a hard link of the entry's file, under a temporary name in the folder of path.
func (e *dataEntry) link(path string) (temporary string, err error) {
	file, err := e.sourceFiles.open(e.source)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() != e.size {
		return "", fmt.Errorf("%s has %d bytes, but had %d when the model was read", e.source.path, info.Size(), e.size)
	}
	real, err := filepath.EvalSymlinks(e.source.path) // a hard link to a symbolic link would refer to another place
	if err != nil {
		return "", err
	}
	err = atomicfile.Commit(func() error {
		temporary, err = atomicfile.Link(real, path, "data")
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot make a hard link of %s (to copy the weights instead, write without "+
			"--link-weights): %w", real, err)
	}
	linked, err := os.Lstat(temporary)
	if err == nil && !os.SameFile(linked, info) {
		err = fmt.Errorf("%s was replaced while the model was written", real)
	}
	if err != nil {
		return "", errors.Join(err, atomicfile.Remove(temporary))
	}
	return temporary, nil
}
