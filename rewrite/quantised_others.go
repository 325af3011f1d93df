package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WithOwnProducts makes mojo.Linear and mojo.Embedding of the products and tables that other tools quantised:
// MatMulNBits, GatherBlockQuantized, and DequantizeLinear before a product or a Gather. activations is Linear's
// attribute.
func WithOwnProducts(activations string) Option {
	return func(c *config) { c.ownProducts = activations }
}

// ownProducts puts mojo's ops in the place of other tools' quantised products, if the options say so.
func (p *Plan) ownProducts() error {
	a := p.applier
	c := a.config
	if c.ownProducts == "" {
		return nil
	}
	r := &ProductsReport{Emits: map[string]int{}, Open: map[string]int{}}
	a.report.Products = r
	var weights []*QuantisedWeight
	from, of := map[*QuantisedWeight]string{}, map[*QuantisedWeight]*onnx.Node{}
	seen := map[*onnx.Value]bool{}
	for _, s := range a.scopes() {
		for _, n := range s.graph.Nodes {
			codes := storedCodes(n)
			if codes == nil || seen[codes] {
				continue
			}
			seen[codes] = true
			name := opName(n.Domain, n.OpType)
			w, err := otherWeight(n, codes)
			if err == nil {
				err = readAlike(n, codes)
			}
			if err != nil {
				r.Open[name+": "+err.Error()]++
				continue
			}
			weights, from[w], of[w] = append(weights, w), name, n
		}
	}
	if len(weights) == 0 {
		return nil
	}
	options := []Option{WithVerify(c.verify), WithKernelCheck(c.kernelCheck), WithToolVersion(c.version)}
	unread := map[*onnx.Value]bool{}
	for _, w := range weights {
		for _, v := range of[w].Inputs[1:] {
			if v.IsConstant() {
				unread[v] = true
			}
		}
	}
	q, err := Quantise(a.model, weights, c.ownProducts, options...)
	if err != nil {
		return err
	}
	for w, err := range q.Refuse {
		r.Open[from[w]+": "+err.Error()]++
	}
	for _, w := range q.Kept {
		for _, s := range w.nodes {
			to := "mojo.Linear"
			if s.gathers() {
				to = "mojo.Embedding"
			}
			r.Emits[to+" in place of "+from[w]]++
		}
	}
	a.model.Graph.RemoveUnusedInitializers(unread)
	r.Check = &CheckReport{MaxRel: q.Definition, Structural: q.Structural}
	if q.Kernels > 0 {
		r.Check.Kernel = &q.Kernel
	}
	a.report.Variants = variants(a.model)
	a.report.Changed = a.report.Changed || len(q.Kept) > 0
	return nil
}

// storedCodes returns the initializer with a node's quantised elements, nil for other nodes.
func storedCodes(n *onnx.Node) *onnx.Value {
	v := (*onnx.Value)(nil)
	switch {
	case n.Domain == microsoft && n.OpType == "MatMulNBits":
		v = n.Input(1)
	case n.Domain == microsoft && n.OpType == "GatherBlockQuantized", n.Is("DequantizeLinear"):
		v = n.Input(0)
	}
	if v == nil || !v.IsConstant() || v.Producer != nil {
		return nil
	}
	return v
}

// readAlike errs where another node takes the same elements with other scales.
func readAlike(n *onnx.Node, codes *onnx.Value) error {
	for _, u := range codes.Uses() {
		if o := u.Node; o.Domain != n.Domain || o.OpType != n.OpType || o.Input(2) != n.Input(2) ||
			n.OpType == "DequantizeLinear" && o.Input(1) != n.Input(1) ||
			n.OpType == "MatMulNBits" && o.Input(3) != n.Input(3) ||
			attributesKey(o.Attributes) != attributesKey(n.Attributes) {
			return fmt.Errorf("node %q (%s) reads the same elements in another way", nodeName(o),
				opName(o.Domain, o.OpType))
		}
	}
	return nil
}

// others is a matrix [n, k] as another tool quantised it: (code - zero) * scale.
type others struct {
	name            string
	n, k            int64
	codes           *onnx.Tensor
	bits            int
	shift           int64 // makes codes of a type with a sign numbers from 0 on
	byRow, byColumn int64 // from one code to the next
	scales          *onnx.Tensor
	block           int64 // columns that share a scale
	scaleByRow      int64
	scaleByBlock    int64
	zeros           *onnx.Tensor // nil: middle is the zero of all
	zeroByRow       int64
	zeroByBlock     int64
	middle          int64
}

