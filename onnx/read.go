package onnx

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/mmap"
	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// ReadOption changes how Read opens a model.
type ReadOption func(*readOptions)

type readOptions struct{ allowMissingData, followLinks, checksums bool }

// AllowMissingData lets Read succeed when files with external data are absent; the tensors in them then err when their
// bytes are asked for, and Write keeps their references as they are.
func AllowMissingData() ReadOption { return func(o *readOptions) { o.allowMissingData = true } }

// AllowLinks lets external data lie behind symbolic links, which may lead out of the model's folder, as they do in the
// cache folders of model hubs. Use it only for models you trust.
func AllowLinks() ReadOption { return func(o *readOptions) { o.followLinks = true } }

// VerifyChecksums makes Read compare the checksums of external data with the files, which reads them whole.
func VerifyChecksums() ReadOption { return func(o *readOptions) { o.checksums = true } }

// copyRawUpTo is the number of bytes up to which raw_data is copied out of the mapping: so small constants take no page
// of the file each time they are looked at, and the mapping serves what is worth mapping.
const copyRawUpTo = 1024

// Read maps the model file and decodes its graph. Weights are not decoded: they stay in the mapping, or in their
// external files, until Tensor.Bytes is called. Close the model to release the mapping.
//
// It errs on files that are no ONNX model, are truncated, or contradict themselves: names that nothing or two things
// define, cycles among nodes or functions, dimensions that overflow, data that do not fit their shape, external data
// that are missing or lie outside the model's folder.
func Read(path string, options ...ReadOption) (*Model, error) {
	var o readOptions
	for _, set := range options {
		set(&o)
	}
	b, release, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read model: %w%s", err, modelsIn(path))
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
		if what := foreign(b); what != "" {
			return nil, fmt.Errorf("the file is %s", what)
		}
		return nil, err
	}
	tensorMessages(func(t *onnxpb.TensorProto, _ bool) {
		if t.RawData == nil {
			return
		}
		if raw := raws[placeholderIndex(t.RawData)]; len(raw) <= copyRawUpTo {
			t.RawData = append(make([]byte, 0, len(raw)), raw...)
		} else {
			t.RawData = slices.Clip(raw)
		}
	}).model(p)
	d := &decoder{files: files}
	return d.model(p)
}

// decode decodes the message of a model. Placeholders in it stand for the large weights, which it returns beside it.
func decode(b []byte) (*onnxpb.ModelProto, [][]byte, error) {
	rest, raws, err := splitRaw(b)
	if err != nil {
		return nil, nil, err
	}
	p := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(rest, p); err != nil {
		return nil, nil, fmt.Errorf("no protobuf message of an ONNX model: %w", err)
	}
	return p, raws, nil
}
