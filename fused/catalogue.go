package fused

import "slices"

// ops is the catalogue, in the order of the documentation.
var ops = []*Op{rmsNorm, addRMSNorm, gatedRMSNorm, normQuantize, glu, rotaryEmbedding, normRotary, topKRouter, moe,
	attention, latentAttention, pagedAttention, addLayerNorm, biasGELU, linearAttention, causalConv, linear, halfLinear,
	embedding, qmoe}

// Ops lists the fused ops in the order of the documentation.
func Ops() []*Op { return slices.Clone(ops) }

// Lookup returns the op with a name, or nil if there is none.
func Lookup(name string) *Op {
	for _, o := range ops {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// Family is a group of ops whose kernels are selected by one id, such as cpu_fused_rmsnorm.
type Family struct {
	// Name ends the ids: rmsnorm.
	Name string
	// Summary describes in a few words what the kernels fuse.
	Summary string
	// Stored reports that the ops keep weights in their stored format. Such ops are written when weights are put into
	// a graph, and are not found in a model.
	Stored bool
}

// Families lists the families in the order of their first ops.
func Families() []*Family {
	var list []*Family
	for _, o := range ops {
		if !slices.Contains(list, o.Family) {
			list = append(list, o.Family)
		}
	}
	return list
}

// Device is a kind of device that kernels are written for.
type Device string

// The devices that kernels are written for.
const (
	CPU  Device = "cpu"
	CUDA Device = "cuda"
	NPU  Device = "npu" // Huawei Ascend
)

// Devices lists the devices, in the order in which kernels are applied and reported.
func Devices() []Device { return []Device{CPU, CUDA, NPU} }

// Of lists the family's ops that have a kernel for the device.
func (f *Family) Of(d Device) []*Op {
	var list []*Op
	for _, o := range ops {
		if o.Family == f && slices.Contains(o.Devices, d) {
			list = append(list, o)
		}
	}
	return list
}
