package fused

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// QMoEGateUp and QMoEDown are the inputs for a matrix, in the order of Quantized.Tensors, and for its bias.
var (
	QMoEGateUp = [6]int{QMoEGateUpCodes, QMoEGateUpScale, QMoEGateUpMinus, QMoEGateUpSuperScale, QMoEGateUpSuperMinus,
		QMoEGateUpBias}
	QMoEDown = [6]int{QMoEDownCodes, QMoEDownScale, QMoEDownMinus, QMoEDownSuperScale, QMoEDownSuperMinus, QMoEDownBias}
)

func gateUpDims(s Shape) Shape { return expertDims(s, "gate_up", "P", "hidden") }
func downDims(s Shape) Shape   { return expertDims(s, "down", "Q", "inner") }

// expertDims returns the shape of an input of Linear with a dimension for experts.
func expertDims(s Shape, matrix, panels, columns string) Shape {
	return Shape(strings.NewReplacer("code:", matrix+"_code:", "P k", "E "+panels+" "+columns, "block",
		matrix+"_block").Replace(string(s)))
}

var qmoeInputs = []Param{
	moeInputs[MoEX], moeInputs[MoEWeights], moeInputs[MoEIDs],
	{Name: "gate_up_codes", Type: "uint8", Dims: gateUpDims(codesDims), Doc: "for each expert as in Linear"},
	{Name: "gate_up_scale", Type: "S", Dims: gateUpDims(scaleDims)},
	{Name: "down_codes", Type: "uint8", Dims: downDims(codesDims)},
	{Name: "down_scale", Type: "D", Dims: downDims(scaleDims)},
	{Name: "gate_up_minus", Type: "S", Dims: gateUpDims(scaleDims), Optional: true},
	{Name: "down_minus", Type: "D", Dims: downDims(scaleDims), Optional: true},
	{Name: "gate_up_super_scale", Type: "float16", Dims: gateUpDims(superDims), Optional: true},
	{Name: "down_super_scale", Type: "float16", Dims: downDims(superDims), Optional: true},
	{Name: "gate_up_super_minus", Type: "float16", Dims: gateUpDims(superDims), Optional: true},
	{Name: "down_super_minus", Type: "float16", Dims: downDims(superDims), Optional: true},
	{Name: "gate_up_bias", Type: "float32", Dims: "E N", Optional: true},
	{Name: "down_bias", Type: "float32", Dims: "E hidden", Optional: true},
}

// qmoe is MoE with weights that stay quantized.
var qmoe = &Op{
	Name: "QMoE",
	Summary: "The experts of a mixture, as in MoE, with weights quantized in blocks of 4 or 8 bits, read as stored; " +
		"the definition includes the rounding of the activations.",
	Formula: []string{
		"Y is as in MoE, except for the products; in float32",
		"  h = linear(X[t]) + gate_up_bias[e];  y[j] = weights[t, j] * (linear(a) + down_bias[e])",
		"linear is Linear in float32, without a bias, with the expert's codes, scale, minus and super_*,",
		"with n = 2 * inner and k = hidden (n = inner with packing=none) for gate_up_*, n = hidden and k = inner for " +
			"down_*,",
		"and the attribute activations: it rounds X[t], and a in the same way",
	},
	Source:  "as MoE and Linear; the experts of gpt-oss are stored in e2m1 (MXFP4)",
	Family:  quantizedMixtureFamily,
	Devices: []Device{CPU, CUDA},
	Partial: []Partial{{CUDA, "gate_up_code", codeE4M3}, {CUDA, "down_code", codeE4M3}}, // as Linear
	Inputs:  qmoeInputs,
	Outputs: moe.Outputs,
	Attributes: slices.Concat(moe.Attributes[:5], quantizedOf("gate_up"), quantizedOf("down"), []AttributeSpec{
		{Name: "hidden", Type: onnx.AttrInt, Bounds: size(codeBlock),
			Doc: "columns of X and of gate_up_*: a multiple of 32"},
		{Name: "inner", Type: onnx.AttrInt, Bounds: size(codeBlock),
			Doc: "columns of the activated values and of down_*: a multiple of 32"},
		linear.Attributes[len(linear.Attributes)-1],
	}),
	Rules: slices.Concat(gateRules, quantizedRules("gate_up_", "hidden"), quantizedRules("down_", "inner"),
		activationRules("gate_up_code"), activationRules("down_code")),
	Types:     qmoeTypes(),
	Variables: moe.Variables,
	check:     qmoeSupports,
	Let:       map[string]Shape{"H": "hidden", "N": "packing: 2*inner | 2*inner | inner", "P": "N/16", "Q": "hidden/16"},
	Where:     moe.Where[:2],
	forms:     qmoeForms,
	overload: func(s Site) string {
		name := gateOverload(s) + "_" + Read[QMoE](s.Attributes).Packing + "_" + Read[QMoE](s.Attributes).Activations
		for _, m := range expertMatrices {
			linear := m.site(s)
			name += "_" + m.name + "_" + linearWeights(nil, linear).overload() + named(linear, LinearBias, "_bias")
		}
		return name
	},
	open: func(s Site) float64 {
		return map[string]float64{activationsInt16: 1.0 / 4096, activationsInt8: 1.0 / 32,
			activationsFP8: 1.0 / 8}[Read[QMoE](s.Attributes).Activations]
	},
	define: qmoeBody,
}

