package shard

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// isMixture reports whether a node computes experts.
func isMixture(n *onnx.Node) bool {
	return n.Domain == fused.Domain && (n.OpType == fused.MoEName || n.OpType == fused.QMoEName)
}

// unequal returns a number of things as units, or 0 if the ranks have equally many.
func (b *block) unequal(n int64) int64 {
	if n%b.ranks == 0 {
		return 0
	}
	return n
}

// innerGrain returns the part of a QMoE's width that must stay together.
func innerGrain(n *onnx.Node) int64 {
	if n.Input(fused.QMoEDownSuperScale) != nil {
		return superColumns
	}
	return max(codeColumns, n.AttrInt(fused.AttrDownBlock, codeColumns))
}

// mixture divides the experts of a mixture: their number, if there are enough for the ranks, or the width of each.
func (b *block) mixture(n *onnx.Node, experts Experts) error {
	b.nodes[n] = true
	if err := b.whole(n, fused.MoEX, fused.MoEWeights, fused.MoEIDs); err != nil {
		return err
	}
	for i, v := range n.Inputs[fused.MoEGateUp:] {
		if v != nil && v.Constant() == nil {
			return fmt.Errorf("its input %d, %q, is not a constant", fused.MoEGateUp+i, v.Name)
		}
	}
	divide := b.width
	if n.OpType == fused.QMoEName {
		divide = b.quantizedWidth
	}
	if count := n.Inputs[fused.MoEGateUp].Constant().Dims[0]; experts == Spread && count >= b.ranks {
		divide = b.spread
	}
	if err := divide(n); err != nil {
		return err
	}
	return b.sum(n.Outputs[0])
}

// spread divides the experts by their number.
func (b *block) spread(n *onnx.Node) error {
	b.experts[n] = true
	l := Layout{Units: b.unequal(n.Inputs[fused.MoEGateUp].Constant().Dims[0])}
	for i := fused.MoEGateUp; i < len(n.Inputs); i++ {
		if err := b.take(n, i, l); err != nil {
			return err
		}
	}
	return nil
}

// gates returns the layout of the outputs of the first product: gate and up one after the other, or in pairs.
func (b *block) gates(n *onnx.Node, axis int, width, units int64) (Layout, error) {
	l := Layout{Axis: axis, Units: units}
	switch n.AttrString(fused.AttrPacking, "") {
	case "halves":
		l.Runs = []int64{width, width}
	case "interleaved":
		if err := (Layout{Units: units}).fits(width, b.ranks); err != nil {
			return l, fmt.Errorf("%d pairs of gate and up: %w", width, err)
		}
	}
	return l, nil
}

func (b *block) width(n *onnx.Node) error {
	up, down := 1, 2
	if n.AttrString(fused.AttrGateUpLayout, "") == "in_out" {
		up = 2
	}
	if n.AttrString(fused.AttrDownLayout, "") == "in_out" {
		down = 1
	}
	width := n.Inputs[fused.MoEDown].Constant().Dims[down]
	units := b.unequal(width)
	l, err := b.gates(n, up, width, units)
	if err != nil {
		return err
	}
	return errors.Join(b.take(n, fused.MoEGateUp, l), b.take(n, fused.MoEDown, Layout{Axis: down, Units: units}),
		b.take(n, fused.MoEGateUpBias, l.at(1)), b.only(n, fused.MoEDownBias))
}

// quantizedWidth divides quantized experts by whole panels and blocks.
func (b *block) quantizedWidth(n *onnx.Node) error {
	inner := n.AttrInt(fused.AttrInner, 0)
	units := b.unequal(inner / innerGrain(n))
	down := Layout{Axis: 2, Units: units}
	if err := down.grains(inner, innerGrain(n), b.ranks); err != nil {
		return fmt.Errorf("a width of %d: %w", inner, err)
	}
	panels, err := b.gates(n, 1, inner/blocks.PanelRows, units)
	if err != nil {
		return err
	}
	bias, err := b.gates(n, 1, inner, units)
	if err != nil {
		return err
	}
	for i := fused.QMoEGateUpCodes; i < len(n.Inputs); i++ {
		switch i {
		case fused.QMoEGateUpBias:
			err = b.take(n, i, bias)
		case fused.QMoEDownBias:
			err = b.only(n, i)
		case fused.QMoEGateUpCodes, fused.QMoEGateUpScale, fused.QMoEGateUpMinus, fused.QMoEGateUpSuperScale,
			fused.QMoEGateUpSuperMinus:
			err = b.take(n, i, panels)
		default: // of the second product
			err = b.take(n, i, down)
		}
		if err != nil {
			return err
		}
	}
	b.set(n, fused.AttrInner, down)
	return nil
}
