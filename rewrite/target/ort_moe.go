package target

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// ortMoE writes com.microsoft's MoE, which includes the router: the softmax of the logits and the k largest weights,
// unchanged or divided by their sum. On the CPU, gate and up must be interleaved. The CUDA provider of onnxruntime 1.31
// runs it only in float16 (and bfloat16): in float32 its kernel asks for more shared memory than there is.
func ortMoE(c *Call) error {
	if err := halfOr32("MoE", c.Type(0)); err != nil {
		return err
	}
	for i := fused.MoEGateUp; i < len(c.Node.Inputs); i++ {
		if c.Input(i) != nil && c.Type(i) != c.Type(0) {
			return fmt.Errorf("MoE takes tokens and weights of one type, not %s and %s", c.Type(0), c.Type(i))
		}
	}
	if rank := len(c.Dims(0)); rank != 2 && rank != 3 {
		return fmt.Errorf("MoE takes tokens of rank 2 or 3, not of shape %s", shapeText(c.Dims(0)))
	}
	if err := c.wideEnoughForCUDA(); err != nil {
		return err
	}
	attrs, err := c.ortActivation()
	if err != nil {
		return err
	}
	r, err := c.router()
	if err != nil {
		return err
	}
	normalized, err := r.softmax()
	if err != nil {
		return err
	}
	if r.Type(0) != c.Type(0) {
		return fmt.Errorf("MoE takes logits of the type of the tokens, %s, not %s", c.Type(0), r.Type(0))
	}
	for i, stays := range map[int]bool{
		fused.MoEGateUp: c.asMoE().Packing != "halves" && c.asMoE().GateUpLayout == "out_in",
		fused.MoEDown:   c.asMoE().DownLayout == "out_in"} {
		if !stays && !c.Fixed(c.Input(i)) {
			return errors.New("MoE takes matrices as [out, in] with gate and up interleaved: computed weights would " +
				"be moved at each run")
		}
	}
	logits, w := r.Input(0), c.Dims(fused.MoEGateUp)
	if flat := len(r.Dims(0)) == 2; !flat || c.asMoE().Packing == "halves" {
		if len(w) != 3 || slices.Min(w) < 0 {
			return fmt.Errorf("MoE takes the matrices or logits in another shape, and the shape of gate_up is "+
				"unknown: it is %s", shapeText(w))
		}
		if !flat {
			logits = c.Op1("Reshape", []*onnx.Value{logits, c.Integers(-1, w[0])})
		}
	}
	inputs := []*onnx.Value{c.Input(0), logits, c.fc1(), c.fc1Bias(), c.stored(fused.MoEDown, c.asMoE().DownLayout),
		c.Input(fused.MoEDownBias)}
	if inputs[5] == nil {
		inputs = inputs[:5]
	}
	attrs = append(attrs, onnx.IntAttr("k", r.asRouter().TopK), onnx.IntAttr("normalize_routing_weights", normalized))
	y := c.notInPlace(c.Add(onnx.Microsoft, "MoE", 1, inputs, attrs...)[0], c.Input(fused.MoEX))
	if scale := r.asRouter().Scale; scale != 1 {
		y = c.Op1("Mul", []*onnx.Value{y, c.Number(scale, c.Type(0))})
	}
	c.Output(0, y)
	return nil
}

// notInPlace returns the result of MoE through a Where that also reads the tokens. If nothing read the tokens after
// MoE, the kernel of onnxruntime 1.31 would write the result over them, and it sets the result to 0 before it reads
// them.
func (c *Call) notInPlace(y, tokens *onnx.Value) *onnx.Value {
	yes := c.Cast(c.Op1("Constant", nil, onnx.IntAttr("value_int", 1)), onnx.Int64, onnx.Bool)
	return c.Op1("Where", []*onnx.Value{yes, y, tokens})
}

// wideEnoughForCUDA returns an error for float16 experts, which CUDA may run, that are less than 16 wide: the kernel
// refuses them at the first run.
func (c *Call) wideEnoughForCUDA() error {
	const least = 16
	if inner := c.expertWidth(); c.Type(fused.MoEX) == onnx.Float16 && inner >= 0 && inner < least {
		return fmt.Errorf("MoE of float16 takes experts that are at least %d wide on CUDA, not %d", least, inner)
	}
	return nil
}

// ortRouter refuses a router without experts.
func ortRouter(*Call) error {
	return errors.New("MoE takes a router only together with its experts, which it does not take here")
}

