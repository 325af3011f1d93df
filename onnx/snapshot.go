package onnx

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
	"google.golang.org/protobuf/proto"
)

// Snapshot returns a function that restores the model, once. The restored graphs, nodes and values are new objects;
// initializers keep their tensors without copying.
func (m *Model) Snapshot() (restore func() error) {
	again := m.copier()
	return func() error {
		before, err := again()
		if err != nil {
			return fmt.Errorf("cannot restore the model: %w", err)
		}
		before.closers = m.closers
		*m = *before
		return nil
	}
}

// Clone copies the model's graphs and functions. Both share the tensors of initializers, and the copy is valid until m
// is closed.
func (m *Model) Clone() (*Model, error) {
	c, err := m.copier()()
	if err != nil {
		return nil, fmt.Errorf("cannot copy the model: %w", err)
	}
	return c, nil
}

// copier returns a function that makes, once, the model as it is now.
func (m *Model) copier() func() (*Model, error) {
	p := m.message()
	var tensors []*Tensor
	isShared := map[*onnxpb.TensorProto]bool{}
	for _, g := range m.Graphs() {
		for _, v := range g.initializers {
			tensors = append(tensors, v.Const)
			isShared[v.Const.proto] = true
		}
	}
	var raw [][]byte
	var shared []bool
	wire.Tensors(func(t *onnxpb.TensorProto, _ bool) {
		raw, t.RawData = append(raw, t.RawData), nil
		shared = append(shared, isShared[t])
	}).Model(p)
	kept := proto.CloneOf(p)
	for _, p := range []*onnxpb.ModelProto{p, kept} {
		i := 0
		wire.Tensors(func(t *onnxpb.TensorProto, _ bool) {
			t.RawData = raw[i]
			if p == kept && shared[i] { // its files may be another model's
				t.DataLocation, t.ExternalData = nil, nil
			}
			i++
		}).Model(p)
	}
	return func() (*Model, error) {
		before, err := (&decoder{files: m.files}).model(kept)
		if err != nil {
			return nil, err
		}
		for _, g := range before.Graphs() {
			for _, v := range g.initializers {
				v.Const, tensors = tensors[0], tensors[1:]
			}
		}
		before.Path = m.Path
		return before, nil
	}
}
