package target

import (
	"errors"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// openvino writes forms that OpenVINO's compiler turns into its layers RMS, RoPE and GatherMatmul. It fuses gated
// activations in their exported form, so they stay. The norm and the rotation of a head are written separately, because
// RoPE absorbs a transposition that follows NormRotary.
var openvino = &Target{
	Name:    "openvino",
	Summary: "forms that OpenVINO compiles to its layers RMS, RoPE, Subgraph and GatherMatmul",
	Masks:   AllMasks,
	Rules: []Rule{
		{fused.RMSNormName, "SimplifiedLayerNormalization", func(c *Call) error { return c.openvinoNorm(c.writeNorm) }},
		{fused.AddRMSNormName, "Add, SimplifiedLayerNormalization", func(c *Call) error {
			return c.openvinoNorm(c.writeAddNorm)
		}},
		{fused.AddLayerNormName, "Add, LayerNormalization", (*Call).writeAddLayerNorm},
		{fused.BiasGELUName, "Add, Gelu", (*Call).writeBiasGELU},
		{fused.RotaryEmbeddingName, "rotate_half", openvinoRotary},
		{fused.AttentionName, "MatMul, Softmax, MatMul", openvinoAttention},
		{fused.MoEName, "tiled experts", openvinoMoE},
	},
}

// openvinoNorm writes onnxruntime's norm, which OpenVINO reads at every opset and in every type.
func (c *Call) openvinoNorm(write func(norm)) error {
	if axis, rank := c.asNorm().Axis, len(c.Dims(0)); axis != -1 || rank < 2 {
		return fmt.Errorf("OpenVINO has RMS only over the last axis and from rank 2, not over axis %d of X, %s",
			axis, shapeText(c.Dims(0)))
	}
	write(ortNorm)
	return nil
}

func openvinoRotary(c *Call) error {
	y, err := c.rotateHalf(c.Input(0), 1)
	if err != nil {
		return err
	}
	c.Output(0, y)
	return nil
}

// openvinoAttention writes products that OpenVINO's CPU plugin fuses into one Subgraph. Exporters prevent that with
// guards after the softmax, scales on both sides and detours of the keys.
func openvinoAttention(c *Call) error {
	if c.Input(fused.AttentionSink) != nil {
		return errors.New("a Subgraph of OpenVINO cannot hold a sink")
	}
	if c.asAttention().Causal || c.asAttention().Window > 0 || c.Input(fused.AttentionKeyValid) != nil {
		return errors.New("the mask is not added to the scores")
	}
	return c.writeProducts(c.biasMask())
}

// openvinoMoE writes experts as OpenVINO's converters of PyTorch models do: all tokens tiled for each expert, three
// products, and the gates of all experts by ScatterElements. The CPU plugin turns that into GatherMatmul, which
// computes only the chosen experts. This works if gate and up form SwiGLU without biases and the number of tokens is
// not fixed. Anything else would compute all experts and is refused. The products are FusedMatMul, because a Transpose
// of constants would be folded, and OpenVINO looks for a transposing product.
func openvinoMoE(c *Call) error {
	w, hidden := c.Dims(fused.MoEGateUp), c.lastDim(fused.MoEX)
	inner, err := c.moeInner()
	switch {
	case err != nil:
		return err
	case c.Site.Opset < 16:
		return fmt.Errorf("OpenVINO has GatherMatmul only with an adding ScatterElements (opset 16); the model has "+
			"opset %d",
			c.Site.Opset)
	case c.asGLU() != fused.GLU{Activation: "silu", Alpha: 1}, c.asMoE().Packing == "none":
		return errors.New("OpenVINO has GatherMatmul only for SwiGLU")
	case c.Input(fused.MoEGateUpBias) != nil || c.Input(fused.MoEDownBias) != nil:
		return errors.New("OpenVINO has GatherMatmul only for SwiGLU without biases")
	case c.Type(fused.MoEGateUp) != c.Type(fused.MoEX):
		return fmt.Errorf("OpenVINO has GatherMatmul only for matrices of the type of X, %s, not "+
			"%s", c.Type(fused.MoEX),
			c.Type(fused.MoEGateUp))
	case len(w) != 3 || w[0] < 2 || hidden < 0 || c.lastDim(fused.MoEIDs) < 0:
		return fmt.Errorf("OpenVINO has GatherMatmul only for a known number and width of experts: X is %s, "+
			"gate_up is %s",
			shapeText(c.Dims(fused.MoEX)), shapeText(w))
	case c.rowCount(fused.MoEX) >= 0:
		return fmt.Errorf("with a fixed number of tokens OpenVINO computes all experts: X is %s",
			shapeText(c.Dims(fused.MoEX)))
	}
	experts, t := w[0], c.Type(fused.MoEX)
	rows := c.Op1("Reshape", []*onnx.Value{c.Input(fused.MoEX), c.Integers(-1, hidden)})
	tiled := c.Op1("Tile", []*onnx.Value{rows, c.Integers(experts, 1)})
	tiled = c.Op1("Reshape", []*onnx.Value{tiled, c.Integers(experts, -1, hidden)})
	product := func(x, w *onnx.Value) *onnx.Value {
		return c.Add(onnx.Microsoft, "FusedMatMul", 1, []*onnx.Value{x, w}, onnx.IntAttr("transB", 1))[0]
	}
	gate, up := c.gateAndUp(inner)
	g := product(tiled, gate)
	a := c.Op1("Mul", []*onnx.Value{c.activated(g, t), product(tiled, up)})
	y := c.Op1("Reshape", []*onnx.Value{product(a, c.stored(fused.MoEDown, c.asMoE().DownLayout)),
		c.Integers(experts, -1, hidden)})
	y = c.Op1("Mul", []*onnx.Value{y, c.scatteredGates(experts, t)})
	y = c.Op1("ReduceSum", []*onnx.Value{y, c.Integers(0)}, onnx.IntAttr("keepdims", 0))
	if len(c.Dims(fused.MoEX)) != 2 {
		y = c.Op1("Reshape", []*onnx.Value{y, c.shape(fused.MoEX)})
	}
	c.Output(0, y)
	return nil
}

func (c *Call) gateAndUp(inner int64) (gate, up *onnx.Value) {
	both := c.stored(fused.MoEGateUp, c.asMoE().GateUpLayout)
	part := func(from, to, step int64) *onnx.Value {
		return c.Op1("Slice", []*onnx.Value{both, c.Integers(from), c.Integers(to), c.Integers(1), c.Integers(step)})
	}
	if c.asMoE().Packing == "halves" {
		return part(0, inner, 1), part(inner, math.MaxInt64, 1)
	}
	return part(0, math.MaxInt64, 2), part(1, math.MaxInt64, 2)
}

// scatteredGates computes the same as denseGates, in the form that OpenVINO looks for.
func (c *Call) scatteredGates(experts int64, t onnx.DataType) *onnx.Value {
	k := c.lastDim(fused.MoEIDs)
	ids, weights := c.rows(fused.MoEIDs, k), c.Cast(c.rows(fused.MoEWeights, k), c.Type(fused.MoEWeights), t)
	count := c.Op1("Shape", []*onnx.Value{ids}, onnx.IntAttr("start", 0), onnx.IntAttr("end", 1))
	shape := c.Op1("Concat", []*onnx.Value{count, c.Integers(experts)}, onnx.IntAttr("axis", 0))
	none := c.Cast(c.Op1("ConstantOfShape", []*onnx.Value{shape}), onnx.Float, t)
	gates := c.Op1("ScatterElements", []*onnx.Value{none, ids, weights}, onnx.IntAttr("axis", 1),
		onnx.StringAttr("reduction", "add"))
	gates = c.Op1("Transpose", []*onnx.Value{gates}, onnx.IntsAttr("perm", []int64{1, 0}))
	return c.Op1("Unsqueeze", []*onnx.Value{c.Op1("Reshape", []*onnx.Value{gates, c.Integers(experts, -1)}),
		c.Integers(-1)})
}

// rowCount returns the number of rows of input i, or -1 if it is unknown.
func (c *Call) rowCount(i int) int64 {
	n, dims := int64(1), c.Dims(i)
	if len(dims) == 0 {
		return -1
	}
	for _, d := range dims[:len(dims)-1] {
		if d < 0 {
			return -1
		}
		n *= d
	}
	return n
}
