package weights

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
)

// KeepOptions controls which weights keep the checkpoint's format.
type KeepOptions struct {
	// Keep reports whether a key with this tensor should stay quantized. nil keeps all.
	Keep func(key, tensor string) bool
	// Halves also keeps float32 weights that the checkpoint has in float16 or bfloat16.
	Halves bool
	// Activations is the attribute of mojo.Linear: int16 (also if empty), int8 or float. FP8 weights are multiplied
	// with floats; fp8 rounds their activations to 8-bit floats, and activations of other weights to int16.
	Activations string
	// Rewrite controls the check of each kind of site.
	Rewrite rewrite.Request
}

// KeepQuantized makes the graph read quantized weights in the checkpoint's format. mojo.Linear replaces their products,
// mojo.Embedding their Gather, and mojo.QMoE replaces mojo.MoE; the model stores the file's blocks in panels. With
// Halves, products read 16-bit floats as in the file (mojo.HalfLinear). Apply widens the other weights, and Report
// returns the reason for each. Call KeepQuantized before Apply.
func (p *Plan) KeepQuantized(m *onnx.Model, o KeepOptions) error {
	if o.Activations == "" {
		o.Activations = "int16"
	}
	x := &keeper{matrices: map[string]*matrixRows{}, of: map[*quantized.Weight]*assignment{},
		halves: map[string]*onnx.Tensor{}, halfOf: map[*quantized.Narrow]*halfKey{}}
	for _, a := range p.assignments {
		if a.present || o.Keep != nil && !o.Keep(a.value.Name, a.tensors[0].Name) {
			continue
		}
		if t := a.halfType(); o.Halves && t != onnx.Undefined {
			a.why = x.addHalf(p, a, t)
			continue
		}
		if err := x.add(a); err != nil {
			a.why = err
		}
	}
	r, err := rewrite.Quantize(m, x.weights, o.Activations, o.Rewrite)
	if err != nil {
		return err
	}
	if len(x.narrow) > 0 {
		checks, err := rewrite.Narrow(m, x.narrow, o.Rewrite)
		if err != nil {
			return err
		}
		r.Include(checks)
		x.keepHalves()
	}
	for w, err := range r.Refuse {
		x.of[w].why = err
	}
	for _, w := range r.Kept {
		x.of[w].kept = x.matrices[x.of[w].source()]
	}
	p.check = &QuantizedCheck{Activations: cmp.Or(strings.Join(r.Activations, " and "), "float"), Kinds: r.Checked,
		Structural: r.Structural, Definition: r.Definition, Kernels: r.Kernels, Kernel: r.Kernel}
	return nil
}

// keeper collects the weights that may stay quantized.
type keeper struct {
	weights  []*quantized.Weight
	of       map[*quantized.Weight]*assignment
	matrices map[string]*matrixRows // by source

	narrow []*quantized.Narrow
	halfOf map[*quantized.Narrow]*halfKey
	halves map[string]*onnx.Tensor // by source
}

// add makes the quantized form of a key, or returns the reason why it cannot.
func (x *keeper) add(a *assignment) error {
	panels := a.tensors[0].Panels
	for _, t := range a.tensors {
		switch {
		case t.Panels == nil:
			return fmt.Errorf("the file stores it as %s", t.Type)
		case t.Panels != panels:
			return fmt.Errorf("its tensors are of several types")
		}
	}
	if a.value.Const.Len() == 0 {
		return fmt.Errorf("it has no elements")
	}
	block, experts, err := a.rows()
	if err != nil {
		return err
	}
	if a.recipe.add != 0 {
		return fmt.Errorf("%+g is added to each element", a.recipe.add)
	}
	n, k := block.size()
	if experts > 0 && n/experts%blocks.PanelRows != 0 {
		return fmt.Errorf("its experts have %d rows, but panels have %d", n/experts, blocks.PanelRows)
	}
	for i, p := range block.pieces {
		if p.cols != k || p.cols%int64(p.t.Format.Elements) != 0 || p.first%p.cols != 0 {
			return fmt.Errorf("its row length %d is not a multiple of a block of %s", p.cols, p.t.Type)
		}
		if first := p.first / p.cols; panels.Shared && (first%blocks.PanelRows != 0 || p.heads != 0 ||
			p.rows%blocks.PanelRows != 0 && i < len(block.pieces)-1) {
			return fmt.Errorf("the model has one scale for 16 rows, but the rows from %d on of %s do not share "+
				"scales this way", first,
				p.t.Name)
		}
	}
	source := a.source()
	if x.matrices[source] == nil {
		made := &matrixRows{panels: panels, pieces: block.pieces, n: n, k: k}
		format := strings.ToLower(a.tensors[0].Type)
		if err := made.describe(a.value.Name, format, experts); err != nil {
			return err
		}
		x.matrices[source] = made
	}
	made := x.matrices[source]
	w := &quantized.Weight{Value: a.value, InOut: block.transposed, Matrix: made.matrix, Sample: made.sample}
	x.weights, x.of[w] = append(x.weights, w), a
	return nil
}

