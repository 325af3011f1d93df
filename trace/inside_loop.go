package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// loop runs the bodies of a Loop as long as both models do.
func (r *pass) loop(c *control) error {
	var limit [2]int64
	var on [2]bool
	last := &round{off: []float64{0}}
	for i, n := range c.nodes {
		var state []*onnx.Tensor
		var err error
		if limit[i], on[i], state, err = loopStart(n, r.lookup(i)); err != nil {
			return err
		}
		last.made[i] = append([]*onnx.Tensor{nil}, state...) // nil is the condition
	}
	for _, v := range c.nodes[0].Inputs[min(2, len(c.nodes[0].Inputs)):] {
		last.off = append(last.off, r.errors[v])
	}
	if len(last.made[0]) != len(last.made[1]) {
		return errors.New("it carries more values in one model than in the other")
	}
	tied := false
	for i := 0; ; i++ {
		over := [2]bool{!on[0] || int64(i) >= limit[0], !on[1] || int64(i) >= limit[1]}
		if over[0] != over[1] {
			which := map[bool]string{true: "first", false: "second"}[over[0]]
			return fmt.Errorf("it ends after %d iterations in the %s model, but continues in the other", i, which)
		}
		if over[0] {
			break
		}
		now := &round{keep: len(last.made[0]), errors: append([]float64{0}, last.off...)}
		given, err := iterationInputs(i)
		if err != nil {
			return err
		}
		for k := range c.nodes {
			now.inputs[k] = slices.Concat(given, last.made[k][1:])
		}
		if err := r.iterate(c, Step{Node: c.nodes[0].Label(), Graph: "body", Iteration: &i}, now); err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
		for k := range on {
			if on[k], err = truth(now.made[k][0]); err != nil {
				return err
			}
		}
		last, tied = now, tied || now.tied
	}
	if tied {
		r.settle(c, last.made[1][1:])
	}
	return nil
}

// numbers returns the integers of a tensor.
func numbers(t *onnx.Tensor) ([]int64, error) {
	if t == nil {
		return nil, errors.New("it is not known")
	}
	return golden.Int64s(t)
}

// scan runs the bodies of a Scan for each position along the axes of the scanned inputs.
func (r *pass) scan(c *control) error {
	var pieces [2][][]*onnx.Tensor // of each position
	last := &round{}
	for i, n := range c.nodes {
		var err error
		if last.made[i], pieces[i], err = scanStart(n, r.lookup(i)); err != nil {
			return err
		}
	}
	for _, v := range c.nodes[0].Inputs[:len(last.made[0])] {
		last.off = append(last.off, r.errors[v])
	}
	if len(pieces[0]) != len(pieces[1]) || len(last.made[0]) != len(last.made[1]) {
		return errors.New("it runs over other inputs in the second model")
	}
	tied := false
	for at := range pieces[0] {
		now := &round{keep: len(last.made[0]), errors: last.off}
		for k := range c.nodes {
			now.inputs[k] = append(slices.Clone(last.made[k]), pieces[k][at]...)
		}
		if err := r.iterate(c, Step{Node: c.nodes[0].Label(), Graph: "body", Iteration: &at}, now); err != nil {
			return fmt.Errorf("iteration %d: %w", at, err)
		}
		last, tied = now, tied || now.tied
	}
	if tied {
		r.settle(c, last.made[1])
	}
	return nil
}

func attrAt(n *onnx.Node, name string, i int) int64 {
	if list := n.AttrInts(name); i < len(list) {
		return list[i]
	}
	return 0
}

// places splits a tensor along an axis and removes the axis.
func places(t *onnx.Tensor, axis int64, backwards bool) ([]*onnx.Tensor, error) {
	if t == nil {
		return nil, errors.New("one of its inputs is not a tensor")
	}
	rank := int64(len(t.Dims))
	if axis < 0 {
		axis += rank
	}
	if axis < 0 || axis >= rank {
		return nil, fmt.Errorf("it scans axis %d of a tensor of shape %v", axis, t.Dims)
	}
	strides := onnx.RowMajor(t.Dims)
	dims := slices.Delete(slices.Clone(t.Dims), int(axis), int(axis)+1)
	rest := slices.Delete(slices.Clone(strides), int(axis), int(axis)+1)
	var list []*onnx.Tensor
	for i := range t.Dims[axis] {
		v, err := t.View("", dims, i*strides[axis], rest)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if backwards {
		slices.Reverse(list)
	}
	return list, nil
}
