package target

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// ascend keeps the fused ops that the kernels for onnxruntime's CANN provider run on Atlas A2 and A3. The limits come
// from CANN's documentation of its calls.
var ascend = &Target{
	Name:    "ascend",
	Summary: "fused ops by CANN, for Huawei's Atlas A2 and A3",
	Device:  "NPU",
	Rules: []Rule{
		{fused.RMSNormName, "aclnnRmsNorm", kept()},
		{fused.AddRMSNormName, "aclnnAddRmsNorm", kept()},
		{fused.GLUName, "aclnnSilu, aclnnMul", kept()},
		{fused.RotaryEmbeddingName, "aclnnRotaryPositionEmbedding", kept(rotatedBelow896)},
		{fused.NormRotaryName, "aclnnRmsNorm, aclnnRotaryPositionEmbedding", kept(rotatedBelow896)},
		{fused.AttentionName, "aclnnFlashAttentionScore", kept(flashAttention)},
		{fused.TopKRouterName, "aclnnMoeGatingTopKSoftmax, or aclnnTopk", kept()},
		{fused.MoEName, "aclnnMoeInitRoutingV2, aclnnGroupedMatmulV4, aclnnMoeFinalizeRoutingV2", kept(groupedMatmul)},
	},
}

// ascend310p is ascend for the Atlas inference series, which has no bfloat16 and whose calls are more limited.
var ascend310p = &Target{
	Name:    "ascend310p",
	Summary: "fused ops by CANN, for Huawei's Atlas inference series (310P)",
	Device:  "NPU",
	Rules: []Rule{
		{fused.RMSNormName, "aclnnRmsNorm", kept(noBFloat16, normOn310P)},
		{fused.AddRMSNormName, "aclnnAddRmsNorm", kept(noBFloat16, normOn310P)},
		{fused.GLUName, "aclnnSilu, aclnnMul", kept(noBFloat16)},
		{fused.RotaryEmbeddingName, "aclnnRotaryPositionEmbedding", kept(noBFloat16, rotaryOn310P)},
		{fused.NormRotaryName, "aclnnRmsNorm, aclnnRotaryPositionEmbedding", kept(noBFloat16, normOn310P,
			rotaryOn310P)},
	},
}

// kept keeps the fused op itself if all limits hold.
func kept(limits ...func(*Call) error) func(*Call) error {
	return func(c *Call) error {
		for _, limit := range limits {
			if err := limit(c); err != nil {
				return err
			}
		}
		c.Keep()
		return nil
	}
}

func rotatedBelow896(c *Call) error {
	if r := c.asRotary().RotaryDim; r >= 896 {
		return fmt.Errorf("it rotates %d channels; aclnnRotaryPositionEmbedding takes less than 896", r)
	}
	return nil
}

// flashAttention checks the limits of aclnnFlashAttentionScore: no cap, no sinks, no cache in place, 256 heads of one
// width up to 768. It multiplies its shift of scores by the scale, so the shift cannot be a bias.
func flashAttention(c *Call) error {
	for _, lack := range []struct {
		is   bool
		what string
	}{
		{c.Input(fused.AttentionSink) != nil, "sinks"},
		{c.Input(fused.AttentionBias) != nil, "a bias that is added after the scale"},
		{c.Input(fused.AttentionPastLength) != nil, "a cache in place"},
		{c.asAttention().Softcap > 0, "a softcap"},
		{c.asAttention().HeadOrder == "cyclic", "heads that share keys and are not adjacent"},
	} {
		if lack.is {
			return fmt.Errorf("it has %s, which aclnnFlashAttentionScore does not support", lack.what)
		}
	}
	q, v := c.Dims(fused.AttentionQ), c.Dims(fused.AttentionV)
	if len(q) != 4 || len(v) != 4 {
		return errors.New("the rank of queries or values is unknown")
	}
	if q[3] < 1 || q[3] != v[3] || q[3] > 768 {
		return fmt.Errorf("queries are %v, values %v; aclnnFlashAttentionScore takes one width, up to 768", q, v)
	}
	if heads := c.headsOf(fused.AttentionQ, c.asAttention().QLayout); heads > 256 {
		return fmt.Errorf("there are %d heads; aclnnFlashAttentionScore takes at most 256", heads)
	}
	return nil
}

