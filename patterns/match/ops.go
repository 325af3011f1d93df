package match

import "github.com/mojo-patch/mojo-patch/onnx"

// reductions lists the ops that reduce axes named by an attribute or, since opset 18, by an input.
var reductions = map[string]bool{
	"ReduceMean": true, "ReduceSum": true, "ReduceMax": true, "ReduceMin": true, "ReduceProd": true,
	"ReduceSumSquare": true, "ReduceL1": true, "ReduceL2": true, "ReduceLogSum": true, "ReduceLogSumExp": true,
}

// isOpType compares op types; a Sum of two is an Add.
func isOpType(n *onnx.Node, op string) bool {
	return n.OpType == op || op == "Add" && n.OpType == "Sum" && len(n.Inputs) == 2
}

// AttributeInputs names the inputs that are attributes in older opsets, so that one spelling serves all.
var AttributeInputs = map[string]map[string]int{
	"ReduceMean": {"axes": 1}, "ReduceSum": {"axes": 1}, "ReduceMax": {"axes": 1}, "ReduceMin": {"axes": 1},
	"ReduceProd": {"axes": 1}, "ReduceSumSquare": {"axes": 1}, "ReduceL1": {"axes": 1}, "ReduceL2": {"axes": 1},
	"ReduceLogSum": {"axes": 1}, "ReduceLogSumExp": {"axes": 1},
	"Squeeze": {"axes": 1}, "Unsqueeze": {"axes": 1}, "Split": {"split": 1},
	"Slice": {"starts": 1, "ends": 2, "axes": 3, "steps": 4},
	"Clip":  {"min": 1, "max": 2}, "TopK": {"k": 1}, "Pad": {"pads": 1, "value": 2}, "Tile": {"repeats": 1},
	"Dropout": {"ratio": 1},
}

// attributeDefaults are the defaults of the ONNX standard for attributes that patterns speak of.
var attributeDefaults = map[string]map[string]any{
	"Softmax": {"axis": -1.0}, "LogSoftmax": {"axis": -1.0}, "Gelu": {"approximate": "none"},
	"Swish": {"alpha": 1.0}, "Split": {"axis": 0.0},
	"TopK": {"axis": -1.0, "largest": 1.0, "sorted": 1.0}, "Gather": {"axis": 0.0}, "GatherElements": {"axis": 0.0},
	"LeakyRelu": {"alpha": 0.01}, "Elu": {"alpha": 1.0},
	"Gemm":               {"alpha": 1.0, "beta": 1.0, "transA": 0.0, "transB": 0.0},
	"LayerNormalization": {"axis": -1.0, "epsilon": 1e-5, "stash_type": 1.0},
	"RMSNormalization":   {"axis": -1.0, "epsilon": 1e-5, "stash_type": 1.0}, "RotaryEmbedding": {"interleaved": 0.0},
	"SimplifiedLayerNormalization": {"axis": -1.0, "epsilon": 1e-5, "stash_type": 1.0},
	"Clip":                         {"min": "none", "max": "none"}, "com.microsoft.QuickGelu": {"alpha": 1.702},
}
