package target

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// ortQMoE writes com.microsoft's QMoE, in float32. It passes the choice as 1 for each chosen expert, and the weights
// separately, so that any router of distinct experts with nonnegative weights works: onnxruntime leaves out experts
// with negative weights.
//
// Its experts have no offsets. With 8-bit weights, its kernels round activations to 8 bits at every accuracy level.
func ortQMoE(c *Call) error {
	if (c.Products == nil || !c.Products.Distinct) && !c.fromRouter() {
		return errors.New("QMoE takes distinct experts that count with numbers from 0 on, and these come from no " +
			fused.TopKRouterName)
	}
	q := c.asQMoE()
	hidden, inner := q.Hidden, q.Inner
	attrs, err := c.ortActivation()
	if err != nil {
		return fmt.Errorf("Q%w", err)
	}
	rows := inner
	if q.Packing != "none" {
		rows = 2 * inner
	}
	if len(c.Dims(fused.QMoEGateUpCodes)) == 0 || c.Dims(fused.QMoEGateUpCodes)[0] < 1 {
		return errors.New("the number of experts is unknown")
	}
	if c.topK() < 1 {
		return errors.New("how many experts a token goes to is unknown")
	}
	experts := c.Dims(fused.QMoEGateUpCodes)[0]
	up, err := c.codedOf(fused.Embedding{Code: q.GateUpCode, Zero: q.GateUpZero, Block: q.GateUpBlock,
		N: experts * rows, K: hidden}, [5]int(fused.QMoEGateUp[:5]))
	if err != nil {
		return err
	}
	down, err := c.codedOf(fused.Embedding{Code: q.DownCode, Zero: q.DownZero, Block: q.DownBlock,
		N: experts * hidden, K: inner}, [5]int(fused.QMoEDown[:5]))
	if err != nil {
		return err
	}
	switch {
	case up.offsets() || down.offsets():
		return errors.New("QMoE does not support signed codes, or a zero that is not the middle of the codes")
	case up.bits != down.bits:
		return fmt.Errorf("on the CPU QMoE takes experts of one bit width, not of %d and %d bits", up.bits, down.bits)
	case up.block != down.block:
		return fmt.Errorf("QMoE takes one block size, not %d and %d", up.block, down.block)
	case up.bits == 8 && c.accuracyLevel() != 4:
		return errors.New("QMoE rounds activations to 8 bits if experts have 8 bits: use --accuracy-level 4 to " +
			"allow it")
	}
	if q.Packing == "halves" {
		up.halves = inner
	}
	x := c.Op1("Reshape", []*onnx.Value{c.Cast(c.Input(fused.QMoEX), c.Type(fused.QMoEX), onnx.Float),
		c.Integers(-1, hidden)})
	chosen, counts := c.ofAllExperts(experts)
	matrix := func(m *coded, input int, what string, n, width int64, make func() (*onnx.Tensor, error)) *onnx.Value {
		return c.weight(m, input, what, shaped(make, experts, n, width))
	}
	inputs := []*onnx.Value{x, chosen,
		matrix(up, fused.QMoEGateUpCodes, "experts", rows, hidden*up.bits/8, up.packed),
		matrix(up, fused.QMoEGateUpCodes, "experts' scales", rows, hidden/up.block, up.scales),
		c.rowsInTurn(fused.QMoEGateUpBias, experts, up.halves),
		matrix(down, fused.QMoEDownCodes, "experts", hidden, inner*down.bits/8, down.packed),
		matrix(down, fused.QMoEDownCodes, "experts' scales", hidden, inner/down.block, down.scales),
		c.Input(fused.QMoEDownBias), nil, nil, nil, nil, nil, nil, counts}
	attrs = append(attrs, onnx.IntAttr("k", c.topK()), onnx.IntAttr("normalize_routing_weights", 0),
		onnx.IntAttr("expert_weight_bits", up.bits), onnx.IntAttr("block_size", up.block),
		onnx.StringAttr("quant_type", "int"), onnx.IntAttr("weights_prepacked", 0),
		onnx.IntAttr("accuracy_level", c.accuracyLevel()))
	y := c.notInPlace(c.Add(onnx.Microsoft, "QMoE", 1, inputs, attrs...)[0], x)
	y = c.Op1("Reshape", []*onnx.Value{y, c.Op1("Shape", []*onnx.Value{c.Input(fused.QMoEX)})})
	c.Output(0, c.Cast(y, onnx.Float, c.Type(fused.QMoEX)))
	return nil
}

// topK returns the number of experts of a token, or -1 if it is unknown.
func (c *Call) topK() int64 {
	for _, i := range []int{fused.QMoEIDs, fused.QMoEWeights} {
		if k := c.lastDim(i); k > 0 {
			return k
		}
	}
	return -1
}

// fromRouter reports whether weights and ids come from one TopKRouter with a nonnegative factor.
func (c *Call) fromRouter() bool {
	from := func(v *onnx.Value) *onnx.Node {
		for v.Producer != nil && (v.Producer.Is("Cast") || v.Producer.Is("Reshape")) {
			v = v.Producer.Input(0)
		}
		return v.Producer
	}
	n := from(c.Input(fused.QMoEIDs))
	return n != nil && n.Domain == fused.Domain && n.OpType == fused.TopKRouterName &&
		from(c.Input(fused.QMoEWeights)) == n &&
		n.AttrFloat("scale", 1) >= 0
}

// ofAllExperts scatters 1, and the weights, to the chosen experts among all: [tokens, experts].
func (c *Call) ofAllExperts(experts int64) (chosen, counts *onnx.Value) {
	k := c.topK()
	ids := c.Op1("Reshape", []*onnx.Value{c.Input(fused.QMoEIDs), c.Integers(-1, k)})
	weights := c.Op1("Reshape", []*onnx.Value{c.Cast(c.Input(fused.QMoEWeights), c.Type(fused.QMoEWeights), onnx.Float),
		c.Integers(-1, k)})
	shape := c.Op1("Shape", []*onnx.Value{ids})
	tokens := c.Op1("Slice", []*onnx.Value{shape, c.Integers(0), c.Integers(1)})
	all := c.Op1("Concat", []*onnx.Value{tokens, c.Integers(experts)}, onnx.IntAttr("axis", 0))
	filled := func(x float32, shape *onnx.Value) *onnx.Value {
		return c.Op1("Expand", []*onnx.Value{c.Number(x, onnx.Float), shape})
	}
	none := filled(0, all)
	put := func(v *onnx.Value) *onnx.Value {
		return c.Op1("ScatterElements", []*onnx.Value{none, ids, v}, onnx.IntAttr("axis", -1))
	}
	return put(filled(1, shape)), put(weights)
}

// rowsInTurn returns a bias with its two halves interleaved.
func (c *Call) rowsInTurn(input int, experts, halves int64) *onnx.Value {
	v := c.Input(input)
	if v == nil || halves == 0 {
		return v
	}
	v = c.Op1("Reshape", []*onnx.Value{v, c.Integers(experts, 2, halves)})
	v = c.Op1("Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1}))
	return c.Op1("Reshape", []*onnx.Value{v, c.Integers(experts, 2*halves)})
}
