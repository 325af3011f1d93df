package patterns

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// weightBlock is a matrix of one expert as a part of an initializer that is taken for a table with rows of some length.
type weightBlock struct {
	source      *onnx.Value
	length      int64 // of the table's rows
	row, column int64 // where the block begins
	by          int64 // from one column to the next
	rows, columns,
	size int64 // rows*columns are as many elements; the rows of the matrix may be laid end to end
}

// block returns a matrix as a block whose rows are its outputs, or with inOut its inputs; nil where it is not stored so.
func (m *matrix) block(inOut bool) *weightBlock {
	rows, columns, step, unit := m.out, m.in, m.byOut, m.byIn
	if inOut {
		rows, columns, step, unit = m.in, m.out, m.byIn, m.byOut
	}
	if rows == 1 {
		step = columns
	}
	total, at := m.at.source.Constant().Len(), m.at.offset
	if columns == 1 {
		unit = 1
	}
	b := &weightBlock{source: m.at.source, size: rows * columns, by: unit}
	switch width := (columns-1)*unit + 1; {
	case unit < 1 || step < width:
		return nil
	case total%step == 0 && at%step+width <= step:
		b.length, b.row, b.column, b.rows, b.columns = step, at/step, at%step, rows, columns
	case step == columns:
		b.length, b.column, b.rows, b.columns = total, at, 1, b.size
	default:
		return nil
	}
	return b
}

// placed returns the blocks of all experts as one value; nil where there is no stack.
func (b *expertsBuilder) placed(name string, s *stack) *onnx.Value {
	if s == nil {
		return nil
	}
	list, dims, first := s.blocks, s.dims, s.blocks[0]
	source, total := b.source(name, first.source), first.source.Constant().Len()
	steps := int64(0) // rows of the table from one expert to the next
	if len(list) > 1 {
		steps = list[1].row - first.row
	}
	even := total == first.length*steps*int64(len(list)) && first.row+first.rows <= steps
	for e, w := range list {
		even = even && w.source == first.source && w.length == first.length && w.by == first.by && w.column == first.column && w.row == first.row+int64(e)*steps
	}
	switch {
	case even && first.rows == steps && first.columns == first.length: // all of it
		return b.reshaped(name, source, first.source.Constant().Dims, dims)
	case even:
		table := []int64{int64(len(list)), steps, first.length}
		v := b.reshaped(name+"_table", source, first.source.Constant().Dims, table)
		v = b.sliced(name+"_part", v, []int64{first.row, first.column}, []int64{first.rows, first.columns}, first.by, 1)
		return b.reshaped(name, v, []int64{table[0], first.rows, first.columns}, dims)
	}
	parts := make([]*onnx.Value, len(list))
	one := append([]int64{1}, dims[1:]...)
	for e, w := range list {
		part := fmt.Sprintf("%s_%d", name, e)
		v, have := b.source(part, w.source), w.source.Constant().Dims
		if total := w.source.Constant().Len(); w.size < total {
			v = b.reshaped(part+"_table", v, have, []int64{total / w.length, w.length})
			v = b.sliced(part+"_part", v, []int64{w.row, w.column}, []int64{w.rows, w.columns}, w.by, 0)
			have = []int64{w.rows, w.columns}
		}
		if slices.Equal(have, one[1:]) {
			parts[e] = b.node("Unsqueeze", part+"_row", []*onnx.Value{v, b.integers("axis", 0)})
		} else {
			parts[e] = b.reshaped(part+"_row", v, have, one)
		}
	}
	return b.concat(name, 0, parts...)
}

// source returns an initializer; one that only the body of a loop or a branch knows is taken along.
func (b *expertsBuilder) source(name string, v *onnx.Value) *onnx.Value {
	if w := b.stands[v]; w != nil {
		return w
	}
	for g := b.f.view.Graph; g != nil; g = g.Parent {
		if v.Graph == g {
			return b.input(name, v)
		}
	}
	b.stands[v] = b.b.constant(name, v.Constant())
	return b.stands[v]
}

func (b *expertsBuilder) reshaped(name string, v *onnx.Value, have, want []int64) *onnx.Value {
	if slices.Equal(have, want) {
		return v
	}
	return b.node("Reshape", name, []*onnx.Value{v, b.integers("shape", want...)})
}

// sliced takes n[i] places from from[i] on of the axes from axis on, those of the last one by steps.
func (b *expertsBuilder) sliced(name string, v *onnx.Value, from, n []int64, by, axis int64) *onnx.Value {
	ends, axes, steps := slices.Clone(n), slices.Clone(n), slices.Clone(n)
	for i := range ends {
		steps[i] = 1
		if i == len(n)-1 {
			steps[i] = by
		}
		ends[i] = from[i] + (n[i]-1)*steps[i] + 1
		axes[i] = axis + int64(i)
	}
	inputs := []*onnx.Value{v, b.integers("starts", from...), b.integers("ends", ends...), b.integers("axes", axes...)}
	if by > 1 {
		inputs = append(inputs, b.integers("steps", steps...))
	}
	return b.node("Slice", name, inputs)
}
