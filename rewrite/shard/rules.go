package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// A rule makes a node compute parts, given the layout of one of its values. It determines the layouts of all others.
type rule func(b *block, n *onnx.Node) error

func ruleOf(n *onnx.Node) rule {
	switch {
	case n.Domain == fused.Domain:
		return fusedRules[n.OpType]
	case !onnx.IsStandardDomain(n.Domain):
		return nil
	}
	if r := standardRules[n.OpType]; r != nil {
		return r
	}
	if slices.Contains(elementwise, n.OpType) {
		return broadcast
	}
	return nil
}

// elementwise are the ops whose outputs depend only on the same elements of their inputs.
var elementwise = []string{"Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf",
	"Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
	"LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow",
	"Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
	"Swish", "Tanh", "ThresholdedRelu", "Where", "Xor"}

var standardRules map[string]rule

func init() { // the rules call ruleOf through block.visit
	standardRules = map[string]rule{
		"Reshape": reshape, "Flatten": reshape, "Unsqueeze": reshape, "Squeeze": reshape,
		"Transpose": transpose, "Concat": concat, "Split": split, "Slice": sliceRule, "Gather": gather,
		"Expand": expand, "MatMul": matMul, "Gemm": gemm, "Shape": shape,
		"Softmax": within(-1), "LogSoftmax": within(-1), "LayerNormalization": within(-1),
		"RMSNormalization": within(-1),
		"ReduceMean":       reduce, "ReduceSum": reduce, "ReduceMax": reduce, "ReduceMin": reduce, "ReduceL2": reduce,
		"ReduceSumSquare": reduce, "CumSum": cumSum,
	}
}

// broadcast is the rule of ops that compute element by element, with broadcasting.
func broadcast(b *block, n *onnx.Node) error { return b.aligned(n, n.Inputs, n.Outputs[:1]) }

