package tensor

// The limits of one evaluation, so that a model that claims to be huge, or loops without end, fails with an error
// instead of exhausting the machine. They are variables for the tests.
var (
	// MaxElements bounds a tensor that an op makes; at 8 bytes per element that is 2 GiB.
	MaxElements = 1 << 28
	// maxStored bounds a tensor in the model's files: it takes at most 16 times their bytes.
	maxStored = 1 << 31
	// MaxLazy bounds a tensor whose elements are read on demand: the experts of a DeepSeek-V3 layer have more than
	// maxStored.
	MaxLazy = 1 << 40
	// MaxLive bounds the elements of all tensors that are needed at the same time: 4 GiB.
	MaxLive = 1 << 29
	// MaxSteps bounds the evaluated nodes and loop iterations together.
	MaxSteps = 1 << 23
	// MaxParts bounds the parts without elements that one tensor is split into.
	MaxParts = 1 << 16
)