var quantizedMixtureFamily = &Family{Name: "qmoe", Summary: "experts whose weights stay quantized", Stored: true}

// quantizedOf returns the attributes that describe how a matrix is stored.
func quantizedOf(matrix string) []AttributeSpec {
	list := slices.Clone(quantizedAttributes[:3])
	for i := range list {
		list[i].Name, list[i].Grid = matrix+"_"+list[i].Name, nil
	}
	return list
}

func qmoeTypes() []Combination {
	var list []Combination
	for _, c := range independent("T", "W") {
		if w := c.Types["W"]; w != f32 && w != c.Types["T"] {
			continue
		}
		for _, up := range scaleTypes(c) {
			for _, down := range scaleTypes(Combination{}) {
				list = append(list, up.with("D", down.Types["S"]))
			}
		}
	}
	return list
}

// expertMatrix is one of the two matrices of an expert: the weights of a Linear.
type expertMatrix struct {
	name   string
	inputs [6]int
}

var expertMatrices = []expertMatrix{{"gate_up", QMoEGateUp}, {"down", QMoEDown}}

// weights describes the matrix as Linear does.
func (m expertMatrix) weights(s Site) Embedding {
	a := Read[QMoE](s.Attributes)
	switch {
	case m.name == "down":
		return Embedding{a.DownCode, a.DownZero, a.DownBlock, a.Hidden, a.Inner}
	case a.Packing == packNone:
		return Embedding{a.GateUpCode, a.GateUpZero, a.GateUpBlock, a.Inner, a.Hidden}
	}
	return Embedding{a.GateUpCode, a.GateUpZero, a.GateUpBlock, 2 * a.Inner, a.Hidden}
}

// site returns the site of the Linear that computes one expert's product.
func (m expertMatrix) site(s Site) Site {
	l := Site{Attributes: Linear{m.weights(s), Read[QMoE](s.Attributes).Activations}.Attributes(),
		Types: []onnx.DataType{f32}, Dims: [][]int64{nil}, Opset: s.Opset}
	for _, i := range m.inputs {
		t, dims := onnx.Undefined, s.dims(i)
		if s.has(i) {
			t = s.Types[i]
		}
		if len(dims) > 0 {
			dims = dims[1:]
		}
		l.Types, l.Dims = append(l.Types, t), append(l.Dims, dims)
	}
	return l
}

// linear computes the product of an expert with the tensors w.
func (m expertMatrix) linear(b *body, s Site, known map[string]*onnx.Value, x *onnx.Value,
	w map[int]*onnx.Value) *onnx.Value {
	c := *b
	c.known, c.in = known, []*onnx.Value{x}
	for _, i := range m.inputs {
		c.in = append(c.in, w[i])
	}
	return c.linear(m.site(s), x)
}

// QMoEAttributes returns the attributes of the QMoE that replaces a MoE with the given attributes.
func QMoEAttributes(attributes []*onnx.Attribute, gateUp, down *Quantized, activations string) []*onnx.Attribute {
	m := Read[MoE](attributes)
	return QMoE{GLU: m.GLU, Packing: m.Packing, GateUpCode: gateUp.Code, GateUpZero: gateUp.Zero,
		GateUpBlock: gateUp.Block, DownCode: down.Code, DownZero: down.Zero, DownBlock: down.Block, Hidden: gateUp.K,
		Inner: down.K, Activations: activations}.Attributes()
}

func qmoeSupports(s Site) error {
	for _, m := range expertMatrices {
		if err := linearWeights(nil, m.site(s)).check("Linear"); err != nil {
			return fmt.Errorf("mojo.QMoE: the weights %s: %w", m.name, err)
		}
	}
	return nil
}

func qmoeBody(b *body, s Site) []*onnx.Value {
	known := map[string]map[string]*onnx.Value{}
	hidden, inner := b.intAttribute("hidden"), b.intAttribute("inner")
	for _, m := range expertMatrices {
		k := map[string]*onnx.Value{"n": hidden, "k": inner}
		if m.name == "gate_up" {
			k["n"], k["k"] = inner, hidden
			if Read[QMoE](s.Attributes).Packing != packNone {
				k["n"] = b.call("packed", "Add", inner, inner)
			}
		}
		for _, name := range []string{"zero", "block"} {
			k[name] = b.intAttribute(m.name + "_" + name)
		}
		known[m.name] = k
	}
	return b.mixture(s, func(b *body, x *onnx.Value, w map[int]*onnx.Value) *onnx.Value {
		up, down := expertMatrices[0], expertMatrices[1]
		h := up.linear(b, s, known[up.name], x, w)
		return down.linear(b, s, known[down.name], b.between(s, h), w)
	})
}