// groupedMatmul checks the limits of aclnnGroupedMatmulV4: one type, at most 1024 groups, matrices of less than 65536
// rows and columns.
func groupedMatmul(c *Call) error {
	if c.Type(fused.MoEX) != c.Type(fused.MoEGateUp) {
		return fmt.Errorf("X is %s, the experts are %s; aclnnGroupedMatmulV4 multiplies matrices of one type",
			c.Type(fused.MoEX), c.Type(fused.MoEGateUp))
	}
	for _, i := range []int{fused.MoEGateUp, fused.MoEDown} {
		d := c.Dims(i)
		if len(d) != 3 {
			continue
		}
		if d[0] > 1024 {
			return fmt.Errorf("there are %d experts; aclnnGroupedMatmulV4 takes at most 1024", d[0])
		}
		if widest := max(d[1], d[2]); widest >= 65536 {
			return fmt.Errorf("an expert has a matrix of %d x %d; aclnnGroupedMatmulV4 takes fewer than 65536 rows "+
				"and columns", d[1], d[2])
		}
		if chosen := c.lastDim(fused.MoEIDs); d[0] >= 0 && chosen > d[0] {
			return fmt.Errorf("%d of %d experts are chosen; aclnnMoeFinalizeRoutingV2 takes no more than there are",
				chosen, d[0])
		}
	}
	return nil
}

func noBFloat16(c *Call) error {
	for i, t := range c.Site.Types {
		if t == onnx.BFloat16 {
			return fmt.Errorf("input %d is bfloat16, which Ascend 310P does not support", i)
		}
	}
	return nil
}

// normOn310P checks the limits of aclnnRmsNorm there: one type, and rows of at least 32 bytes.
func normOn310P(c *Call) error {
	scale := 1
	if c.Op == fused.AddRMSNormName {
		scale = 2
	}
	if c.Type(0) != c.Type(scale) {
		return fmt.Errorf("X is %s, scale is %s; on Ascend 310P aclnnRmsNorm takes one type", c.Type(0), c.Type(scale))
	}
	if n := c.lastDim(0); n >= 0 && n*int64(c.Type(0).Bits()) < 32*8 {
		return fmt.Errorf("a row has %d elements; on Ascend 310P aclnnRmsNorm takes 32 bytes and more", n)
	}
	return nil
}

// rotaryOn310P checks the limits of aclnnRotaryPositionEmbedding there: halves, and 32, 64, 96 or 128 channels.
func rotaryOn310P(c *Call) error {
	if c.asRotary().Interleaved {
		return fmt.Errorf("its pairs are interleaved; on Ascend 310P aclnnRotaryPositionEmbedding takes halves")
	}
	if r := c.asRotary().RotaryDim; r > 128 || r%32 != 0 {
		return fmt.Errorf("it rotates %d channels; on Ascend 310P aclnnRotaryPositionEmbedding takes 32, 64, 96 and "+
			"128", r)
	}
	return nil
}

// A CANNReport counts the changes that AvoidCANN made.
type CANNReport struct {
	// Expanded counts nodes with two broadcast inputs. An Expand now broadcasts one of them.
	Expanded int `json:"expanded,omitempty"`
	// MatMuls counts the Gemm nodes without C that became MatMul nodes.
	MatMuls int `json:"matmuls,omitempty"`
}

// AvoidCANN rewrites constructs that onnxruntime's CANN provider (1.24.4 was tried) computes wrongly. It returns nil
// without a change.
func AvoidCANN(graphs []*onnx.Graph, facts *infer.Facts) (*CANNReport, error) {
	c := new(edit.Change)
	r := CANNReport{Expanded: oneBroadcast(c, graphs, facts), MatMuls: withoutC(c, graphs, facts)}
	if r == (CANNReport{}) {
		return nil, nil
	}
	return &r, c.Finish()
}