// otherWeight reads a node's weights; errors say why they have no form of mojo's.
func otherWeight(n *onnx.Node, codes *onnx.Value) (*QuantisedWeight, error) {
	x := &others{name: codes.Name, codes: codes.Const}
	var err error
	inOut := false
	switch {
	case n.OpType == "MatMulNBits":
		err = x.matMulNBits(n)
	case n.OpType == "GatherBlockQuantized":
		err = x.gatherBlockQuantized(n)
	default:
		inOut = readInOut(n.Outputs[0])
		err = x.dequantizeLinear(n, inOut)
	}
	if err != nil {
		return nil, err
	}
	w := &QuantisedWeight{Value: codes, InOut: inOut, Sample: x.sample}
	w.Matrix, err = x.quantised(x.n, nil)
	return w, err
}

func (x *others) matMulNBits(n *onnx.Node) error {
	x.n, x.k = n.AttrInt("N", 0), n.AttrInt("K", 0)
	x.bits, x.block = int(n.AttrInt("bits", 4)), n.AttrInt("block_size", 0)
	switch {
	case n.Input(4) != nil:
		return errors.New("its columns are in an order of their own (g_idx)")
	case n.AttrInt("weight_prepacked", 0) != 0:
		return errors.New("its weights are in the order of a device's kernels")
	case x.n < 1 || x.k < 1 || x.block < 1:
		return fmt.Errorf("it has N %d, K %d and blocks of %d", x.n, x.k, x.block)
	}
	x.rows(n.Input(2), n.Input(3))
	return x.check()
}

// rows is the layout of onnxruntime's ops: rows of whole blocks in bytes.
func (x *others) rows(scales, zeros *onnx.Value) {
	count := (x.k + x.block - 1) / x.block
	x.byRow, x.byColumn = count*x.block, 1
	x.scales, x.scaleByRow, x.scaleByBlock = scales.Constant(), count, 1
	x.middle = 1 << (x.bits - 1)
	if zeros != nil {
		x.zeros, x.zeroByRow, x.zeroByBlock = zeros.Constant(), count, 1
		if x.zeros == nil {
			x.scales = nil // both are to be constants
		} else if !x.zeros.DataType.IsFloat() {
			per := int64(8 / x.bits)
			x.zeroByRow = (count + per - 1) / per * per
		}
	}
}

func (x *others) gatherBlockQuantized(n *onnx.Node) error {
	d := x.codes.Dims
	axis := n.AttrInt("quantize_axis", 1)
	if len(d) != 2 || n.AttrInt("gather_axis", 0) != 0 || axis != 1 && axis != -1 {
		return errors.New("it takes other elements than rows of a matrix with blocks along them")
	}
	x.n, x.k, x.block, x.bits = d[0], d[1], n.AttrInt("block_size", 128), int(n.AttrInt("bits", 4))
	switch x.codes.DataType {
	case onnx.Uint8: // several in a byte
		if x.bits == 2 || x.bits == 4 {
			x.k *= int64(8 / x.bits)
		}
	case onnx.Int4:
		x.bits, x.shift = 4, 8
	case onnx.Uint4:
		x.bits = 4
	default:
		return fmt.Errorf("its elements are %s", x.codes.DataType)
	}
	if x.block < 1 || x.k%x.block != 0 {
		return fmt.Errorf("its rows of %d are no whole blocks of %d", x.k, x.block)
	}
	x.rows(n.Input(2), n.Input(3))
	if x.codes.DataType != onnx.Uint8 {
		x.middle, x.zeroByRow = x.shift, x.scaleByRow
	}
	return x.check()
}

// readInOut reports whether what reads v takes it for [in, out].
func readInOut(v *onnx.Value) bool {
	for _, u := range v.Uses() {
		switch n := u.Node; {
		case n.Is("MatMul"), n.Is("Gemm") && n.AttrInt("transB", 0) == 0:
			return true
		case n.Is("Transpose"):
			return !readInOut(n.Outputs[0])
		case n.Is("Cast"), n.Is("Identity"):
			return readInOut(n.Outputs[0])
		}
	}
	return false
}