// ortActivation returns the attributes that describe the activation.
func (c *Call) ortActivation() ([]*onnx.Attribute, error) {
	a := c.asMoE()
	if a.Packing == "none" {
		name := map[string]string{"silu": "silu", "gelu_tanh": "gelu", "relu": "relu"}[a.Activation]
		if name == "" || a.Activation == "silu" && a.Alpha != 1 || a.Limit > 0 {
			return nil, fmt.Errorf("MoE does not have the activation %s (alpha %g, limit %g) without a gate; its "+
				"gelu uses tanh", a.Activation, a.Alpha, a.Limit)
		}
		return []*onnx.Attribute{onnx.StringAttr("activation_type", name)}, nil
	}
	if a.Activation != "silu" {
		return nil, fmt.Errorf("MoE has only silu gates, not %s", a.Activation)
	}
	attrs := []*onnx.Attribute{onnx.StringAttr("activation_type", "swiglu"), onnx.IntAttr("swiglu_fusion", 1),
		onnx.FloatAttr("activation_alpha", a.Alpha), onnx.FloatAttr("activation_beta", a.UpOffset)}
	if a.Limit > 0 {
		attrs = append(attrs, onnx.FloatAttr("swiglu_limit", a.Limit))
	}
	return attrs, nil
}

// router finds the TopKRouter that chooses the experts and their weights.
func (c *Call) router() (*Call, error) {
	ids := c.Input(fused.MoEIDs).Producer
	if ids == nil || ids.Domain != fused.Domain || ids.OpType != fused.TopKRouterName || c.chosenWeights() != ids {
		return nil, errors.New("MoE takes the logits of a router, but the choice and weights of experts are not " +
			"the direct results of a router")
	}
	for _, other := range c.Others {
		if other.Node == ids {
			return other, nil
		}
	}
	return nil, errors.New("MoE takes the logits of a router, but the router is not known")
}

// chosenWeights returns the node that computes the weights of the experts. It skips Casts, and a scatter into the
// weights of all experts followed by a gather.
func (c *Call) chosenWeights() *onnx.Node {
	for v, i := c.Input(fused.MoEWeights), 0; v.Producer != nil && i < 8; i++ {
		switch n := v.Producer; {
		case n.Is("Cast"):
			v = n.Input(0)
		case n.Is("GatherElements") && n.Input(1) == c.Input(fused.MoEIDs) && n.AttrInt("axis", 0) == -1:
			put := n.Input(0).Producer
			for put != nil && put.Is("Cast") {
				put = put.Input(0).Producer
			}
			if put == nil || !put.Is("ScatterElements") || put.Input(1) != c.Input(fused.MoEIDs) ||
				put.AttrInt("axis", 0) != -1 {
				return nil
			}
			v = put.Input(2)
		case v.Output == 0:
			return n
		default:
			return nil
		}
	}
	return nil
}

// softmax returns 1 if the router's weights are a softmax divided by their sum, and 0 if they are the softmax itself.
// It returns an error if the choice depends on anything else.
func (c *Call) softmax() (normalized int64, err error) {
	switch {
	case c.asRouter().Score != "softmax":
		return 0, fmt.Errorf("MoE scores by softmax, not by %s", c.asRouter().Score)
	case c.asRouter().Groups > 1:
		return 0, errors.New("MoE does not choose among groups")
	case c.Input(1) != nil:
		return 0, errors.New("MoE adds no bias for the choice")
	case c.asRouter().Epsilon != 0:
		return 0, fmt.Errorf("MoE adds no epsilon to the sum of the weights, but the router adds "+
			"%g", c.asRouter().Epsilon)
	case c.asRouter().Renormalize || c.asRouter().Order == "top_k_first": // the softmax of the chosen logits
		return 1, nil
	}
	return 0, nil
}

func (c *Call) stored(input int, layout string) *onnx.Value {
	if layout == "out_in" {
		return c.Input(input)
	}
	return c.Op1("Transpose", []*onnx.Value{c.Input(input)}, onnx.IntsAttr("perm", []int64{0, 2, 1}))
}

// fc1 returns the first matrices with interleaved rows of gate and up. Constants are reordered when the model is
// written.
func (c *Call) fc1() *onnx.Value {
	v := c.stored(fused.MoEGateUp, c.asMoE().GateUpLayout)
	if c.asMoE().Packing != "halves" {
		return v
	}
	experts, out, in := c.gateUpSizes()
	v = c.Op1("Reshape", []*onnx.Value{v, c.Integers(experts, 2, out/2, in)})
	v = c.Op1("Transpose", []*onnx.Value{v}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	return c.Op1("Reshape", []*onnx.Value{v, c.Integers(experts, out, in)})
}

// gateUpSizes returns the number of experts, and of the rows and columns of gate and up as [out, in].
func (c *Call) gateUpSizes() (experts, out, in int64) {
	d := c.Dims(fused.MoEGateUp)
	if c.asMoE().GateUpLayout == "in_out" {
		return d[0], d[2], d[1]
	}
	return d[0], d[1], d[2]
}

func (c *Call) fc1Bias() *onnx.Value {
	v := c.Input(fused.MoEGateUpBias)
	if v == nil || c.asMoE().Packing != "halves" {
		return v
	}
	experts, out, _ := c.gateUpSizes()
	return c.rowsInTurn(fused.MoEGateUpBias, experts, out/2)
}
