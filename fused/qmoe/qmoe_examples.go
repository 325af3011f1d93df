package qmoe

import (
	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/linear"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/op"
)

const (
	packHalves, packInterleaved, packNone = moe.PackHalves, moe.PackInterleaved, moe.PackNone
	activationsFloat, activationsInt16    = linear.ActivationsFloat, linear.ActivationsInt16
	activationsInt8, activationsFP8       = linear.ActivationsInt8, linear.ActivationsFP8
)

var q40, q41, q4K, q80, q51, q6K, mxfp4, fp8 = linear.Q40, linear.Q41, linear.Q4K, linear.Q80, linear.Q51, linear.Q6K,
	linear.MXFP4, linear.FP8

// qmoeForm is a use of QMoE with four experts. In up and down, n and k are not set.
type qmoeForm struct {
	activation    string
	clamped       bool // as in gpt-oss
	packing       string
	up, down      linear.QuantizedForm
	hidden, inner int64
	activations   string
	tokens        []int64
	k             int64
	upBias, bias  bool
}

// qmoeExamples covers the formats of GGUF and gpt-oss, the activations of MoE and each kind of rounding, with few
// tokens and with so many that kernels unpack the weights first.
var qmoeExamples = []qmoeForm{
	{"silu", false, packHalves, q40, q40, 96, 64, activationsInt16, []int64{2, 3}, 2, false, false},
	{"silu", false, packHalves, q40, q80, 64, 96, activationsInt8, []int64{1}, 3, false, true},
	{"silu", true, packInterleaved, mxfp4, mxfp4, 64, 96, activationsInt16, []int64{1, 3}, 2, true, true},
	{"silu", true, packInterleaved, mxfp4, mxfp4, 96, 32, activationsInt8, []int64{29}, 2, true, true},
	{"silu", true, packHalves, mxfp4, q80, 32, 64, activationsFloat, []int64{2, 2}, 2, true, false},
	{"gelu", false, packHalves, q41, q41, 64, 64, activationsInt8, []int64{3, 13}, 2, false, false},
	{"gelu", false, packNone, q41, q40, 64, 32, activationsInt16, []int64{1, 5}, 1, false, true},
	{"gelu_tanh", false, packInterleaved, q80, q51, 32, 96, activationsInt16, []int64{21}, 2, false, false},
	{"relu", false, packNone, q80, q80, 96, 32, activationsInt8, []int64{2, 16}, 2, true, true},
	{"relu2", false, packNone, q40, mxfp4, 32, 32, activationsFloat, []int64{3}, 2, false, true},
	{"silu", false, packHalves, q4K, q6K, 256, 256, activationsInt16, []int64{4}, 2, false, false},
	{"relu2", false, packInterleaved, q6K, q4K, 256, 256, activationsInt8, []int64{19}, 2, true, false},
	{"silu", false, packHalves, q4K, q80, 256, 32, activationsInt16, []int64{1}, 2, false, false},
	{"silu", false, packHalves, q40, q6K, 32, 256, activationsInt16, []int64{17}, 1, false, false},
	{"silu", false, packHalves, q4K, mxfp4, 256, 32, activationsFloat, []int64{2}, 2, false, false},
	{"silu", false, packHalves, mxfp4, q6K, 32, 256, activationsInt8, []int64{1, 2}, 2, false, false},
	{"silu", false, packHalves, q51, q41, 32, 64, activationsInt16, []int64{0, 2}, 2, false, false},
	{"silu", false, packHalves, fp8, fp8, 256, 128, activationsFP8, []int64{1, 3}, 2, false, false},
	{"silu", true, packInterleaved, fp8, fp8, 128, 256, activationsFloat, []int64{23}, 2, true, true},
}

// qmoeExperts is the number of experts of a form.
const qmoeExperts = 4

func qmoeForms() []op.Form {
	var list []op.Form
	for _, f := range qmoeExamples {
		list = append(list, f.form())
	}
	return list
}

func (f qmoeForm) form() op.Form {
	gate := glu.GLU{Activation: f.activation, Alpha: 1, Limit: 0, UpOffset: 0}
	if f.clamped {
		gate = glu.GLU{Activation: f.activation, Alpha: 1.702, Limit: 0.5, UpOffset: 1}
	}
	attrs := QMoE{gate, f.packing, f.up.Code, f.up.Zero, f.up.Block, f.down.Code, f.down.Zero, f.down.Block, f.hidden,
		f.inner, f.activations}.Attributes()
	choices := append(append([]int64(nil), f.tokens...), f.k)
	dims := make([][]int64, len(qmoeInputs))
	dims[QMoEX] = append(append([]int64(nil), f.tokens...), f.hidden)
	dims[QMoEWeights], dims[QMoEIDs] = choices, choices
	for i, c := range []linear.QuantizedForm{f.up, f.down} {
		m := expertMatrices[i]
		shapes := append(linear.LinearWeights(nil, m.site(op.Site{Attributes: attrs})).Dims(c.Minus, c.Twofold), nil)
		if i == 0 && f.upBias || i == 1 && f.bias {
			shapes[5] = []int64{m.weights(op.Site{Attributes: attrs}).N}
		}
		for j, d := range shapes {
			if d != nil {
				dims[m.inputs[j]] = append([]int64{qmoeExperts}, d...)
			}
		}
	}
	for dims[len(dims)-1] == nil {
		dims = dims[:len(dims)-1]
	}
	return op.Form{Attributes: attrs, Dims: dims}
}