func (x *others) dequantizeLinear(n *onnx.Node, inOut bool) error {
	d := x.codes.Dims
	if len(d) != 2 {
		return fmt.Errorf("its elements have the shape %v", d)
	}
	switch x.codes.DataType {
	case onnx.Int4:
		x.bits, x.shift = 4, 8
	case onnx.Uint4:
		x.bits = 4
	case onnx.Int8:
		x.bits, x.shift = 8, 128
	case onnx.Uint8:
		x.bits = 8
	default:
		return fmt.Errorf("its elements are %s", x.codes.DataType)
	}
	if x.scales = n.Input(1).Constant(); x.scales == nil {
		return errors.New("its scales are computed")
	}
	axis, block := n.AttrInt("axis", 1), n.AttrInt("block_size", 0)
	if axis < 0 {
		axis += 2
	}
	along := int64(1) // the axis of columns
	x.n, x.k, x.byRow, x.byColumn = d[0], d[1], d[1], 1
	if inOut {
		x.n, x.k, x.byRow, x.byColumn, along = d[1], d[0], 1, d[1], 0
	}
	switch s := x.scales; {
	case s.Len() == 1 && len(s.Dims) <= 1:
		x.block = x.k
	case block == 0 && len(s.Dims) == 1 && axis != along && s.Len() == x.n:
		x.block, x.scaleByRow = x.k, 1
	case block > 0 && axis == along && x.k%block == 0 && s.Len() == x.n*(x.k/block):
		x.block = block
		x.scaleByRow, x.scaleByBlock = x.k/block, 1
		if inOut {
			x.scaleByRow, x.scaleByBlock = 1, x.n
		}
	default:
		return fmt.Errorf("columns have scales of their own (scales of %v along axis %d)", s.Dims, axis)
	}
	x.zeroByRow, x.zeroByBlock, x.middle = x.scaleByRow, x.scaleByBlock, x.shift
	if z := n.Input(2); z != nil {
		if x.zeros = z.Constant(); x.zeros == nil {
			return errors.New("its zero points are computed")
		}
	}
	return x.check()
}

// check errs where the numbers are none that mojo's ops have.
func (x *others) check() error {
	switch {
	case x.scales == nil:
		return errors.New("its scales or zero points are computed")
	case x.bits != 2 && x.bits != 4 && x.bits != 8:
		return fmt.Errorf("its elements have %d bits", x.bits)
	case x.block != 16 && x.block%32 != 0:
		return fmt.Errorf("its blocks of %d are no multiples of 32", x.block)
	case x.k%32 != 0:
		return fmt.Errorf("its rows of %d are no whole blocks of 32", x.k)
	}
	for _, t := range []*onnx.Tensor{x.scales, x.zeros} {
		if t == nil {
			continue
		}
		switch t.DataType {
		case onnx.Float, onnx.Float16, onnx.BFloat16:
		case onnx.Uint8, onnx.Int8, onnx.Int4, onnx.Uint4:
			if t == x.zeros {
				continue
			}
			fallthrough
		default:
			return fmt.Errorf("its scales or zero points are %s", t.DataType)
		}
	}
	return nil
}

// opened is the matrix with its arrays at hand.
type opened struct {
	*others
	codes, scales, zeros []byte
}

func (x *others) open() (*opened, error) {
	o := &opened{others: x}
	var err error
	for _, a := range []struct {
		to   *[]byte
		from *onnx.Tensor
	}{{&o.codes, x.codes}, {&o.scales, x.scales}, {&o.zeros, x.zeros}} {
		if a.from == nil {
			continue
		}
		if *a.to, err = a.from.Bytes(); err != nil {
			return nil, err
		}
	}
	last := func(n, byRow, k, byColumn int64) int64 { return (n-1)*byRow + (k-1)*byColumn }
	count := (x.k + x.block - 1) / x.block
	if at := last(x.n, x.byRow, x.k, x.byColumn); at >= int64(len(o.codes))*8/int64(x.bits) ||
		last(x.n, x.scaleByRow, count, x.scaleByBlock) >= x.scales.Len() ||
		x.zeros != nil && last(x.n, x.zeroByRow, count, x.zeroByBlock) >=
			int64(len(o.zeros))*8/int64(zeroBits(x)) {
		return nil, fmt.Errorf("the elements, scales or zero points of %q are fewer than %d rows of %d", x.name, x.n,
			x.k)
	}
	return o, nil
}

// zeroBits is the size of a zero point; those of MatMulNBits are as small as its elements.
func zeroBits(x *others) int {
	if x.zeros.DataType.IsFloat() {
		return x.zeros.DataType.Bits()
	}
	return x.bits
}

// packedInt is element i of so many bits.
func packedInt(b []byte, bits int, i int64) int64 {
	per := int64(8 / bits)
	return int64(b[i/per]) >> (i % per * int64(bits)) & (1<<bits - 1)
}

// code is an element as a number from 0 on.
func (o *opened) code(row, column int64) byte {
	q := packedInt(o.codes, o.bits, row*o.byRow+column*o.byColumn)
	return byte(q^o.shift) & byte(1<<o.bits-1) // a sign turned is the shift added
}