// rows returns a key's matrix, or all matrices of experts, stacked.
func (a *assignment) rows() (all *block, experts int64, err error) {
	dims, blocks := a.value.Const.Dims, a.recipe.blocks
	switch {
	case len(dims) == 2 && len(blocks) == 1:
		return &blocks[0], 0, nil
	case len(dims) == 3 && len(blocks) == 1 && !blocks[0].transposed && dims[0] > 0:
		// Pieces hold all experts of a tensor. An expert's rows are contiguous only if there is one piece.
		if n, k := blocks[0].size(); len(blocks[0].pieces) == 1 && n*k == a.value.Const.Len() {
			flat := blocks[0].pieces[0]
			flat.rows, flat.cols = dims[0]*dims[1], dims[2]
			return &block{pieces: []piece{flat}}, dims[0], nil
		}
	case len(dims) == 3 && len(blocks) > 0 && int64(len(blocks)) == dims[0]:
		all = &block{transposed: blocks[0].transposed}
		for _, b := range blocks {
			all.pieces = append(all.pieces, b.pieces...)
		}
		return all, dims[0], nil
	}
	return nil, 0, fmt.Errorf("it has the shape %v, but a product reads a matrix or experts", dims)
}

// source identifies the file's rows for a key's matrix. It is equal for keys that share the matrix, transposed or not.
func (a *assignment) source() string {
	var b strings.Builder
	all, _, err := a.rows()
	if err != nil {
		return ""
	}
	for _, p := range all.pieces {
		fmt.Fprintf(&b, "%p %d %d %d %d ", p.t, p.first, p.rows, p.cols, p.heads)
	}
	return b.String()
}

// matrixRows is a matrix [n, k] of a file's rows, which keep their format.
type matrixRows struct {
	panels *blocks.Panels
	pieces []piece
	n, k   int64
	matrix *fused.Quantized
	// written is called after the codes are written.
	written func()
}

// each calls f for all rows in the initializer's order, with the row as stored in the file.
func (m *matrixRows) each(rows int64, f func(row int64, p *piece, at int64, stored []byte) error) error {
	row, buffer := int64(0), make([]byte, m.rowSize())
	for i := range m.pieces {
		p := &m.pieces[i]
		for r := int64(0); r < p.rows && row < rows; r, row = r+1, row+1 {
			at := p.first/p.cols + p.fileRow(r)
			stored, err := p.t.Stored(at, m.rowSize(), buffer)
			if err == nil {
				err = f(row, p, at, stored)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rowSize returns the number of bytes of a row in the file.
func (m *matrixRows) rowSize() int64 {
	f := m.pieces[0].t.Format
	return m.k / int64(f.Elements) * int64(f.Size)
}

// fileSize returns the number of bytes of the rows in the file.
func (m *matrixRows) fileSize() (n int64) {
	for _, p := range m.pieces {
		n += p.t.Size * p.rows * p.cols / p.t.Len()
	}
	return n
}

// fileRow returns the file's row for PyTorch's row; see unpermuted.
func (p *piece) fileRow(row int64) int64 {
	if p.heads == 0 {
		return row
	}
	d := p.rows / p.heads
	head, in := row/d, row%d
	return head*d + in%(d/2)*2 + in/(d/2)
}

// describe makes the tensors, whose elements are read when the model is written.
func (m *matrixRows) describe(name, format string, experts int64) (err error) {
	m.matrix, err = fused.NewQuantized(name, format, m.panels, m.n, m.k, experts, func(name string, t onnx.DataType,
		dims []int64, array int) (*onnx.Tensor, error) {
		return onnx.NewDeferred(name, t, dims, func(w io.Writer) error { return m.write(w, array) })
	})
	return err
}

// write writes one of the arrays, panel by panel. It decodes the written codes as the op's definition does, and
// compares them with the format's values.
func (m *matrixRows) write(w io.Writer, array int) error {
	panel := m.panels.New(m.k)
	checks := array == 0
	made := panel.Arrays()[array]
	if !checks { // build only the requested array
		asked := *made
		*panel = blocks.Panel{}
		*made = asked
	}
	got, want := make([]float32, m.k), make([]float32, m.k)
	err := m.each(m.n, func(row int64, p *piece, at int64, stored []byte) error {
		r := int(row % blocks.PanelRows)
		m.panels.Pack(panel, r, stored)
		if checks {
			if err := p.t.Float32(want, at*m.k); err != nil {
				return err
			}
			m.panels.Decode(got, panel, r)
			if i := differing(got, want); i >= 0 {
				return fmt.Errorf("tensor %q: element %d of row %d is %v, but %v in the form that mojo.Linear reads: "+
					"it cannot stay quantized", p.t.Name, i, at, want[i], got[i])
			}
		}
		if r < blocks.PanelRows-1 && row < m.n-1 {
			return nil
		}
		_, err := w.Write(*made)
		clear(*made)
		return err
	})
	if err == nil && checks && m.written != nil {
		m.written()
	}
	return err
}

// differing returns the index of the first element that differs, or -1.
func differing(got, want []float32) int {
	for i, x := range want {
		if got[i] != x && !(math.IsNaN(float64(x)) && math.IsNaN(float64(got[i]))) {
			return i
		}
	}
	return -1
}

// sample returns the first rows, quantized and as floats.
func (m *matrixRows) sample(rows int64) (*fused.Quantized, []float32, error) {
	first := *m
	first.n = min(rows, m.n)
	q, err := fused.NewQuantized("sample", m.matrix.Format, m.panels, first.n, m.k, 0, func(name string,
		t onnx.DataType, dims []int64, array int) (*onnx.Tensor, error) {
		var b strings.Builder
		if err := first.write(&b, array); err != nil {
			return nil, err
		}
		return onnx.NewTensor(name, t, dims, []byte(b.String()))
	})
	if err != nil {
		return nil, nil, err
	}
	floats := make([]float32, first.n*m.k)
	err = first.each(first.n, func(row int64, p *piece, at int64, _ []byte) error {
		return p.t.Float32(floats[row*m.k:(row+1)*m.k], at*m.k)
	})
	return q, floats, err
}
