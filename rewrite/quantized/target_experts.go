package quantized

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// checkExperts proves that the target's nodes for mojo.QMoE compute the same as the op. It uses the first experts, cut
// to a few rows and columns, activations without rounding, and tokens of several magnitudes.
func (w *productWriter) checkExperts(n *onnx.Node, site fused.Site) error {
	const (
		what   = "QMoE instead of the op"
		tokens = 3
	)
	site.Attributes = slices.Clone(n.Attributes)
	key := "QMoE " + fmt.Sprint(site.Types) + onnx.AttributesKey(n.Attributes)
	if settled, err := w.experts.Settled(what, key); settled {
		return err
	}
	if codes := n.Input(fused.QMoEGateUpCodes); codes == nil || codes.Constant() == nil {
		return errors.New("the weights of experts are computed")
	}
	experts := min(int64(3), site.Dims[fused.QMoEGateUpCodes][0])
	chosen := min(2, experts)
	width := int64(64)
	if n.Input(fused.QMoEGateUpSuperScale) != nil || n.Input(fused.QMoEDownSuperScale) != nil {
		width = 256
	}
	hidden, inner := min(n.AttrInt(fused.AttrHidden, 0), width), min(n.AttrInt(fused.AttrInner, 0), width)
	model := func() (*onnx.Model, *onnx.Node, fused.Site, error) {
		m := onnx.New(w.Model.IRVersion, w.Model.Opset(""))
		m.ImportOpset(fused.Domain, fused.Version)
		m.ImportOpset(onnx.Microsoft, 1)
		s := fused.Site{Opset: m.Opset("")}
		var inputs []*onnx.Value
		for i, of := range n.Inputs {
			var v *onnx.Value
			t, dims := onnx.Undefined, []int64(nil)
			switch {
			case of == nil:
			case i == fused.QMoEX:
				t, dims = site.Types[i], []int64{tokens, hidden}
			case i == fused.QMoEWeights:
				t, dims = site.Types[i], []int64{tokens, chosen}
			case i == fused.QMoEIDs:
				var list []int64
				for k := range tokens * chosen {
					list = append(list, (k/chosen+k%chosen)%experts)
				}
				ids := onnx.NewInt64s("ids", list)
				ids.Dims = []int64{tokens, chosen}
				v, t, dims = m.Graph.AddInitializer(ids), onnx.Int64, ids.Dims
			default:
				c := of.Constant()
				if c == nil {
					return nil, nil, s, fmt.Errorf("the weights %q are computed", of.Name)
				}
				part, err := firstExperts(n, i, c, experts, hidden, inner)
				if err != nil {
					return nil, nil, s, err
				}
				v, t, dims = m.Graph.AddInitializer(part), c.DataType, part.Dims
			}
			if of != nil && v == nil {
				v = m.Graph.AddInput(fmt.Sprint("in", i), onnx.Type{DataType: t})
			}
			inputs, s.Types, s.Dims = append(inputs, v), append(s.Types, t), append(s.Dims, dims)
		}
		y := m.Graph.NewValue("y")
		node := m.Graph.AddNode(fused.QMoEName, inputs, []*onnx.Value{y}, slices.Clone(n.Attributes)...)
		node.Domain = fused.Domain
		node.SetAttr(onnx.IntAttr(fused.AttrHidden, hidden))
		node.SetAttr(onnx.IntAttr(fused.AttrInner, inner))
		node.SetAttr(onnx.StringAttr(fused.AttrActivations, "float"))
		m.Graph.AddOutput(y)
		s.Attributes = node.Attributes
		f, err := fused.Lookup(fused.QMoEName).Function(s)
		if err != nil {
			return nil, nil, s, err
		}
		node.Overload = f.Overload
		m.Functions = append(m.Functions, f)
		return m, node, s, nil
	}
	before, _, _, err := model()
	if err != nil {
		return err
	}
	after, node, s, err := model()
	if err != nil {
		return err
	}
	call := target.NewCall(node, s)
	call.Products = &target.Products{AccuracyLevel: w.accuracy, Distinct: true}
	if _, err := w.target.Write(call); err != nil {
		return err
	}
	err = w.experts.Prove(&prove.Claim{What: what, Key: key, Before: prove.Model(before), After: prove.Model(after),
		Exact: ofExperts, Trials: sizedTrials(before.Graph.Inputs, []float64{1, 64, 0x1p-20, 0},
			func(r *rand.Rand, v *onnx.Value, size float64) *reference.Tensor {
				x := make([]float64, tokens*chosen)
				for i := range x {
					x[i] = float64(1+r.IntN(8)) / 8
				}
				shape := []int{tokens, int(chosen)}
				if v.Name == "in0" {
					x, shape = make([]float64, tokens*hidden), []int{tokens, int(hidden)}
					for i := range x {
						x[i] = math.Round(size*256*r.NormFloat64()) / 256
					}
				}
				t, _ := v.Type()
				return reference.NewFloats(t.DataType, shape, x)
			})})
	if err != nil {
		return reason.New(reason.Differs, nil, "%w", err)
	}
	if w.report.Check == nil {
		w.report.Check = &prove.CheckReport{}
	}
	w.report.Check.MaxRel = max(w.report.Check.MaxRel, w.experts.Report.Structural)
	return nil
}

// ofExperts bounds the differences between two ways to compute the first experts of a mixture, without rounding.
func ofExperts(_ int, _ onnx.DataType, magnitude float64) float64 { return 1e-5 * magnitude }

// sizedTrials draws the inputs of a model for each of several magnitudes, always the same ones.
func sizedTrials(inputs []*onnx.Value, sizes []float64,
	draw func(r *rand.Rand, v *onnx.Value, size float64) *reference.Tensor) iter.Seq2[prove.Trial, error] {
	return func(yield func(prove.Trial, error) bool) {
		for _, size := range sizes {
			trial := prove.Trial{Name: fmt.Sprintf("%g times normal", size)}
			r := rand.New(rand.NewPCG(1, math.Float64bits(size)))
			for _, v := range inputs {
				trial.Inputs = append(trial.Inputs, draw(r, v, size))
			}
			if !yield(trial, nil) {
				return
			}
		}
	}
}

// firstExperts returns the part of input i of a mojo.QMoE for its first experts, cut to hidden and inner channels.
func firstExperts(n *onnx.Node, i int, t *onnx.Tensor, experts, hidden, inner int64) (*onnx.Tensor, error) {
	rows, columns, whole := inner, hidden, n.AttrInt(fused.AttrHidden, 0)
	if n.Attr(fused.AttrPacking) != nil && n.Attr(fused.AttrPacking).String != "none" {
		rows *= 2
	}
	if slices.Contains(fused.QMoEDown[:], i) {
		rows, columns, whole = hidden, inner, n.AttrInt(fused.AttrInner, 0)
	}
	dims := slices.Clone(t.Dims)
	dims[0] = min(dims[0], experts)
	if len(dims) == 2 { // a bias
		dims[1] = rows
	} else {
		dims[1], dims[2] = rows/blocks.PanelRows, dims[2]*columns/whole
	}
	strides := make([]int64, len(dims))
	for k, step := len(dims)-1, int64(1); k >= 0; k-- {
		strides[k] = step
		step *= t.Dims[k]
	}
	return t.View(t.Name, dims, 0, strides)
}
