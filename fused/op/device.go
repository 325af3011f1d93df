package op

// Family is a group of ops whose kernels are selected by one id, such as cpu_fused_rmsnorm.
type Family struct {
	// Name ends the ids: rmsnorm.
	Name string
	// Summary describes in a few words what the kernels fuse.
	Summary string
	// Stored reports that no pattern finds the ops. They are written when weights are put into a graph in their stored
	// format, or when a model is sharded.
	Stored bool
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
