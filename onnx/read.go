package onnx

import (
	"fmt"
	"os"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// ReadOption changes how Read opens a model.
type ReadOption func(*readOptions)

type readOptions struct{ allowMissingData bool }

// AllowMissingData lets Read succeed when files with external data are absent; the tensors in them then err when their
// bytes are asked for.
func AllowMissingData() ReadOption { return func(o *readOptions) { o.allowMissingData = true } }

// Read maps the model file and decodes its graph. Weights are not decoded: they stay in the mapping, or in their
// external files, until Tensor.Bytes is called. Close the model to release the mapping.
func Read(path string, options ...ReadOption) (*Model, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read model: %w", err)
	}
	p := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s is no ONNX model: %w", path, err)
	}
	d := &decoder{files: &externalFiles{}}
	m, err := d.model(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m.Path = path
	return m, nil
}
