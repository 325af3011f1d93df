package onnx

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx/internal/share"
)

// WriteOption changes how Write lays out the files.
type WriteOption func(*writeOptions)

type writeOptions struct {
	externalOver int64 // larger initializers go to the data file; -1: only if the model would be too large
	limit        int64 // the largest model file
	link         bool
}

// maxModelFile is the largest message that other protobuf implementations read.
const maxModelFile = 1<<31 - 1

// smallTensor is the size up to which a tensor never goes to the data file.
const smallTensor = 1023

// ExternalDataOver puts the elements of every initializer of more than n bytes into one file beside the model, named
// like the model with ".data" appended. By default only models over 2 GB are written that way.
func ExternalDataOver(n int64) WriteOption {
	return func(o *writeOptions) { o.externalOver = max(n, 0) }
}

// LinkData makes the data file a hard link of an external data file of the model that was read, if both would have the
// same bytes. Both names are then one file: a program that writes to it in place, instead of replacing it, changes both
// models. This package replaces files. If the data file needs other bytes, it is written as without the option; see
// Staged.Data. It is an error if the file system cannot make the link.
func LinkData() WriteOption { return func(o *writeOptions) { o.link = true } }

// Write writes the model to path, and to path + ".data" if it is over 2 GB or refers to external data in another folder
// than path's. References to external data in the same folder stay references. Weights are copied from file to file
// without decoding, or shared with their source if the file system supports it (reflinks on Linux): each file still has
// its own bytes. An external file that is used almost completely is copied as it is. The same model has the same bytes.
//
// The files are written under temporary names in the same folder and renamed when they are complete. Whenever the
// process dies, path is a loadable model, the old one or the new one (see Staged). After an error no files remain. It
// is an error to overwrite the file or the external data that the model was read from, or to replace a data file that
// another model of the folder uses. Nothing else may use the model meanwhile.
func Write(path string, m *Model, options ...WriteOption) error {
	s, err := Stage(path, m, options...)
	if err != nil {
		return err
	}
	return s.Commit()
}

// Marshal returns the model file that Write would write to the model's own folder: references to external data there
// stay references. It returns an error if the model needs a new data file.
func Marshal(m *Model) ([]byte, error) {
	if m.files != nil && m.files.isClosed() {
		return nil, ErrClosed
	}
	l, err := newLayout(m.Path, m, writeOptions{externalOver: -1, limit: maxModelFile})
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", m.Path, err)
	}
	defer l.restore()
	if len(l.data) > 0 {
		return nil, fmt.Errorf("cannot encode %s: %d bytes of its weights need a data file", m.Path, l.dataEnd)
	}
	b := bytes.NewBuffer(make([]byte, 0, l.size))
	w := &fileWriter{Writer: bufio.NewWriter(b)}
	if err := l.writeModel(w); err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", m.Path, err)
	}
	err = w.Flush()
	return b.Bytes(), err
}

// checkTargets rejects overwriting files that the model still reads, or paths that are not files.
func checkTargets(m *Model, l *layout) error {
	targets := []string{l.path}
	if len(l.data) > 0 {
		targets = append(targets, l.dataPath)
	}
	for _, target := range targets {
		info, err := os.Stat(target)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s exists and is not a regular file", target)
		}
		if m.Path != "" {
			if in, err := os.Stat(m.Path); err == nil && os.SameFile(in, info) {
				return fmt.Errorf("%s is the file that the model was read from: choose another name", target)
			}
		}
		if l.reads(info) && !l.isLinkElsewhere(target) {
			return fmt.Errorf("%s holds external data of the model that was read: choose another name", target)
		}
	}
	return nil
}

// reads reports whether a file has external data of the model that is written.
func (l *layout) reads(file os.FileInfo) bool {
	for files := range l.sources {
		for _, x := range files.used() {
			if in, err := os.Stat(x.path); err == nil && os.SameFile(in, file) {
				return true
			}
		}
	}
	return false
}

// isLinkElsewhere reports whether a file, which has external data of the model that is written, is a hard link in
// another folder than the data. Replacing that name does not change the data.
func (l *layout) isLinkElsewhere(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	for files := range l.sources {
		for _, x := range files.used() {
			real, err := filepath.EvalSymlinks(x.path)
			if err != nil {
				continue // it is not the file
			}
			in, err := os.Stat(filepath.Dir(real))
			if err != nil || os.SameFile(in, folder) {
				return false
			}
		}
	}
	return true
}

// writeAside writes a file under a temporary name of this kind in the folder of path and syncs it to disk.
func writeAside(path, kind string, contents func(*fileWriter) error) (temporary string, err error) {
	f, err := atomicfile.CreateKind(path, kind)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			f.Close()
			atomicfile.Remove(f.Name())
		}
	}()
	w := &fileWriter{Writer: bufio.NewWriterSize(f, 1<<16), file: f}
	if err = contents(w); err != nil {
		return "", err
	}
	if err = w.Flush(); err != nil {
		return "", err
	}
	if err = f.Sync(); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// fileWriter is a buffered file that the system can copy to directly.
type fileWriter struct {
	*bufio.Writer
	file           *os.File
	copied, shared int64 // bytes of copyFrom
}

// shareOver is the minimum number of bytes to try to share.
const shareOver = 1 << 16

// copyFrom appends n bytes of src. It shares whole pages of both files if the file system supports that, and copies the
// rest, on Linux without passing it through this process (copy_file_range).
func (w *fileWriter) copyFrom(src *os.File, offset, n int64) error {
	if err := w.Flush(); err != nil {
		return err
	}
	at, err := w.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if n >= shareOver && offset%pageSize == 0 && at%pageSize == 0 {
		pages := n / pageSize * pageSize
		if share.Range(w.file, at, src, offset, pages) == nil { // else they are copied
			if _, err := w.file.Seek(at+pages, io.SeekStart); err != nil {
				return err
			}
			w.shared += pages
			offset, n = offset+pages, n-pages
		}
	}
	if _, err := src.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.CopyN(w.file, src, n); err != nil {
		return fmt.Errorf("cannot copy %d bytes of %s: %w", n, src.Name(), err)
	}
	w.copied += n
	return nil
}

// syncFolder makes renames durable if the system supports it; other systems need nothing.
func syncFolder(dir string) {
	if f, err := os.Open(dir); err == nil {
		f.Sync()
		f.Close()
	}
}
