package quantized

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// The inputs of com.microsoft's QMoE. Each matrix has elements, scales, bias and zero points.
const (
	microsoftLogits  = 1
	microsoftWeights = 14 // weights of the experts instead of the softmax of the logits
)

var microsoftMatrices = map[string][4]int{"fc1": {2, 3, 4, 11}, "fc2": {5, 6, 7, 12}, "fc3": {8, 9, 10, 13}}

// microsoftMixture is onnxruntime's QMoE: a router and experts with quantized weights.
type microsoftMixture struct {
	node         *onnx.Node
	gateUp, down *otherRows
	experts      int64
	attributes   []*onnx.Attribute // of mojo.MoE
	inner        int64             // rows of gate and of up if they are two matrices
	typ          onnx.DataType     // of the tokens
}

func isMicrosoftMixture(n *onnx.Node) bool { return n.Domain == onnx.Microsoft && n.OpType == "QMoE" }

// microsoftMixtureOf reads a QMoE. It returns an error if mojo.TopKRouter and mojo.QMoE cannot compute it.
func microsoftMixtureOf(n *onnx.Node, typ onnx.DataType) (*microsoftMixture, error) {
	x := &microsoftMixture{node: n, typ: typ}
	fusion := n.AttrInt("swiglu_fusion", 0)
	switch {
	case typ != onnx.Float && typ != onnx.Float16 && typ != onnx.BFloat16:
		return nil, fmt.Errorf("its tokens are %s", typ)
	case n.AttrString("quant_type", "int") != "int":
		return nil, fmt.Errorf("its experts are quantized as %s", n.AttrString("quant_type", ""))
	case n.AttrInt("use_sparse_mixer", 0) != 0:
		return nil, errors.New("its router is the sparse mixer")
	case n.AttrInt("normalize_routing_weights", 0) == 0 && n.Input(microsoftWeights) == nil:
		return nil, errors.New("normalize_routing_weights is 0: onnxruntime's CPU provider normalizes anyway, " +
			"CUDA's does not")
	case n.AttrInt("weights_prepacked", -1) > 0 || typ != onnx.Float && n.AttrInt("weights_prepacked", -1) != 0:
		return nil, errors.New("its weights may be prepacked for a device's kernels (weights_prepacked is not 0)")
	}
	activation, alpha, offset, limit, packing := "", float32(1), float32(0), float32(0), "none"
	switch kind := n.AttrString("activation_type", "relu"); kind {
	case "relu", "silu":
		activation = kind
	case "gelu":
		activation = "gelu_tanh"
	case "swiglu":
		activation, alpha, offset = "silu", n.AttrFloat("activation_alpha", 1), n.AttrFloat("activation_beta", 0)
		if limit = n.AttrFloat("swiglu_limit", float32(math.Inf(1))); math.IsInf(float64(limit), 1) {
			limit = 0
		} else if !(limit > 0) {
			return nil, fmt.Errorf("its limit is %v", limit)
		}
		switch {
		case fusion == 1:
			packing = "interleaved"
		case fusion == 2, fusion == 0 && n.Input(microsoftMatrices["fc3"][0]) != nil:
			packing = "halves"
		default:
			return nil, fmt.Errorf("its swiglu_fusion is %d", fusion)
		}
	default:
		return nil, fmt.Errorf("its activation is %q", kind)
	}
	matrices := map[string]*others{}
	for _, name := range []string{"fc1", "fc2", "fc3"} {
		if name == "fc3" && n.Input(microsoftMatrices[name][0]) == nil {
			continue
		}
		m, count, err := microsoftMatrix(n, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if x.experts == 0 {
			x.experts = count
		}
		if count != x.experts {
			return nil, fmt.Errorf("%s has %d experts instead of %d", name, count, x.experts)
		}
		matrices[name] = m
	}
	fc1, fc2, fc3 := matrices["fc1"], matrices["fc2"], matrices["fc3"]
	if fc3 != nil && (packing != "halves" || fusion != 0 || !fc1.alike(fc3) || fc1.n != fc3.n) {
		return nil, errors.New("its matrices of gate and up do not fit together")
	}
	rows := fc1.n / x.experts
	x.gateUp = &otherRows{name: fc1.name, experts: x.experts, n: fc1.n, list: []*others{fc1}}
	if fc3 != nil {
		x.inner = rows
		x.gateUp.list, x.gateUp.n = append(x.gateUp.list, fc3), 2*fc1.n
		x.gateUp.at = func(i int64) (int, int64) {
			return int(i / rows % 2), i/(2*rows)*rows + i%rows
		}
	}
	x.down = &otherRows{name: fc2.name, experts: x.experts, n: fc2.n, list: []*others{fc2}}
	parts := int64(2)
	if packing == "none" {
		parts = 1
	}
	if x.gateUp.n != parts*fc2.k*x.experts || fc1.k*x.experts != fc2.n {
		return nil, fmt.Errorf("its matrices of [%d, %d] and [%d, %d] do not fit together", x.gateUp.n/x.experts, fc1.k,
			fc2.n/x.experts, fc2.k)
	}
	x.attributes = fused.MoE{GLU: fused.GLU{Activation: activation, Alpha: alpha, Limit: limit, UpOffset: offset},
		Packing: packing, GateUpLayout: "out_in", DownLayout: "out_in"}.Attributes()
	return x, nil
}

// microsoftMatrix returns the concatenated matrices of all experts.
func microsoftMatrix(n *onnx.Node, name string) (x *others, experts int64, err error) {
	at := microsoftMatrices[name]
	codes := n.Input(at[0])
	if !codes.IsConstant() || codes.Const.DataType != onnx.Uint8 || len(codes.Const.Dims) != 3 ||
		codes.Const.Len() == 0 {
		return nil, 0, errors.New("its elements are not constant bytes of experts' matrices")
	}
	d := codes.Const.Dims
	x = &others{name: codes.Name, codes: codes.Const, n: d[0] * d[1],
		bits: int(n.AttrInt(name+"_expert_weight_bits", n.AttrInt("expert_weight_bits", 4)))}
	if x.bits != 2 && x.bits != 4 && x.bits != 8 {
		return nil, 0, fmt.Errorf("its elements have %d bits", x.bits)
	}
	x.k = d[2] * 8 / int64(x.bits)
	if x.block = n.AttrInt("block_size", 0); x.block <= 0 {
		x.block = x.k
	}
	if x.k%x.block != 0 {
		return nil, 0, fmt.Errorf("row length %d is not a multiple of its block size %d", x.k, x.block)
	}
	if err := x.rows(n.Input(at[1]), n.Input(at[3])); err != nil {
		return nil, 0, err
	}
	if z := x.zeros; z != nil && len(z.Dims) == 2 && x.bits < 8 {
		return nil, 0, errors.New("zero points of rows share bytes")
	}
	return x, d[0], x.fits()
}

// place inserts a router and mojo.MoE, with float weights, before the node, and makes all readers read their result. It
// adds the definition of the router to the model.
func (x *microsoftMixture) place(e *edit.Editor) (moe *onnx.Node, err error) {
	m, c := e.Model, new(edit.Change)
	var made []*onnx.Node
	n, g := x.node, x.node.Graph
	add := func(node *onnx.Node, suffix string, outputs ...*onnx.Value) {
		node.Name = n.Label() + suffix
		node.Metadata = append(slices.Clone(n.Metadata), e.Origin(rule, n)...)
		for i, v := range outputs {
			c.TakeOutput(node, i, v)
		}
		made = append(made, node)
	}
	value := func(suffix string, t onnx.DataType) *onnx.Value {
		v := g.NewValue(n.Outputs[0].Name + suffix)
		v.SetType(onnx.Type{DataType: t})
		return v
	}
	k := n.AttrInt("k", 1)
	normalize := n.AttrInt("normalize_routing_weights", 0)
	own := n.Input(microsoftWeights)
	routes := fused.TopKRouter{TopK: k, Score: "softmax", Order: "score_first", Groups: 1, GroupTopK: 1,
		GroupScore: "max", ExcludedScore: float32(math.Inf(-1)), Renormalize: true, Scale: 1}
	router := c.NewNode(g, routes.OpType(), []*onnx.Value{n.Input(microsoftLogits)}, nil, routes.Attributes()...)
	router.Domain = fused.Domain
	weights, ids := value("_weights", onnx.Float), value("_ids", onnx.Int64)
	add(router, "_TopKRouter", weights, ids)
	f, err := fused.Lookup(fused.TopKRouterName).Function(fused.Site{Attributes: router.Attributes, Opset: m.Opset(""),
		Types: []onnx.DataType{x.typ}, Dims: [][]int64{{-1, x.experts}}})
	if err != nil {
		return nil, err
	}
	router.Overload = f.Overload
	c.AddFunction(m, f)
	if own != nil {
		wide := value("_all_weights", onnx.Float)
		add(c.NewNode(g, "Cast", []*onnx.Value{own}, nil, onnx.IntAttr("to", int64(onnx.Float))), "_Cast", wide)
		weights = value("_own_weights", onnx.Float)
		add(c.NewNode(g, "GatherElements", []*onnx.Value{wide, ids}, nil, onnx.IntAttr("axis", -1)),
			"_GatherElements", weights)
		if normalize != 0 {
			sum, last := value("_sum", onnx.Float), c.AddInitializer(g, onnx.NewInt64s("last", []int64{-1}))
			add(c.NewNode(g, "ReduceSum", []*onnx.Value{weights, last}, nil), "_ReduceSum", sum)
			share := value("_shares", onnx.Float)
			add(c.NewNode(g, "Div", []*onnx.Value{weights, sum}, nil), "_Div", share)
			weights = share
		}
	}
	inputs := []*onnx.Value{n.Input(0), weights, ids, nil, nil, nil, nil}
	for i, rows := range []*otherRows{x.gateUp, x.down} {
		t, err := rows.floats(x.typ)
		if err != nil {
			return nil, err
		}
		inputs[fused.MoEGateUp+i] = c.AddInitializer(m.Graph, t)
	}
	up, down := n.Input(microsoftMatrices["fc1"][2]), n.Input(microsoftMatrices["fc2"][2])
	if other := n.Input(microsoftMatrices["fc3"][2]); x.inner > 0 && (up != nil || other != nil) {
		if up == nil || other == nil {
			return nil, errors.New("only one of its matrices of gate and up has a bias")
		}
		both := value("_bias", x.typ)
		add(c.NewNode(g, "Concat", []*onnx.Value{up, other}, nil, onnx.IntAttr("axis", 1)), "_Concat", both)
		up = both
	}
	inputs[fused.MoEGateUpBias], inputs[fused.MoEDownBias] = up, down
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	moe = c.NewNode(g, fused.MoEName, inputs, nil, x.attributes...)
	moe.Domain = fused.Domain
	add(moe, "", n.Outputs[0])
	moe.Name = n.Label()
	c.Insert(n, made...)
	c.ImportOpset(m, nil, fused.Domain, fused.Version)
	c.Drop(n)
	return moe, c.Finish()
}

// floats returns the matrices of all experts, [E, out, in]. Elements are computed on demand.
func (o *otherRows) floats(typ onnx.DataType) (*onnx.Tensor, error) {
	k, n := o.list[0].k, o.n/o.experts
	var all *openedRows
	return onnx.NewComputed(o.name+"_floats", typ, []int64{o.experts, n, k}, func(dst []byte, first int64) error {
		if all == nil {
			opened, err := o.open()
			if err != nil {
				return err
			}
			all = opened
		}
		values := make([]float64, len(dst)*8/typ.Bits())
		for i := range values {
			m, row := all.row((first + int64(i)) / k)
			values[i] = float64(m.value(row, (first+int64(i))%k))
		}
		return putFloats(dst, typ, values)
	})
}

// putFloats writes numbers in a type, rounded to nearest even.
func putFloats(dst []byte, typ onnx.DataType, values []float64) error {
	made, err := reference.NewFloats(typ, []int{len(values)}, values).ToONNX("floats")
	if err != nil {
		return err
	}
	b, err := made.Bytes()
	copy(dst, b)
	return err
}

// weight returns the quantized form of the experts that mojo.MoE reads as v.
func (o *otherRows) weight(v *onnx.Value) (w *Weight, err error) {
	w = &Weight{Value: v, Sample: o.sample}
	w.Matrix, err = o.quantized(o.n, o.experts, nil)
	return w, err
}

// takeMixtures replaces onnxruntime's QMoE by mojo's router and experts, after a check: of the nodes against the op in
// the evaluator, and of mojo.QMoE as for any experts.
func (a *View) takeMixtures(r *ProductsReport) (weights []*Weight, err error) {
	var kinds prove.Prover
	for _, s := range a.Scopes() {
		for _, n := range slices.Clone(s.Graph.Nodes) {
			if !isMicrosoftMixture(n) {
				continue
			}
			open := func(err error) { r.Open["com.microsoft.QMoE: "+err.Error()]++ }
			if s.Function != nil {
				open(errors.New("it is in the body of a function"))
				continue
			}
			x, err := microsoftMixtureOf(n, a.Facts.DataType(n.Input(0)))
			if err != nil {
				open(err)
				continue
			}
			key := onnx.AttributesKey(n.Attributes) + fmt.Sprint(x.typ, x.gateUp.list[0].k, x.down.list[0].k)
			for _, in := range n.Inputs {
				key += fmt.Sprint(" ", in != nil)
			}
			if err := kinds.Once(key, func() error { return a.tryMicrosoftMixture(x) }); err != nil {
				open(err)
				continue
			}
			moe, err := x.place(&a.Editor)
			if err != nil {
				return nil, fmt.Errorf("node %q (com.microsoft.QMoE): %w", n.Label(), err)
			}
			for i, rows := range []*otherRows{x.gateUp, x.down} {
				w, err := rows.weight(moe.Input(fused.MoEGateUp + i))
				if err != nil {
					return nil, err
				}
				weights = append(weights, w)
			}
			r.Emits["mojo.QMoE instead of com.microsoft.QMoE"]++
		}
	}
	return weights, nil
}

// tryMicrosoftMixture compares a QMoE of the first experts, cut to a few rows and columns, with its replacement.
func (a *View) tryMicrosoftMixture(x *microsoftMixture) error {
	const tokens = 5
	small := func() (*onnx.Model, *microsoftMixture, error) {
		m := onnx.New(a.Model.IRVersion, a.Model.Opset(""))
		m.ImportOpset(onnx.Microsoft, 1)
		n, err := x.cut(m, tokens)
		if err != nil {
			return nil, nil, err
		}
		cut, err := microsoftMixtureOf(n, x.typ)
		return m, cut, err
	}
	before, _, err := small()
	if err != nil {
		return err
	}
	after, made, err := small()
	if err != nil {
		return err
	}
	moe, err := made.place(&edit.Editor{Model: after, Version: a.Version})
	if err != nil {
		return err
	}
	site := siteOf(moe, x.typ, after.Opset(""))
	f, err := fused.Lookup(fused.MoEName).Function(site)
	if err != nil {
		return err
	}
	moe.Overload = f.Overload
	after.Functions = append(after.Functions, f)
	err = new(prove.Prover).Prove(&prove.Claim{What: "mojo.MoE instead of QMoE", Before: prove.Model(before),
		After: prove.Model(after), Exact: ofExperts,
		Trials: sizedTrials(before.Graph.Inputs, []float64{1, 64, 0x1p-10},
			func(r *rand.Rand, v *onnx.Value, size float64) *reference.Tensor {
				t, _ := v.Type()
				dims := []int{int(t.Dims[0].Value), int(t.Dims[1].Value)}
				values := make([]float64, dims[0]*dims[1])
				for i := range values {
					switch v.Name {
					case "x":
						values[i] = prove.RoundTo(t.DataType, size*r.NormFloat64())
					case "router_weights":
						values[i] = prove.RoundTo(t.DataType, 0.1+r.Float64())
					default:
						values[i] = prove.RoundTo(t.DataType, 3*r.NormFloat64())
					}
				}
				return reference.NewFloats(t.DataType, dims, values)
			})})
	if err != nil {
		return reason.New(reason.Differs, nil, "%w", err)
	}
	q := newQuantizer(a.Run, nil, a.activations)
	up, err := x.gateUp.weight(nil)
	if err != nil {
		return err
	}
	down, err := x.down.weight(nil)
	if err != nil {
		return err
	}
	return q.tryMixture(up, down, reader{node: moe, typ: x.typ})
}

// cut adds to a model a QMoE with this number of tokens and the first experts, each matrix cut to a few rows and
// columns.
func (x *microsoftMixture) cut(m *onnx.Model, tokens int64) (*onnx.Node, error) {
	experts := min(3, x.experts)
	hidden, inner := x.gateUp.list[0].k, x.down.list[0].k
	width := func(k, block int64) int64 {
		if block == k { // one scale per row
			return min(k, 64)
		}
		return min(k, max(64, block))
	}
	h, i := width(hidden, x.gateUp.list[0].block), width(inner, x.down.list[0].block)
	rows := map[string]int64{"fc1": x.gateUp.list[0].n / x.experts / inner * i, "fc2": h, "fc3": i}
	wholeRows := map[string]int64{"fc1": x.gateUp.list[0].n / x.experts, "fc2": hidden, "fc3": inner}
	columns := map[string]int64{"fc1": h, "fc2": i, "fc3": h}
	whole := map[string]int64{"fc1": hidden, "fc2": inner, "fc3": hidden}
	matrices := map[string]*others{"fc1": x.gateUp.list[0], "fc2": x.down.list[0], "fc3": x.gateUp.list[0]}
	inputs := make([]*onnx.Value, len(x.node.Inputs))
	input := func(name string, last int64) *onnx.Value {
		return m.Graph.AddInput(name, onnx.Type{DataType: x.typ, HasShape: true,
			Dims: []onnx.Dim{{Value: tokens}, {Value: last}}})
	}
	inputs[0], inputs[microsoftLogits] = input("x", h), input("logits", experts)
	if len(inputs) > microsoftWeights && x.node.Input(microsoftWeights) != nil {
		inputs[microsoftWeights] = input("router_weights", experts)
	}
	for name, at := range microsoftMatrices {
		for _, place := range at {
			t := x.node.Input(place).Constant()
			if t == nil {
				if x.node.Input(place) != nil {
					return nil, fmt.Errorf("%q is computed", x.node.Input(place).Name)
				}
				continue
			}
			dims := slices.Clone(t.Dims)
			if len(dims) < 2 {
				return nil, fmt.Errorf("%q is %v", t.Name, dims)
			}
			dims[0], dims[1] = experts, dims[1]*rows[name]/wholeRows[name]
			if len(dims) == 3 {
				dims[2] = max(1, dims[2]*columns[name]/whole[name])
			}
			if m := matrices[name]; len(dims) == 3 && place == at[3] && !t.DataType.IsFloat() { // packed
				dims[2] = (columns[name]/m.block*int64(m.bits) + 7) / 8
			}
			part, err := t.View(t.Name, dims, 0, onnx.RowMajor(t.Dims))
			if err != nil {
				return nil, err
			}
			inputs[place] = m.Graph.AddInitializer(part)
		}
	}
	y := m.Graph.NewValue("y")
	n := m.Graph.AddNode(fused.QMoEName, inputs, []*onnx.Value{y}, slices.Clone(x.node.Attributes)...)
	n.Domain = onnx.Microsoft
	n.SetAttr(onnx.IntAttr("k", min(x.node.AttrInt("k", 1), experts)))
	m.Graph.AddOutput(y)
	return n, nil
}
