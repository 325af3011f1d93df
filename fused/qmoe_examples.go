package fused

// qmoeForm is a use of QMoE with four experts. In up and down, n and k are not set.
type qmoeForm struct {
	activation    string
	clamped       bool // as in gpt-oss
	packing       string
	up, down      quantizedForm
	hidden, inner int64
	activations   string
	tokens        []int64
	k             int64
	upBias, bias  bool
}

var (
	q40   = quantizedForm{code: codeInt4, zero: 8, block: 32}
	q41   = quantizedForm{code: codeInt4, block: 32, minus: true}
	q4K   = quantizedForm{code: codeInt4, block: 32, minus: true, twofold: true}
	q80   = quantizedForm{code: codeInt8, zero: 128, block: 32}
	q51   = quantizedForm{code: codeInt8, zero: 112, block: 32, minus: true}
	q6K   = quantizedForm{code: codeInt8, zero: 128, block: 16, twofold: true}
	mxfp4 = quantizedForm{code: codeE2M1, block: 32}
	fp8   = quantizedForm{code: codeE4M3, block: 128}
)

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

func qmoeForms() []Form {
	var list []Form
	for _, f := range qmoeExamples {
		list = append(list, f.form())
	}
	return list
}

func (f qmoeForm) form() Form {
	gate := GLU{f.activation, 1, 0, 0}
	if f.clamped {
		gate = GLU{f.activation, 1.702, 0.5, 1}
	}
	attrs := QMoE{gate, f.packing, f.up.code, f.up.zero, f.up.block, f.down.code, f.down.zero, f.down.block, f.hidden,
		f.inner, f.activations}.Attributes()
	choices := append(append([]int64(nil), f.tokens...), f.k)
	dims := make([][]int64, len(qmoeInputs))
	dims[QMoEX] = append(append([]int64(nil), f.tokens...), f.hidden)
	dims[QMoEWeights], dims[QMoEIDs] = choices, choices
	for i, c := range []quantizedForm{f.up, f.down} {
		m := expertMatrices[i]
		shapes := append(linearWeights(nil, m.site(Site{Attributes: attrs})).dims(c.minus, c.twofold), nil)
		if i == 0 && f.upBias || i == 1 && f.bias {
			shapes[5] = []int64{m.weights(Site{Attributes: attrs}).N}
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
	return Form{attrs, dims}
}
