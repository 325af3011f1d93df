// Package qmoe has QMoE, which is MoE with weights as package linear has them.
package qmoe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/linear"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op}

// QMoEGateUp and QMoEDown are the inputs for a matrix, in the order of Quantized.Tensors, and for its bias.
var (
	QMoEGateUp = [6]int{QMoEGateUpCodes, QMoEGateUpScale, QMoEGateUpMinus, QMoEGateUpSuperScale, QMoEGateUpSuperMinus,
		QMoEGateUpBias}
	QMoEDown = [6]int{QMoEDownCodes, QMoEDownScale, QMoEDownMinus, QMoEDownSuperScale, QMoEDownSuperMinus, QMoEDownBias}
)

func gateUpDims(s op.Shape) op.Shape { return expertDims(s, "gate_up", "P", "hidden") }
func downDims(s op.Shape) op.Shape   { return expertDims(s, "down", "Q", "inner") }

// expertDims returns the shape of an input of Linear with a dimension for experts.
func expertDims(s op.Shape, matrix, panels, columns string) op.Shape {
	return op.Shape(strings.NewReplacer("code:", matrix+"_code:", "P k", "E "+panels+" "+columns, "block",
		matrix+"_block").Replace(string(s)))
}

var qmoeInputs = []op.Param{
	moe.Inputs[moe.MoEX], moe.Inputs[moe.MoEWeights], moe.Inputs[moe.MoEIDs],
	{Name: "gate_up_codes", Type: "uint8", Dims: gateUpDims(linear.CodesDims), Doc: "for each expert as in Linear"},
	{Name: "gate_up_scale", Type: "S", Dims: gateUpDims(linear.ScaleDims)},
	{Name: "down_codes", Type: "uint8", Dims: downDims(linear.CodesDims)},
	{Name: "down_scale", Type: "D", Dims: downDims(linear.ScaleDims)},
	{Name: "gate_up_minus", Type: "S", Dims: gateUpDims(linear.ScaleDims), Optional: true},
	{Name: "down_minus", Type: "D", Dims: downDims(linear.ScaleDims), Optional: true},
	{Name: "gate_up_super_scale", Type: "float16", Dims: gateUpDims(linear.SuperDims), Optional: true},
	{Name: "down_super_scale", Type: "float16", Dims: downDims(linear.SuperDims), Optional: true},
	{Name: "gate_up_super_minus", Type: "float16", Dims: gateUpDims(linear.SuperDims), Optional: true},
	{Name: "down_super_minus", Type: "float16", Dims: downDims(linear.SuperDims), Optional: true},
	{Name: "gate_up_bias", Type: "float32", Dims: "E N", Optional: true},
	{Name: "down_bias", Type: "float32", Dims: "E hidden", Optional: true},
}

// Op is MoE with weights that stay quantized.
var Op = &op.Op{
	Name: "QMoE",
	Summary: "The experts of a mixture, as in MoE, with weights quantized in blocks of 4 or 8 bits, read as stored; " +
		"the definition includes the rounding of the activations.",
	Formula: []string{
		"Y is as in MoE, except for the products; in float32",
		"  h = linear(X[t]) + gate_up_bias[e];  y[j] = e = -1 ? 0 : weights[t, j] * (linear(a) + down_bias[e])",
		"linear is Linear in float32, without a bias, with the expert's codes, scale, minus and super_*,",
		"with n = 2 * inner and k = hidden (n = inner with packing=none) for gate_up_*, n = hidden and k = inner for " +
			"down_*,",
		"and the attribute activations: it rounds X[t], and a in the same way",
	},
	Source:  "as MoE and Linear; the experts of gpt-oss are stored in e2m1 (MXFP4)",
	Family:  quantizedMixtureFamily,
	Devices: []op.Device{op.CPU, op.CUDA},
	Partial: []op.Partial{{Device: op.CUDA, Attribute: "gate_up_code", Value: linear.CodeE4M3},
		{Device: op.CUDA, Attribute: "down_code", Value: linear.CodeE4M3}}, // as Linear
	Inputs:  qmoeInputs,
	Outputs: moe.Op.Outputs,
	Attributes: slices.Concat(moe.Op.Attributes[:5], quantizedOf("gate_up"), quantizedOf("down"), []op.AttributeSpec{
		{Name: "hidden", Type: onnx.AttrInt, Bounds: op.Multiples(linear.CodeBlock),
			Doc: "columns of X and of gate_up_*: a multiple of 32"},
		{Name: "inner", Type: onnx.AttrInt, Bounds: op.Multiples(linear.CodeBlock),
			Doc: "columns of the activated values and of down_*: a multiple of 32"},
		linear.Op.Attributes[len(linear.Op.Attributes)-1],
	}),
	Rules: slices.Concat(moe.GateRules, linear.QuantizedRules("gate_up_", "hidden"),
		linear.QuantizedRules("down_", "inner"),
		linear.ActivationRules("gate_up_code"), linear.ActivationRules("down_code")),
	Types:     qmoeTypes(),
	Variables: moe.Op.Variables,
	Check:     qmoeSupports,
	Let:       map[string]op.Shape{"H": "hidden", "N": "packing: 2*inner | 2*inner | inner", "P": "N/16", "Q": "hidden/16"},
	Where:     moe.Op.Where[:2],
	AllForms:  qmoeForms,
	Variant: func(s op.Site) string {
		name := glu.Overload(s) + "_" + op.Read[QMoE](s.Attributes).Packing + "_" +
			op.Read[QMoE](s.Attributes).Activations
		for _, m := range expertMatrices {
			l := m.site(s)
			name += "_" + m.name + "_" + linear.LinearWeights(nil, l).Overload() +
				op.IfGiven(l, linear.LinearBias, "_bias")
		}
		return name
	},
	Differ: func(s op.Site) float64 {
		return map[string]float64{activationsInt16: 1.0 / 4096, activationsInt8: 1.0 / 32,
			activationsFP8: 1.0 / 8}[op.Read[QMoE](s.Attributes).Activations]
	},
	Wide: func(op.FormMaker) (list []op.Form) {
		for _, size := range [][2]int64{{op.WideHidden, 32}, {32, op.WideInner}} {
			f := qmoeForm{"silu", false, packHalves, q40, q80, size[0], size[1], activationsFloat, []int64{3}, 2, false,
				false}
			list = append(list, f.form())
			f.activations = activationsInt16
			list = append(list, f.form())
		}
		return list
	},
	Body: qmoeBody,
}