// Text returns a line for each kind of change, or "" for nil.
func (r *CANNReport) Text() string {
	if r == nil {
		return ""
	}
	var b strings.Builder
	if r.Expanded > 0 {
		fmt.Fprintf(&b, "%-18s for %d nodes with both inputs broadcast, which onnxruntime's CANN provider gets wrong\n",
			"Expand added", r.Expanded)
	}
	if r.MatMuls > 0 {
		fmt.Fprintf(&b, "%-18s in %d nodes without C, for which that provider adds uninitialized memory\n",
			"MatMul for Gemm", r.MatMuls)
	}
	return b.String()
}

// withoutC turns Gemm nodes without C into MatMul nodes and returns their number. The provider's Gemm, which is
// float16, reads C even if it is absent. onnxruntime evaluates the Transpose of a weight when it opens the model.
func withoutC(c *edit.Change, graphs []*onnx.Graph, facts *infer.Facts) int {
	count := 0
	for _, g := range graphs {
		for _, n := range g.Nodes {
			if !n.Is("Gemm") || n.Input(2) != nil || n.AttrFloat("alpha", 1) != 1 {
				continue
			}
			if t := facts.DataType(n.Input(0)); t != onnx.Float16 && t != onnx.Undefined {
				continue
			}
			for i, attr := range []string{"transA", "transB"} {
				if n.AttrInt(attr, 0) == 0 {
					continue
				}
				v := n.Input(i)
				turned := g.NewValue(v.Name + "_transposed")
				c.Insert(n, c.NewNode(g, "Transpose", []*onnx.Value{v}, []*onnx.Value{turned},
					onnx.IntsAttr("perm", []int64{1, 0})))
				c.SetInput(n, i, turned)
			}
			c.Become(n, "MatMul")
			c.SetInputs(n, n.Inputs[:2]...)
			count++
		}
	}
	return count
}

// oneBroadcast makes each Add, Sub, Mul and Div node broadcast at most one input: if both may be broadcast, it adds an
// Expand of the first. It returns the number of added Expands. The provider copies both broadcast inputs to the same
// memory, so that such a node reads only its second input. Rotary embeddings compute their angles with one.
func oneBroadcast(c *edit.Change, graphs []*onnx.Graph, facts *infer.Facts) int {
	count := 0
	for _, g := range graphs {
		for _, n := range g.Nodes {
			if !n.Is("Add") && !n.Is("Sub") && !n.Is("Mul") && !n.Is("Div") {
				continue
			}
			a, b := n.Input(0), n.Input(1)
			if a == nil || b == nil || facts.DataType(a) == onnx.BFloat16 || !bothBroadcast(facts, a, b) {
				continue
			}
			shape, wide := g.NewValue(b.Name+"_shape"), g.NewValue(a.Name+"_expanded")
			c.Insert(n, c.NewNode(g, "Shape", []*onnx.Value{b}, []*onnx.Value{shape}),
				c.NewNode(g, "Expand", []*onnx.Value{a, shape}, []*onnx.Value{wide}))
			c.SetInput(n, 0, wide)
			count++
		}
	}
	return count
}

// bothBroadcast reports whether each input may have a shape other than the result's. An unknown shape may.
func bothBroadcast(facts *infer.Facts, a, b *onnx.Value) bool {
	m, okA := facts.Rank(a)
	n, okB := facts.Rank(b)
	if !okA || !okB {
		return !scalar(facts, a) && !scalar(facts, b)
	}
	growsA, growsB := m < n, n < m
	for i := 1; i <= min(m, n); i++ {
		x, y := sizes(facts, a, m-i), sizes(facts, b, n-i)
		for w := range x {
			if x[w] >= 0 && x[w] == y[w] {
				continue
			}
			growsA = growsA || x[w] == 1 || x[w] < 0 || y[w] != 1
			growsB = growsB || y[w] == 1 || y[w] < 0 || x[w] != 1
		}
	}
	return growsA && growsB
}

func scalar(facts *infer.Facts, v *onnx.Value) bool {
	rank, ok := facts.Rank(v)
	return ok && rank == 0
}

// sizes returns a dimension in every world, -1 if it is unknown.
func sizes(facts *infer.Facts, v *onnx.Value, axis int) (list [infer.Worlds]int64) {
	for w := range list {
		list[w] = facts.Size(v, w, axis)
	}
	return list
}