func floatAt(b []byte, t onnx.DataType, i int64) float32 {
	switch t {
	case onnx.Float16:
		return blocks.Float16(binary.LittleEndian.Uint16(b[2*i:]))
	case onnx.BFloat16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

func (o *opened) scale(row, column int64) float32 {
	return floatAt(o.scales, o.others.scales.DataType, row*o.scaleByRow+column/o.block*o.scaleByBlock)
}

// zero is the zero point of an element, as code counts.
func (o *opened) zero(row, column int64) float32 {
	at := row*o.zeroByRow + column/o.block*o.zeroByBlock
	switch {
	case o.others.zeros == nil:
		return float32(o.middle)
	case o.others.zeros.DataType.IsFloat():
		return floatAt(o.zeros, o.others.zeros.DataType, at)
	}
	return float32(packedInt(o.zeros, o.bits, at) ^ o.shift)
}

// oneZero returns the zero point that all blocks have; ok is false where they differ.
func (o *opened) oneZero() (zero int64, ok bool) {
	first := o.zero(0, 0)
	if o.others.zeros != nil {
		for r := range o.n {
			for c := int64(0); c < o.k; c += o.block {
				if o.zero(r, c) != first {
					return 0, false
				}
			}
		}
	}
	zero = int64(first)
	return zero, float32(zero) == first && zero >= 0 && zero < 1<<max(o.bits, 4)
}

// quantised is the first rows in mojo's layout: made when the model is written, or at once where made is given.
func (x *others) quantised(rows int64, made func(*onnx.Tensor) (*onnx.Tensor, error)) (*fused.Quantised, error) {
	o, err := x.open()
	if err != nil {
		return nil, err
	}
	q := &fused.Quantised{Format: fmt.Sprintf("int%d_%d", x.bits, x.block), Code: "int4", Zero: 8, Block: 32, N: rows,
		K: x.k}
	words := int64(4)
	if x.bits == 8 {
		q.Code, q.Zero, words = "int8", 128, 8
	}
	if x.block == 16 {
		q.Block = 16
	}
	zero, one := o.oneZero()
	if one {
		q.Zero = zero
	}
	scale := onnx.Float
	if x.scales.DataType == onnx.Float16 && one {
		scale = onnx.Float16
	}
	panels := (rows + panelRows - 1) / panelRows
	add := func(to **onnx.Tensor, suffix string, t onnx.DataType, dims []int64,
		of func(*opened, []byte, int64)) error {
		size := int64(t.Bits() / 8)
		for _, d := range dims[1:] {
			size *= d
		}
		v, err := onnx.NewDeferred(x.name+suffix, t, dims, func(w io.Writer) error {
			o, err := x.open()
			if err != nil {
				return err
			}
			panel := make([]byte, size)
			for p := range panels {
				clear(panel)
				of(o, panel, p*panelRows)
				if _, err := w.Write(panel); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && made != nil {
			v, err = made(v)
		}
		*to = v
		return err
	}
	last := func(first int64) int64 { return min(panelRows, rows-first) }
	err = add(&q.Codes, "_codes", onnx.Uint8, []int64{panels, x.k / 32, words, 4 * panelRows},
		func(o *opened, panel []byte, first int64) {
			for r := range last(first) {
				for c := range x.k {
					code, at := o.code(first+r, c), c%32
					if x.bits == 8 {
						panel[(c/32*8+at/4)*64+4*r+at%4] = code
					} else {
						panel[(c/32*4+at%16/4)*64+4*r+at%4] |= code << (at / 16 * 4)
					}
				}
			}
		})
	numbers := func(to **onnx.Tensor, suffix string, of func(o *opened, row, column int64) float32) error {
		return add(to, suffix, scale, []int64{panels, x.k / q.Block, panelRows},
			func(o *opened, panel []byte, first int64) {
				for r := range last(first) {
					for b := range x.k / q.Block {
						at := b*panelRows + r
						if scale == onnx.Float16 {
							from := (first+r)*o.scaleByRow + b*q.Block/o.block*o.scaleByBlock
							copy(panel[2*at:2*at+2], o.scales[2*from:])
							continue
						}
						binary.LittleEndian.PutUint32(panel[4*at:], math.Float32bits(of(o, first+r, b*q.Block)))
					}
				}
			})
	}
	if err == nil {
		err = numbers(&q.Scale, "_scale", (*opened).scale)
	}
	if err == nil && !one {
		err = numbers(&q.Minus, "_minus", func(o *opened, row, column int64) float32 {
			return o.scale(row, column) * (float32(q.Zero) - o.zero(row, column))
		})
	}
	return q, err
}

// sample returns the first rows, in mojo's layout and as floats.
func (x *others) sample(rows int64) (*fused.Quantised, []float32, error) {
	rows = min(rows, x.n)
	q, err := x.quantised(rows, func(t *onnx.Tensor) (*onnx.Tensor, error) {
		b, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		return onnx.NewTensor("sample_"+t.Name, t.DataType, t.Dims, b)
	})
	if err != nil {
		return nil, nil, err
	}
	o, err := x.open()
	if err != nil {
		return nil, nil, err
	}
	floats := make([]float32, rows*x.k)
	for i := range floats {
		r, c := int64(i)/x.k, int64(i)%x.k
		floats[i] = (float32(o.code(r, c)) - o.zero(r, c)) * o.scale(r, c)
	}
	return q, floats, nil
}
