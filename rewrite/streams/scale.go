package streams

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// scaler writes chosen exponents into the constants and epsilons of a model.
type scaler struct {
	edit  edit.Change
	graph *onnx.Graph
	made  map[*onnx.Value]map[int]*onnx.Value
	old   []*onnx.Value
	// count and epsilons are the numbers of scaled constants and epsilons. lost counts elements that become 0 in
	// float16 because of it.
	count, epsilons int
	lost            int64
}

// write multiplies each constant by the power of two of its exponent, separately for each reader.
func (s *scaler) write(b *builder, exponent func(int) int) error {
	s.made = map[*onnx.Value]map[int]*onnx.Value{}
	for _, n := range nodes(s.graph) {
		for i, v := range slices.Clone(n.Inputs) {
			x, ok := b.reads[onnx.Use{Node: n, Index: i}]
			if !ok || exponent(x) == 0 {
				continue
			}
			alone := v.IsConstant() && !v.IsOutput() && !slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool {
				other, ok := b.reads[u]
				return !ok || exponent(other) != exponent(x)
			})
			w, err := s.scaled(v, exponent(x), alone)
			if err != nil {
				return err
			}
			if w != v {
				s.edit.SetInput(n, i, w)
			}
		}
	}
	for _, e := range b.epsilons {
		if k := exponent(e.x); k != 0 {
			s.edit.SetAttr(e.node, onnx.FloatAttr("epsilon", float32(math.Ldexp(float64(e.value), 2*k))))
			s.epsilons++
		}
	}
	for _, v := range s.old {
		if n := v.Producer; n != nil {
			s.edit.Drop(n)
		}
	}
	s.edit.DropConstants(s.old...)
	return s.edit.Finish()
}

// ownConstants copies small constants of float32 nodes that others read too, so that the copies are not rounded.
func ownConstants(nodes map[*onnx.Node]bool) error {
	var change edit.Change
	copies := map[*onnx.Value]*onnx.Value{}
	for n := range nodes {
		for i, v := range slices.Clone(n.Inputs) {
			t := v.Constant()
			if t == nil || t.DataType != onnx.Float || t.Len() > fewElements ||
				!slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return !nodes[u.Node] }) {
				continue
			}
			if copies[v] == nil {
				t = t.Tied(v.Name + "_wide")
				copies[v] = change.AddInitializer(n.Graph, t)
			}
			change.SetInput(n, i, copies[v])
		}
	}
	return change.Finish()
}

// scaled returns a constant times a power of two. With alone, it is the constant itself with new elements, because all
// readers need the same.
func (s *scaler) scaled(v *onnx.Value, exponent int, alone bool) (*onnx.Value, error) {
	if w := s.made[v][exponent]; w != nil {
		return w, nil
	}
	scaled, err := timesPower(v.Constant(), exponent)
	if err != nil {
		return nil, err
	}
	s.count++
	power := math.Ldexp(1, exponent)
	if err := each(v.Constant(), func(x float64) {
		if !isLost(x) && isLost(power*x) {
			s.lost++
		}
	}); err != nil {
		return nil, err
	}
	if alone {
		scaled.Name = v.Name
		s.edit.SetConst(v, scaled)
		s.made[v] = map[int]*onnx.Value{exponent: v}
		return v, nil
	}
	scaled.Name = fmt.Sprintf("%s_times_2^%d", v.Name, exponent)
	w := s.edit.AddInitializer(s.graph, scaled)
	if s.made[v] == nil {
		s.made[v] = map[int]*onnx.Value{}
		s.old = append(s.old, v)
	}
	s.made[v][exponent] = w
	return w, nil
}

// timesPower returns a tensor times 2^exponent. Large tensors are computed while they are read.
func timesPower(t *onnx.Tensor, exponent int) (*onnx.Tensor, error) {
	if t.DataType != onnx.Float && t.DataType != onnx.Double {
		return nil, fmt.Errorf("constant %q is of %s, which is not scaled", t.Name, t.DataType)
	}
	width := t.DataType.Bits() / 8
	power := math.Ldexp(1, exponent)
	scale := func(b []byte) {
		for at := 0; at < len(b); at += width {
			if width == 4 {
				x := math.Float32frombits(binary.LittleEndian.Uint32(b[at:]))
				binary.LittleEndian.PutUint32(b[at:], math.Float32bits(float32(power*float64(x))))
			} else {
				x := math.Float64frombits(binary.LittleEndian.Uint64(b[at:]))
				binary.LittleEndian.PutUint64(b[at:], math.Float64bits(power*x))
			}
		}
	}
	if t.Len() > fewElements {
		return onnx.NewComputed(t.Name, t.DataType, t.Dims, func(dst []byte, from int64) error {
			if err := t.ReadElements(dst, from); err != nil {
				return err
			}
			scale(dst)
			return nil
		})
	}
	raw, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	raw = slices.Clone(raw)
	scale(raw)
	return onnx.NewTensor(t.Name, t.DataType, t.Dims, raw)
}