var quantizedMixtureFamily = &op.Family{Name: "qmoe", Summary: "experts whose weights stay quantized", Stored: true}

// quantizedOf returns the attributes that describe how a matrix is stored.
func quantizedOf(matrix string) []op.AttributeSpec {
	list := slices.Clone(linear.QuantizedAttributes[:3])
	for i := range list {
		list[i].Name, list[i].Grid = matrix+"_"+list[i].Name, nil
	}
	return list
}

func qmoeTypes() []op.Combination {
	var list []op.Combination
	for _, c := range op.Independent("T", "W") {
		if w := c.Types["W"]; w != op.F32 && w != c.Types["T"] {
			continue
		}
		for _, up := range linear.ScaleTypes(c) {
			for _, down := range linear.ScaleTypes(op.Combination{}) {
				list = append(list, up.With("D", down.Types["S"]))
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
func (m expertMatrix) weights(s op.Site) linear.Embedding {
	a := op.Read[QMoE](s.Attributes)
	switch {
	case m.name == "down":
		return linear.Embedding{Code: a.DownCode, Zero: a.DownZero, Block: a.DownBlock, N: a.Hidden, K: a.Inner}
	case a.Packing == packNone:
		return linear.Embedding{Code: a.GateUpCode, Zero: a.GateUpZero, Block: a.GateUpBlock, N: a.Inner, K: a.Hidden}
	}
	return linear.Embedding{Code: a.GateUpCode, Zero: a.GateUpZero, Block: a.GateUpBlock, N: 2 * a.Inner, K: a.Hidden}
}

// site returns the site of the Linear that computes one expert's product.
func (m expertMatrix) site(s op.Site) op.Site {
	l := op.Site{Attributes: linear.Linear{Embedding: m.weights(s),
		Activations: op.Read[QMoE](s.Attributes).Activations}.Attributes(),
		Types: []onnx.DataType{op.F32}, Dims: [][]int64{nil}, Opset: s.Opset}
	for _, i := range m.inputs {
		t, dims := onnx.Undefined, s.Shape(i)
		if s.Has(i) {
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
func (m expertMatrix) linear(b *op.Body, s op.Site, known map[string]*onnx.Value, x *onnx.Value,
	w map[int]*onnx.Value) *onnx.Value {
	c := *b
	c.Known, c.In = known, []*onnx.Value{x}
	for _, i := range m.inputs {
		c.In = append(c.In, w[i])
	}
	return linear.Product(&c, m.site(s), x)
}

// QMoEAttributes returns the attributes of the QMoE that replaces a MoE with the given attributes.
func QMoEAttributes(attributes []*onnx.Attribute, gateUp, down *linear.Quantized,
	activations string) []*onnx.Attribute {
	m := op.Read[moe.MoE](attributes)
	return QMoE{GLU: m.GLU, Packing: m.Packing, GateUpCode: gateUp.Code, GateUpZero: gateUp.Zero,
		GateUpBlock: gateUp.Block, DownCode: down.Code, DownZero: down.Zero, DownBlock: down.Block, Hidden: gateUp.K,
		Inner: down.K, Activations: activations}.Attributes()
}

func qmoeSupports(s op.Site) error {
	for _, m := range expertMatrices {
		if err := linear.LinearWeights(nil, m.site(s)).Check("Linear"); err != nil {
			return fmt.Errorf("mojo.QMoE: the weights %s: %w", m.name, err)
		}
	}
	return nil
}

func qmoeBody(b *op.Body, s op.Site) []*onnx.Value {
	known := map[string]map[string]*onnx.Value{}
	hidden, inner := b.IntAttribute("hidden"), b.IntAttribute("inner")
	for _, m := range expertMatrices {
		k := map[string]*onnx.Value{"n": hidden, "k": inner}
		if m.name == "gate_up" {
			k["n"], k["k"] = inner, hidden
			if op.Read[QMoE](s.Attributes).Packing != packNone {
				k["n"] = b.Call("packed", "Add", inner, inner)
			}
		}
		for _, name := range []string{"zero", "block"} {
			k[name] = b.IntAttribute(m.name + "_" + name)
		}
		known[m.name] = k
	}
	return moe.Mixture(b, s, func(b *op.Body, x *onnx.Value, w map[int]*onnx.Value) *onnx.Value {
		up, down := expertMatrices[0], expertMatrices[1]
		h := up.linear(b, s, known[up.name], x, w)
		return down.linear(b, s, known[down.name], moe.Between(b, s, h), w)
	})
}
