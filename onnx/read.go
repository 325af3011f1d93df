package onnx

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/mmap"
	"github.com/mojo-patch/mojo-patch/onnx/internal/foreign"
	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
	"google.golang.org/protobuf/proto"
)

// ReadOption changes how Read opens a model.
type ReadOption func(*readOptions)

type readOptions struct{ allowMissingData, followLinks, checksums bool }

// AllowMissingData lets Read succeed if files with external data are missing. Reading the bytes of their tensors then
// returns an error, and Write keeps their references.
func AllowMissingData() ReadOption { return func(o *readOptions) { o.allowMissingData = true } }

// AllowLinks lets external data be behind symbolic links, which may lead out of the model's folder, as in the cache
// folders of model hubs. Use it only for models you trust.
func AllowLinks() ReadOption { return func(o *readOptions) { o.followLinks = true } }

// VerifyChecksums makes Read compare the checksums of external data with the files, which reads them whole.
func VerifyChecksums() ReadOption { return func(o *readOptions) { o.checksums = true } }

// copyRawUpTo is the size up to which raw_data is copied from the mapping. So reading small constants does not fault in
// pages of the file each time.
const copyRawUpTo = 1024

// Read maps the model file and decodes its graph. Weights stay in the mapping, or in their external files, until
// Tensor.Bytes is called. Close the model to release the mapping.
//
// It returns an error for a file that is not an ONNX model, is truncated, or contradicts itself: names that are
// undefined or defined twice, cycles among nodes or functions, dimensions that overflow, data that do not fit their
// shape, external data that are missing or outside the model's folder.
func Read(path string, options ...ReadOption) (*Model, error) {
	var o readOptions
	for _, set := range options {
		set(&o)
	}
	b, release, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read model: %w%s", err, foreign.ModelsIn(path))
	}
	files := &externalFiles{dir: filepath.Dir(path), options: o}
	m, err := readBytes(b, files)
	if err == nil && o.checksums {
		err = m.VerifyChecksums()
	}
	if err != nil {
		files.close()
		release()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m.Path = path
	m.closers = append(m.closers, files.close, release)
	return m, nil
}

// readBytes decodes an encoded model. Large weights stay in b.
func readBytes(b []byte, files *externalFiles) (*Model, error) {
	if len(b) == 0 {
		return nil, errors.New("the file is empty")
	}
	p, raws, err := decode(b)
	if err != nil {
		if what := foreign.Describe(b); what != "" {
			return nil, fmt.Errorf("the file is %s", what)
		}
		return nil, err
	}
	wire.Tensors(func(t *onnxpb.TensorProto, _ bool) {
		if t.RawData == nil {
			return
		}
		if raw := raws[wire.PlaceholderIndex(t.RawData)]; len(raw) <= copyRawUpTo {
			t.RawData = append(make([]byte, 0, len(raw)), raw...)
		} else {
			t.RawData = slices.Clip(raw)
		}
	}).Model(p)
	d := &decoder{files: files}
	return d.model(p)
}

// decode decodes a model's message. It replaces the large weights by placeholders and returns them separately.
func decode(b []byte) (*onnxpb.ModelProto, [][]byte, error) {
	rest, raws, err := wire.Split(b)
	if err != nil {
		return nil, nil, err
	}
	p := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(rest, p); err != nil {
		return nil, nil, fmt.Errorf("not a protobuf message of an ONNX model: %w", err)
	}
	return p, raws, nil
}
