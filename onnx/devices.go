package onnx

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
)

// DevicesIR is the first IR version with device configurations.
const DevicesIR = 11

// A Shard says that a value of a node is divided along an axis over devices: device d has part d/Copies.
type Shard struct {
	Value string
	Axis  int
	// Parts is the number of parts, and Copies the number of consecutive devices that have the same part, at least 1.
	Parts, Copies int64
}

// SetDevices adds a configuration of this many devices to the model, or replaces the one with the name
// (DeviceConfigurationProto).
func (m *Model) SetDevices(name string, devices int64) {
	if m.proto == nil {
		m.proto = &onnxpb.ModelProto{}
	}
	m.proto.Configuration = append(slices.DeleteFunc(slices.Clone(m.proto.Configuration),
		func(c *onnxpb.DeviceConfigurationProto) bool { return c.GetName() == name }),
		&onnxpb.DeviceConfigurationProto{Name: &name, NumDevices: ptr(int32(devices))})
}

// SetShards says how the devices of a configuration divide the values of a node (NodeDeviceConfigurationProto), and
// replaces an earlier statement about the configuration. Groups are the devices that have the same part.
func (n *Node) SetShards(configuration string, shards []Shard) {
	c := &onnxpb.NodeDeviceConfigurationProto{ConfigurationId: &configuration}
	for _, s := range shards {
		spec := &onnxpb.ShardingSpecProto{TensorName: ptr(s.Value), ShardedDim: []*onnxpb.ShardedDimProto{
			{Axis: ptr(int64(s.Axis)), SimpleSharding: []*onnxpb.SimpleShardedDimProto{{NumShards: ptr(s.Parts)}}}}}
		for part := range s.Parts {
			if s.Copies <= 1 {
				spec.Device = append(spec.Device, part)
				continue
			}
			group := &onnxpb.IntIntListEntryProto{Key: ptr(-1 - part)} // negative numbers name groups
			for d := range s.Copies {
				group.Value = append(group.Value, part*s.Copies+d)
			}
			spec.Device = append(spec.Device, -1-part)
			spec.IndexToDeviceGroupMap = append(spec.IndexToDeviceGroupMap, group)
		}
		c.ShardingSpec = append(c.ShardingSpec, spec)
	}
	if n.proto == nil {
		n.proto = &onnxpb.NodeProto{}
	}
	n.proto.DeviceConfigurations = append(slices.DeleteFunc(slices.Clone(n.proto.DeviceConfigurations),
		func(c *onnxpb.NodeDeviceConfigurationProto) bool { return c.GetConfigurationId() == configuration }), c)
}
