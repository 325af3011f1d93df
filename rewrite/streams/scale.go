package streams

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// scaler writes chosen exponents into the constants and epsilons of a model.
type scaler struct {
	edit  edit.Change
	half  map[*onnx.Value]bool // values that become float16
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
		wide := false
		for i, v := range n.Inputs {
			use := onnx.Use{Node: n, Index: i}
			wide = wide || b.widens[use] && !keepsDigits(v.Constant(), exponent(b.reads[use]))
		}
		for i, v := range slices.Clone(n.Inputs) {
			x, ok := b.reads[onnx.Use{Node: n, Index: i}]
			if !ok || exponent(x) == 0 {
				continue
			}
			alone := v.IsConstant() && !v.IsOutput() && !slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool {
				other, ok := b.reads[u]
				return !ok || exponent(other) != exponent(x)
			})
			to := v.Constant().DataType
			if wide && b.widens[onnx.Use{Node: n, Index: i}] {
				to = onnx.Float
			}
			w, err := s.scaled(v, exponent(x), to, alone)
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

// keepsDigits reports whether a constant times a power of two has the same type.
func keepsDigits(t *onnx.Tensor, exponent int) bool {
	e, power, keeps, b := elements[t.DataType], math.Ldexp(1, exponent), true, make([]byte, 8)
	err := each(t, func(x float64) {
		e.write(b, power*x)
		keeps = keeps && (e.read(b) == power*x || x != x)
	})
	return err == nil && keeps
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

// scaled returns a constant times a power of two, in a type. With alone, it is the constant itself with new elements,
// because all readers need the same.
func (s *scaler) scaled(v *onnx.Value, exponent int, to onnx.DataType, alone bool) (*onnx.Value, error) {
	if w := s.made[v][exponent]; w != nil {
		return w, nil
	}
	scaled, err := timesPower(v.Constant(), exponent, to)
	if err != nil {
		return nil, err
	}
	s.count++
	if (s.half == nil || s.half[v]) && v.Constant().DataType != onnx.Float16 {
		power := math.Ldexp(1, exponent)
		if err := each(v.Constant(), func(x float64) {
			if !isLost(x) && isLost(power*x) {
				s.lost++
			}
		}); err != nil {
			return nil, err
		}
	}
	if alone {
		scaled.Name = v.Name
		s.edit.SetConst(v, scaled)
		if t, ok := v.Type(); ok && t.DataType != to {
			t.DataType = to
			s.edit.SetType(v, t)
		}
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

// timesPower returns a tensor times 2^exponent in a type. Large tensors are computed while they are read.
func timesPower(t *onnx.Tensor, exponent int, to onnx.DataType) (*onnx.Tensor, error) {
	e, ok := elements[t.DataType]
	if !ok {
		return nil, fmt.Errorf("constant %q is of %s, which is not scaled", t.Name, t.DataType)
	}
	power, write := math.Ldexp(1, exponent), elements[to].write
	from, width := t.DataType.Bits()/8, to.Bits()/8
	compute := func(dst []byte, first int64) error {
		raw := make([]byte, len(dst)/width*from)
		if err := t.ReadElements(raw, first); err != nil {
			return err
		}
		for i := range len(raw) / from {
			write(dst[i*width:], power*e.read(raw[i*from:]))
		}
		return nil
	}
	if t.Len() > fewElements {
		return onnx.NewComputed(t.Name, to, t.Dims, compute)
	}
	raw := make([]byte, t.Len()*int64(width))
	if err := compute(raw, 0); err != nil {
		return nil, err
	}
	return onnx.NewTensor(t.Name, to, t.Dims, raw)
}
