package onnx

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// TestDevices: configurations are written as onnx.proto has them, groups of devices by negative numbers, and stay when
// the model is read and written again.
func TestDevices(t *testing.T) {
	m := New(DevicesIR, 20)
	x := m.Graph.AddInput("x", Type{})
	n := m.Graph.AddNode("Relu", []*Value{x}, []*Value{m.Graph.NewValue("y")})
	m.SetDevices("ranks", 2)
	m.SetDevices("ranks", 4)
	n.SetShards("ranks", nil)
	n.SetShards("ranks", []Shard{{"x", 1, 4, 1}, {"y", 2, 2, 2}})
	first, second := filepath.Join(t.TempDir(), "first.onnx"), filepath.Join(t.TempDir(), "second.onnx")
	if err := Write(first, m); err != nil {
		t.Fatal(err)
	}
	again, err := Read(first)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := Write(second, again); err != nil {
		t.Fatal(err)
	}
	want := &onnxpb.ModelProto{}
	err = prototext.Unmarshal([]byte(`configuration { name: "ranks" num_devices: 4 } graph { node {
		device_configurations { configuration_id: "ranks"
			sharding_spec { tensor_name: "x" device: [0, 1, 2, 3]
				sharded_dim { axis: 1 simple_sharding { num_shards: 4 } } }
			sharding_spec { tensor_name: "y" device: [-1, -2]
				index_to_device_group_map { key: -1 value: [0, 1] } index_to_device_group_map { key: -2 value: [2, 3] }
				sharded_dim { axis: 2 simple_sharding { num_shards: 2 } } } } } }`), want)
	if err != nil {
		t.Fatal(err)
	}
	got := again.message()
	mine := &onnxpb.ModelProto{Configuration: got.Configuration, Graph: &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{
		{DeviceConfigurations: got.Graph.Node[0].DeviceConfigurations}}}}
	if !proto.Equal(mine, want) {
		t.Errorf("%v instead of %v", mine, want)
	}
	a, _ := os.ReadFile(first)
	if b, err := os.ReadFile(second); err != nil || !bytes.Equal(a, b) {
		t.Error("the second file differs")
	}
}
