package onnx

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/internal/mmap"
	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// ErrMissingData is the cause of an error about a missing file with external data.
var ErrMissingData = errors.New("the file with its external data is missing")

// ErrClosed is returned by Tensor.Bytes after Model.Close.
var ErrClosed = errors.New("the model is closed")

// externalFiles opens the files with a model's external data, once each and on demand.
type externalFiles struct {
	dir     string // the model's folder; empty for models read from memory
	options readOptions

	mu     sync.Mutex
	root   *os.Root
	files  map[string]*externalFile // by cleaned location
	closed bool
}

type externalFile struct {
	location string
	path     string // for messages and for comparing with a file about to be written
	size     int64
	err      error // why the file cannot be used
	data     []byte
	release  func() error
	digest   string // SHA-1, once computed
}

// parseExternal reads the entries of TensorProto.external_data.
func parseExternal(p *onnxpb.TensorProto) (*External, error) {
	e := &External{Length: -1}
	seen := map[string]bool{}
	for _, kv := range p.ExternalData {
		key, value := kv.GetKey(), kv.GetValue()
		if seen[key] {
			return nil, fmt.Errorf("external_data has the key %q twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "location":
			e.Location = value
		case "offset":
			e.Offset, err = parseSize(key, value)
		case "length":
			e.Length, err = parseSize(key, value)
		case "checksum":
			e.Checksum = value
		}
		if err != nil {
			return nil, err
		}
	}
	if e.Location == "" {
		return nil, errors.New("external_data names no location")
	}
	return e, nil
}

func parseSize(key, value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("external_data has the %s %q, which is not a number of bytes", key, value)
	}
	return n, nil
}

// check checks everything about the tensor's place that needs no reading.
func (f *externalFiles) check(t *Tensor) error {
	_, _, err := f.place(t)
	if errors.Is(err, ErrMissingData) && f.options.allowMissingData {
		return nil
	}
	return err
}

// absent reports whether the tensor's file is missing and may be.
func (f *externalFiles) absent(t *Tensor) bool {
	if f == nil || !f.options.allowMissingData {
		return false
	}
	_, _, err := f.place(t)
	return errors.Is(err, ErrMissingData)
}

// place finds the file and the size of the tensor, and checks that the file contains it.
func (f *externalFiles) place(t *Tensor) (*externalFile, int64, error) {
	e := t.External
	n, err := byteSize(t.DataType, t.Dims)
	if err != nil {
		return nil, 0, err
	}
	if e.Length >= 0 && e.Length != n {
		return nil, 0, fmt.Errorf("%s%v takes %d bytes, but its external_data has the length %d", t.DataType, t.Dims, n,
			e.Length)
	}
	x, err := f.file(e.Location)
	if err != nil {
		return nil, 0, err
	}
	if e.Offset < 0 || e.Offset > x.size || n > x.size-e.Offset {
		return nil, 0, fmt.Errorf("its %d bytes at offset %d lie past the end of %s, which has %d bytes", n, e.Offset,
			x.path, x.size)
	}
	return x, n, nil
}

// file finds an external file once and caches the result.
func (f *externalFiles) file(location string) (*externalFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	key := path.Clean(filepath.ToSlash(location))
	if x := f.files[key]; x != nil {
		return x, x.err
	}
	x := &externalFile{location: key, path: filepath.Join(f.dir, filepath.FromSlash(key))}
	x.err = f.find(x, location)
	if f.files == nil {
		f.files = map[string]*externalFile{}
	}
	f.files[key] = x
	return x, x.err
}

// find checks the location and takes the file's size. Models are untrusted: they may only name files in their own
// folder, and not links, which might lead outside.
func (f *externalFiles) find(x *externalFile, location string) error {
	if f.dir == "" {
		return fmt.Errorf("%w: the model was not read from a file, so no folder contains %q", ErrMissingData,
			location)
	}
	local := filepath.FromSlash(x.location)
	if !filepath.IsLocal(local) || x.location == "." || strings.Contains(location, "\x00") {
		return fmt.Errorf("its external data %q are outside the model's folder", location)
	}
	if f.root == nil {
		root, err := os.OpenRoot(f.dir)
		if err != nil {
			return fmt.Errorf("cannot open the model's folder: %w", err)
		}
		f.root = root
	}
	var info fs.FileInfo
	parts := strings.Split(x.location, "/")
	for i := range parts {
		part := filepath.Join(parts[:i+1]...)
		var err error
		if info, err = f.root.Lstat(part); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: %s", ErrMissingData, x.path)
			}
			return fmt.Errorf("cannot use its external data %s: %w", x.path, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if !f.options.followLinks {
			return fmt.Errorf("its external data %s lead through a symbolic link (%s): replace the link by the "+
				"file, or use --allow-links to follow it", x.path, part)
		}
		if info, err = os.Stat(x.path); err != nil {
			return fmt.Errorf("%w: %w", ErrMissingData, err)
		}
		break
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("its external data %s are not a regular file", x.path)
	}
	x.size = info.Size()
	return nil
}

// bytes returns the elements of a tensor with external data, mapping its file at the first call.
func (f *externalFiles) bytes(t *Tensor) ([]byte, error) {
	x, n, err := f.place(t)
	if err != nil {
		return nil, err
	}
	if err := f.load(x); err != nil {
		return nil, err
	}
	end := t.External.Offset + n
	if end > int64(len(x.data)) {
		return nil, fmt.Errorf("%s has shrunk to %d bytes since the model was read", x.path, len(x.data))
	}
	return x.data[t.External.Offset:end:end], nil
}

func (f *externalFiles) load(x *externalFile) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if x.release != nil {
		return nil
	}
	file, err := f.open(x)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	x.data, x.release, err = mmap.File(file, info.Size())
	return err
}

func (f *externalFiles) open(x *externalFile) (*os.File, error) {
	if f.options.followLinks {
		f, _, err := regular.Open(x.path)
		return f, err
	}
	return f.root.Open(filepath.FromSlash(x.location)) // a root follows no link out of the folder
}

// verify compares a tensor's checksum with that of its file.
func (f *externalFiles) verify(t *Tensor) error {
	want := strings.ToLower(t.External.Checksum)
	x, _, err := f.place(t)
	if err != nil {
		return err
	}
	if x.digest == "" {
		file, err := f.open(x)
		if err != nil {
			return err
		}
		defer file.Close()
		h := sha1.New()
		if _, err := io.Copy(h, file); err != nil {
			return fmt.Errorf("cannot read %s: %w", x.path, err)
		}
		x.digest = hex.EncodeToString(h.Sum(nil))
	}
	if x.digest != want {
		return fmt.Errorf("the SHA-1 of %s is %s, but the model expects %s: the file was changed or "+
			"damaged", x.path, x.digest,
			want)
	}
	return nil
}

// used lists the files that tensors have named so far, by path.
func (f *externalFiles) used() []*externalFile {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var xs []*externalFile
	for _, x := range f.files {
		xs = append(xs, x)
	}
	slices.SortFunc(xs, func(a, b *externalFile) int { return strings.Compare(a.path, b.path) })
	return xs
}

func (f *externalFiles) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *externalFiles) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var errs []error
	for _, x := range f.files {
		if x.release != nil {
			errs = append(errs, x.release())
			x.release, x.data = nil, nil
		}
	}
	if f.root != nil {
		errs = append(errs, f.root.Close())
		f.root = nil
	}
	return errors.Join(errs...)
}