// aligned gives values of a node the same layout, by axes counted from the last. Values that are broadcast along the
// axis stay whole.
func (b *block) aligned(n *onnx.Node, inputs, outputs []*onnx.Value) error {
	l, output, index := b.known(n)
	if index < 0 {
		return errors.New("nothing of it is divided")
	}
	v := n.Inputs[max(index, 0)]
	if output {
		v = n.Outputs[index]
	}
	r, err := b.rank(v)
	if err != nil {
		return err
	}
	back := l.Axis - r // from the end
	for i, v := range inputs {
		if v == nil {
			continue
		}
		r, err := b.rank(v)
		if err != nil {
			return err
		}
		size, ok := b.size(v, max(back+r, 0))
		switch {
		case back+r < 0 || ok && size == 1:
			err = b.whole(n, slices.Index(n.Inputs, v))
		case !ok:
			err = fmt.Errorf("axis %d of %q has no fixed size", back+r, v.Name)
		default:
			err = b.take(n, i, l.at(back+r))
		}
		if err != nil {
			return err
		}
	}
	for _, v := range outputs {
		if v == nil {
			continue
		}
		r, err := b.rank(v)
		if err == nil {
			err = b.hold(v, l.at(back+r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// within is the rule of ops that compute along an axis and all later ones, which must stay whole. The first input and
// the outputs have the same shape, and other inputs are as long as the axis.
func within(axis int64) rule {
	return func(b *block, n *onnx.Node) error {
		l, _, _ := b.known(n)
		r, err := b.rank(n.Inputs[0])
		if err != nil {
			return err
		}
		first := n.AttrInt("axis", axis)
		if first < 0 {
			first += int64(r)
		}
		if int64(l.Axis) >= first {
			return fmt.Errorf("it computes along axis %d, which is divided", l.Axis)
		}
		return b.aligned(n, n.Inputs[:1], n.Outputs[:1])
	}
}

func cumSum(b *block, n *onnx.Node) error {
	l, _, _ := b.known(n)
	axis, ok := b.facts.Constant(n.Input(1))
	r, err := b.rank(n.Inputs[0])
	if err != nil || !ok || len(axis.I) != 1 {
		return errors.New("its axis is not known")
	}
	if int(axis.I[0]) == l.Axis || int(axis.I[0])+r == l.Axis {
		return fmt.Errorf("it sums along axis %d, which is divided", l.Axis)
	}
	return b.aligned(n, n.Inputs[:1], n.Outputs[:1])
}

// reduce keeps the axes that it does not sum over.
func reduce(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		c, ok := b.facts.Constant(v)
		if !ok {
			return errors.New("its axes are not known")
		}
		axes = c.I
	}
	r, err := b.rank(n.Inputs[0])
	if err != nil || len(axes) == 0 {
		return errors.New("it reduces all axes")
	}
	var kept []int // axes of the input, in the order of the output's
	keep := n.AttrInt("keepdims", 1) == 1
	reduced := func(axis int) bool {
		return slices.Contains(axes, int64(axis)) || slices.Contains(axes, int64(axis-r))
	}
	for axis := range r {
		if keep || !reduced(axis) {
			kept = append(kept, axis)
		}
	}
	in := l.Axis
	if output {
		in = kept[l.Axis]
	}
	if reduced(in) {
		return fmt.Errorf("it reduces axis %d, which is divided", in)
	}
	if err := b.take(n, 0, l.at(in)); err != nil {
		return err
	}
	return b.hold(n.Outputs[0], l.at(slices.Index(kept, in)))
}

func transpose(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	perm := n.AttrInts("perm")
	if perm == nil {
		r, err := b.rank(n.Inputs[0])
		if err != nil {
			return err
		}
		for axis := range r {
			perm = append(perm, int64(r-1-axis))
		}
	}
	in := l.Axis
	if output {
		in = int(perm[l.Axis])
	}
	if err := b.take(n, 0, l.at(in)); err != nil {
		return err
	}
	return b.hold(n.Outputs[0], l.at(slices.Index(perm, int64(in))))
}

// reshape finds the axis of the other shape that begins at the same element. Pieces become larger or smaller by the
// axes that are joined or separated.
func reshape(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	from, to := n.Inputs[0], n.Outputs[0]
	if output {
		from, to = to, from
	}
	other, err := b.reshaped(from, to, l)
	if err != nil {
		return err
	}
	in, out := l, other
	if output {
		in, out = other, l
	}
	if n.Is("Reshape") {
		if err := b.divide(n, 1, out.Axis, l); err != nil {
			return err
		}
	}
	if err := b.take(n, 0, in); err != nil {
		return err
	}
	return b.hold(n.Outputs[0], out)
}

// reshaped returns the layout of a value that has the elements of another in another shape.
func (b *block) reshaped(from, to *onnx.Value, l Layout) (Layout, error) {
	axis := -1
	var size, wide int64
	for world := range 2 {
		a, ok := b.facts.Shape(from, world)
		c, known := b.facts.Shape(to, world)
		if !ok || !known {
			return l, errors.New("its shapes are not known")
		}
		before, at := product(a[:l.Axis]), -1
		size = a[l.Axis]
		for i := range c {
			if product(c[:i]) == before && (c[i] != 1 || size == 1) {
				at, wide = i, c[i]
				break
			}
		}
		if at < 0 || world > 0 && at != axis {
			return l, fmt.Errorf("axis %d of %v does not begin in %v", l.Axis, a, c)
		}
		axis = at
	}
	out, err := l.at(axis), error(nil)
	switch {
	case wide < size && size%wide == 0: // separated: every element of the axis stands for size/wide
		out, err = out.scaled(1, size/wide)
	case wide > size && wide%size == 0:
		out, err = out.scaled(wide/size, 1)
	case wide != size:
		err = fmt.Errorf("an axis of %d becomes one of %d", size, wide)
	}
	return out, err
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

func axisOf(n *onnx.Node, rank int, def int64) int {
	axis := n.AttrInt("axis", def)
	if axis < 0 {
		axis += int64(rank)
	}
	return int(axis)
}

func concat(b *block, n *onnx.Node) error {
	l, output, index := b.known(n)
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	axis := axisOf(n, r, 0)
	if axis != l.Axis {
		for i := range n.Inputs {
			if err := b.take(n, i, l); err != nil {
				return err
			}
		}
		return b.hold(n.Outputs[0], l)
	}
	if output {
		index = -1
	}
	sizes, err := b.sizes(n.Inputs, axis)
	if err != nil {
		return err
	}
	parts, err := pieces(l, sizes, index)
	if err != nil {
		return err
	}
	var runs []int64
	for i, p := range parts {
		if err := b.take(n, i, p); err != nil {
			return err
		}
		runs = append(runs, p.runs(sizes[i])...)
	}
	out := l
	out.Runs = runs
	return b.hold(n.Outputs[0], out)
}

func (b *block) sizes(values []*onnx.Value, axis int) (sizes []int64, err error) {
	for _, v := range values {
		n, ok := b.size(v, axis)
		if !ok {
			return nil, fmt.Errorf("axis %d of %q has no fixed size", axis, v.Name)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// pieces returns the layouts of values side by side, given that of one of them (or of all together with index -1).
func pieces(l Layout, sizes []int64, index int) ([]Layout, error) {
	list, runs := make([]Layout, len(sizes)), l.Runs
	for i, size := range sizes {
		list[i] = Layout{Axis: l.Axis, Copies: l.Copies}
		if i == index {
			list[i] = l
		}
		if index >= 0 || len(runs) == 0 {
			continue
		}
		sum, k := int64(0), 0
		for ; sum < size && k < len(runs); k++ {
			sum += runs[k]
		}
		if sum != size {
			return nil, fmt.Errorf("pieces of %v do not end at %d", l.Runs, size)
		}
		if k > 1 {
			list[i].Runs = runs[:k]
		}
		runs = runs[k:]
	}
	return list, nil
}

func split(b *block, n *onnx.Node) error {
	l, output, index := b.known(n)
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	axis := axisOf(n, r, 0)
	if axis != l.Axis {
		if err := b.take(n, 0, l); err != nil {
			return err
		}
		for _, v := range n.Outputs {
			if err := b.hold(v, l); err != nil {
				return err
			}
		}
		return nil
	}
	sizes, err := b.sizes(n.Outputs, axis)
	if err != nil {
		return err
	}
	if !output {
		index = -1
	}
	parts, err := pieces(l, sizes, index)
	if err != nil {
		return err
	}
	in := Layout{Axis: axis, Copies: l.Copies}
	for i, p := range parts {
		in.Runs = append(in.Runs, p.runs(sizes[i])...)
		if n.Input(1) != nil {
			if err := b.divide(n, 1, i, l); err != nil {
				return err
			}
		}
	}
	if n.Attr("split") != nil {
		return errors.New("its sizes are an attribute")
	}
	if err := b.take(n, 0, in); err != nil {
		return err
	}
	for i, v := range n.Outputs {
		if err := b.hold(v, parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// sliceRule keeps axes that are not cut. On the divided axis a slice must be pieces of the input.
func sliceRule(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	at, err := b.sliced(n, l.Axis)
	if err != nil {
		return err
	}
	if at < 0 {
		if err := b.take(n, 0, l); err != nil {
			return err
		}
		return b.hold(n.Outputs[0], l)
	}
	size, ok := b.size(n.Inputs[0], l.Axis)
	if !ok {
		return errors.New("the size of the divided axis is not known")
	}
	in := l
	if output {
		in = Layout{Axis: l.Axis, Copies: l.Copies}
		if in.Runs, err = b.ends(n.Inputs[0], l.Axis, size); err != nil {
			return err
		}
	}
	start, end, err := b.rangeOf(n, at, size)
	if err != nil {
		return err
	}
	out, offset := Layout{Axis: l.Axis, Copies: l.Copies}, int64(0)
	for _, run := range in.runs(size) {
		if offset >= start && offset+run <= end {
			out.Runs = append(out.Runs, run)
		} else if offset < end && offset+run > start {
			return fmt.Errorf("it cuts a piece of %d at %d to %d", run, start, end)
		}
		offset += run
	}
	if len(out.Runs) == 1 {
		out.Runs = nil
	}
	for i := 1; i <= 2; i++ {
		if err := b.divide(n, i, at, l); err != nil {
			return err
		}
	}
	if err := b.take(n, 0, in); err != nil {
		return err
	}
	return b.hold(n.Outputs[0], out)
}

// sliced returns the place of an axis among the axes that a Slice cuts, or -1.
func (b *block) sliced(n *onnx.Node, axis int) (int, error) {
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return 0, err
	}
	starts, ok := b.facts.Known(n.Input(1), 0)
	if !ok {
		return 0, errors.New("its starts are not known")
	}
	if n.Input(3) == nil {
		if axis < len(starts.I) {
			return axis, nil
		}
		return -1, nil
	}
	axes, ok := b.facts.Constant(n.Input(3))
	if !ok {
		return 0, errors.New("its axes are not known")
	}
	return slices.IndexFunc(axes.I, func(a int64) bool { return int(a) == axis || int(a)+r == axis }), nil
}

// rangeOf returns the range of a Slice along one of its axes.
func (b *block) rangeOf(n *onnx.Node, at int, size int64) (start, end int64, err error) {
	s, ok := b.facts.Constant(n.Input(1))
	e, known := b.facts.Constant(n.Input(2))
	if !ok || !known || at >= len(s.I) || at >= len(e.I) {
		return 0, 0, errors.New("its ends are not known")
	}
	if v := n.Input(4); v != nil {
		steps, ok := b.facts.Constant(v)
		if !ok || at >= len(steps.I) || steps.I[at] != 1 {
			return 0, 0, errors.New("it takes steps along the divided axis")
		}
	}
	start, end = s.I[at], min(e.I[at], size)
	if start < 0 || end < 0 {
		return 0, 0, errors.New("it counts from the end of the divided axis")
	}
	return start, end, nil
}

// ends returns the pieces between the ends of all slices of a value along an axis.
func (b *block) ends(v *onnx.Value, axis int, size int64) ([]int64, error) {
	cuts := []int64{0, size}
	for _, u := range v.Uses() {
		if !u.Node.Is("Slice") || u.Index != 0 {
			continue
		}
		at, err := b.sliced(u.Node, axis)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			continue
		}
		start, end, err := b.rangeOf(u.Node, at, size)
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, start, end)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if len(cuts) == 2 {
		return nil, nil
	}
	runs := make([]int64, len(cuts)-1)
	for i := range runs {
		runs[i] = cuts[i+1] - cuts[i]
	}
	return runs, nil
}

// gather keeps the axes that it does not index.
func gather(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	indices, err := b.rank(n.Inputs[1])
	if err != nil {
		return err
	}
	axis, in := axisOf(n, r, 0), l.Axis
	switch {
	case output && l.Axis >= axis && l.Axis < axis+indices:
		return errors.New("its indices are divided")
	case output && l.Axis >= axis+indices:
		in = l.Axis - indices + 1
	}
	if in == axis {
		return fmt.Errorf("it indexes axis %d, which is divided", axis)
	}
	out := in
	if in > axis {
		out = in + indices - 1
	}
	if err := b.whole(n, 1); err != nil {
		return err
	}
	if err := b.take(n, 0, l.at(in)); err != nil {
		return err
	}
	return b.hold(n.Outputs[0], l.at(out))
}

func expand(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	out, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	in, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	axis := l.Axis
	if !output {
		axis += out - in
	}
	target, ok := b.facts.Known(n.Input(1), 0)
	if !ok {
		return errors.New("its shape is not known")
	}
	if place := axis - out + len(target.I); place >= 0 {
		if target.I[place] != 1 {
			if err := b.divide(n, 1, place, l); err != nil {
				return err
			}
		}
	}
	return b.aligned(n, n.Inputs[:1], n.Outputs[:1])
}

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
		if err := errors.Join(b.whole(n, 1), b.take(n, 0, l.at(a-2))); err != nil {
			return err
		}
		return b.hold(n.Outputs[0], l.at(r-2))
	}
	for i, rank := range []int{a, c} {
		size, ok := b.size(n.Inputs[i], max(rank+back, 0))
		switch {
		case rank+back < 0 || ok && size == 1:
			err = b.whole(n, i)
		default:
			err = b.take(n, i, l.at(rank+back))
		}
		if err != nil {
			return err
		}
	}
	return b.hold(n.Outputs[0], l.at(r+back))
}

func gemm(b *block, n *onnx.Node) error {
	if n.AttrInt("transA", 0) != 0 || n.AttrFloat("beta", 1) != 1 {
		return errors.New("its first factor is transposed or its bias scaled")
	}
	return b.product(n, 0, 1, 2, n.AttrInt("transB", 0) == 1)
}

// product is the rule of a product of rows with a matrix, stored by outputs or by inputs, and a bias.
func (b *block) product(n *onnx.Node, data, weight, bias int, byOutputs bool) error {
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
		if err := b.whole(n, weight, bias); err != nil {
			return err
		}
		if err := b.take(n, data, l); err != nil {
			return err
		}
		return b.hold(n.Outputs[0], l)
	case output:
		if err := errors.Join(b.whole(n, data), b.take(n, weight, l.at(out))); err != nil {
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
	if err := errors.Join(b.take(n, weight, l.at(in)), b.only(n, bias)); err != nil {
		return err
	}
	return b.sum(n.Outputs[0])
}

// shape makes the shape of a held value that of the whole.
func shape(b *block, n *onnx.Node) error {
	l, output, _ := b.known(n)
	if output {
		return errors.New("a shape is divided")
	}
	r, err := b.rank(n.Inputs[0])
	if err != nil {
		return err
	}
	factors := make([]int64, r)
	for i := range factors {
		factors[i] = 1
	}
	factors[l.Axis] = l.parts(b.ranks)
	start, end := n.AttrInt("start", 0), n.AttrInt("end", int64(r))
	if start < 0 {
		start += int64(r)
	}
	if end < 0 {
		end += int64(r)
	}
	b.shapes[n] = factors[min(max(start, 0), int64(r)):min(max(end, 0), int64(r))]
	return nil
}
