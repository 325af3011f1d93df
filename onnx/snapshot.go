package onnx

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// Snapshot returns a function that puts the model back as it is now. Its graphs, nodes and values are others then;
// initializers keep their tensors, and nothing of them is copied.
func (m *Model) Snapshot() (restore func() error) {
	p := m.message()
	var raw [][]byte
	tensorMessages(func(t *onnxpb.TensorProto, _ bool) { raw, t.RawData = append(raw, t.RawData), nil }).model(p)
	kept := proto.CloneOf(p)
	for _, p := range []*onnxpb.ModelProto{p, kept} {
		i := 0
		tensorMessages(func(t *onnxpb.TensorProto, _ bool) { t.RawData, i = raw[i], i+1 }).model(p)
	}
	var tensors []*Tensor
	for _, g := range m.Graphs() {
		for _, v := range g.initializers {
			tensors = append(tensors, v.Const)
		}
	}
	return func() error {
		before, err := (&decoder{files: m.files}).model(kept)
		if err != nil {
			return fmt.Errorf("cannot restore the model: %w", err)
		}
		for _, g := range before.Graphs() {
			for _, v := range g.initializers {
				v.Const, tensors = tensors[0], tensors[1:]
			}
		}
		before.Path, before.closers = m.Path, m.closers
		*m = *before
		return nil
	}
}
