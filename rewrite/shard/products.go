package shard

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// The inputs of products: rows, a matrix, and a bias.
const (
	data = iota
	matrix
	bias
)

// matrixOf returns the constant matrix that a product multiplies rows with; nil for another node.
func matrixOf(n *onnx.Node) *onnx.Value {
	switch {
	case n.Is("MatMul"), n.Is("Gemm"):
	case n.Domain == fused.Domain && (n.OpType == fused.LinearName || n.OpType == fused.HalfLinearName):
	default:
		return nil
	}
	if w := n.Inputs[matrix]; isWeight(w, casts) && n.Inputs[data].Constant() == nil {
		return w
	}
	return nil
}

// casts is the number of nodes between a stored matrix and a product that are looked through.
const casts = 4

// isWeight reports whether v is a constant of at least two dimensions, or computed only from one.
func isWeight(v *onnx.Value, depth int) bool {
	if t := v.Constant(); t != nil {
		return len(t.Dims) >= 2
	}
	p := v.Producer
	if depth == 0 || p == nil {
		return false
	}
	keeps := p.Is("Transpose") || p.Is("Cast") || p.Is("Identity") || p.Is("DequantizeLinear")
	return keeps && isWeight(p.Inputs[0], depth-1)
}

// errShared is the error of a sum over elements that several ranks have, which would be added several times.
var errShared = errors.New("it sums over elements that are on several ranks")

// matMul divides the batch, the rows or the columns of a product, or makes it a partial sum.
func matMul(b *block, n *onnx.Node) error {
	l, output, index := b.known(n)
	a, errA := b.rank(n.Inputs[0])
	c, errB := b.rank(n.Inputs[1])
	r, err := b.rank(n.Outputs[0])
	if err = errors.Join(errA, errB, err); err != nil {
		return err
	}
	if a < 2 || c < 2 {
		return errors.New("a factor is a vector")
	}
	back := l.Axis - r
	if !output {
		back = l.Axis - []int{a, c}[index]
		if index == 0 && back == -1 || index == 1 && back == -2 { // the sum
			if l.isShared() {
				return errShared
			}
			if err := b.take(n, 1-index, l.at([]int{a - 1, c - 2}[1-index])); err != nil {
				return err
			}
			return b.sum(n.Outputs[0])
		}
	}
	switch back {
	case -1: // columns
		if err := errors.Join(b.whole(n, 0), b.take(n, 1, l.at(c-1))); err != nil {
			return err
		}
		return b.hold(n.Outputs[0], l.at(r-1))
	case -2:
		if err := b.whole(n, 1); err != nil {
			return err
		}
		return b.through(n, l.at(a-2), l.at(r-2))
	}
	return b.aligned(n, n.Inputs, n.Outputs)
}

func gemm(b *block, n *onnx.Node) error {
	if n.AttrInt("transA", 0) != 0 || n.AttrFloat("beta", 1) != 1 {
		return errors.New("its first factor is transposed or its bias scaled")
	}
	return b.product(n, n.AttrInt("transB", 0) == 1)
}

// product is the rule of a product of rows with a matrix, stored by outputs or by inputs, and a bias.
func (b *block) product(n *onnx.Node, byOutputs bool) error {
	l, output, _ := b.known(n)
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	in, out := 0, 1
	if byOutputs {
		in, out = 1, 0
	}
	switch {
	case l.Axis < r-1: // some of the rows
		if err := b.whole(n, matrix, bias); err != nil {
			return err
		}
		return b.through(n, l, l)
	case output:
		if err := errors.Join(b.whole(n, data), b.take(n, matrix, l.at(out))); err != nil {
			return err
		}
		if v := n.Input(bias); v != nil {
			rank, err := b.rank(v)
			if err != nil {
				return err
			}
			if size, ok := b.size(v, -1); rank == 0 || !ok || size == 1 {
				err = b.whole(n, bias)
			} else {
				err = b.take(n, bias, l.at(rank-1))
			}
			if err != nil {
				return err
			}
		}
		return b.hold(n.Outputs[0], l)
	}
	if l.isShared() {
		return errShared
	}
	if err := errors.Join(b.take(n, matrix, l.at(in)), b.only(n, bias)); err != nil {
		return err
	}
	return b.sum(n.Outputs[0])
}

func halfLinear(b *block, n *onnx.Node) error {
	return b.product(n, n.AttrString(fused.AttrLayout, "out_in") == "out_in")
}

// Panels of blocks.PanelRows rows of quantized matrices are not divided, and neither are blocks of so many columns: of
// codes, of scales of scales, and of scales with e4m3.
const (
	codeColumns  = 32
	superColumns = 256
	floatColumns = 128
)

// isQuantized reports whether a product reads a quantized matrix.
func isQuantized(n *onnx.Node) bool { return n.Domain == fused.Domain && n.OpType == fused.LinearName }

// rowGrain and columnGrain return the number of outputs and of inputs of a product that must stay together.
func rowGrain(n *onnx.Node) int64 {
	if isQuantized(n) {
		return blocks.PanelRows
	}
	return 1
}

func columnGrain(n *onnx.Node) int64 {
	switch {
	case !isQuantized(n):
		return 1
	case n.Input(fused.LinearSuperScale) != nil:
		return superColumns
	case n.AttrString(fused.AttrCode, "") == "e4m3":
		return floatColumns
	}
	return codeColumns
}

// linear divides a quantized matrix by whole panels of rows, or by whole blocks of columns.
func linear(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	if l.Axis < r-1 {
		return errors.New("only some of its rows are on a rank")
	}
	const codes, bias = fused.LinearCodes, fused.LinearBias // the inputs before the bias are of the matrix
	if output {
		panels, err := l.at(0).scaled(1, blocks.PanelRows) // merged matrices begin with new panels
		if err == nil {
			err = panels.fits(n.AttrInt(fused.AttrN, 0)/blocks.PanelRows, b.ranks)
		}
		if err != nil {
			return fmt.Errorf("its rows in panels of %d: %w", blocks.PanelRows, err)
		}
		for i := codes; i < bias; i++ {
			if err := b.take(n, i, panels); err != nil {
				return err
			}
		}
		if err := errors.Join(b.whole(n, fused.LinearX), b.take(n, bias, l.at(0))); err != nil {
			return err
		}
		b.set(n, fused.AttrN, l)
		return b.hold(n.Outputs[0], l)
	}
	if l.isShared() || l.Runs != nil {
		return errors.New("pieces of its columns are divided one by one, or are on several ranks")
	}
	if err := l.grains(n.AttrInt(fused.AttrK, 0), columnGrain(n), b.ranks); err != nil {
		return fmt.Errorf("its columns: %w", err)
	}
	for i := codes; i < bias; i++ {
		if err := b.take(n, i, l.at(1)); err != nil {
			return err
		}
	}
	if err := b.only(n, bias); err != nil {
		return err
	}
	b.set(n, fused.AttrK, l)
	return b.sum(n.Outputs[0])
}
