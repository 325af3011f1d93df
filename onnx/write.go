package onnx

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// WriteOption changes how Write lays out the files.
type WriteOption func(*writeOptions)

type writeOptions struct {
	externalOver int64 // initializers of more bytes go to the data file; -1: only if the model would be too large
	limit        int64 // the largest model file
}

// maxModelFile is the largest message that other protobuf implementations read.
const maxModelFile = 1<<31 - 1

// smallTensor is the size up to which a tensor is never worth a place in the data file.
const smallTensor = 1023

// ExternalDataOver puts the elements of every initializer of more than n bytes into one file beside the model, named
// like the model with ".data" appended. Without it only models over 2 GB are written that way.
func ExternalDataOver(n int64) WriteOption {
	return func(o *writeOptions) { o.externalOver = max(n, 0) }
}

// Write writes the model to path, and to path + ".data" when it is over 2 GB or refers to external data in another
// folder than path's; references to external data in the same folder stay references. Weights are copied from the
// mapped files and never decoded. The same model gives the same bytes.
//
// The files are written under temporary names in the same folder and renamed when they are whole; whenever the process
// dies, path is a model that loads, the one before or the new one (see Staged). After an error nothing is left. Writing
// over the file, or the external data, that the model was read from is an error, and so is replacing a data file that
// another model of the folder uses. Nothing else may use the model meanwhile.
func Write(path string, m *Model, options ...WriteOption) error {
	s, err := Stage(path, m, options...)
	if err != nil {
		return err
	}
	return s.Commit()
}

// Marshal returns the model file that Write writes to the folder that the model was read from: references to external
// data there stay references. A model that would need a data file of its own is an error.
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
	var b bytes.Buffer
	w := &fileWriter{Writer: bufio.NewWriter(&b)}
	if err := l.writeModel(w); err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", m.Path, err)
	}
	err = w.Flush()
	return b.Bytes(), err
}

// checkTargets refuses to write over what the model still reads from, or over something that is no file.
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
			return fmt.Errorf("%s exists and is no regular file", target)
		}
		if m.Path != "" {
			if in, err := os.Stat(m.Path); err == nil && os.SameFile(in, info) {
				return fmt.Errorf("%s is the file the model was read from: choose another name", target)
			}
		}
		if l.reads(info) {
			return fmt.Errorf("%s holds external data of the model that was read: choose another name", target)
		}
	}
	return nil
}

// reads reports whether a file holds external data of the model that is written.
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

// writeAside writes a file under a temporary name of this kind in the folder of path and syncs it to the disk.
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
	w := &fileWriter{bufio.NewWriterSize(f, 1<<16), f}
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

// fileWriter is a buffered file that can be copied to by the system.
type fileWriter struct {
	*bufio.Writer
	file *os.File
}

// copyFrom appends n bytes of src, which on Linux never pass through this process (copy_file_range), and on some file
// systems are not copied at all.
func (w *fileWriter) copyFrom(src *os.File, offset, n int64) error {
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := src.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.CopyN(w.file, src, n); err != nil {
		return fmt.Errorf("cannot copy %d bytes of %s: %w", n, src.Name(), err)
	}
	return nil
}

// syncFolder makes renames durable where the system knows how; others need nothing.
func syncFolder(dir string) {
	if f, err := os.Open(dir); err == nil {
		f.Sync()
		f.Close()
	}
}
