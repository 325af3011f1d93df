package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// widen takes a model of half types to float32, exactly: constants, Casts, declared types, and no Cast of float32 to
// itself.
func widen(m *onnx.Model, r *PrecisionReport) error {
	isHalf := func(t onnx.DataType) bool { return t == onnx.Float16 || t == onnx.BFloat16 }
	declared := func(v *onnx.Value) {
		if v == nil {
			return
		}
		if t, ok := v.Type(); ok && isHalf(t.DataType) {
			t.DataType = onnx.Float
			v.SetType(t)
		}
	}
	var err error
	convert := func(t *onnx.Tensor) *onnx.Tensor {
		if err != nil || t == nil || !isHalf(t.DataType) {
			return t
		}
		var out *onnx.Tensor
		if out, err = widened(t, r); err == nil {
			r.Initializers++
			r.Values += max(t.Len(), 0)
		}
		return out
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			v.Const = convert(v.Const)
			declared(v)
		}
		for _, v := range slices.Concat(g.Inputs, g.Outputs) {
			declared(v)
		}
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				declared(v)
			}
			for _, a := range n.Attributes {
				if a.Tensor != nil {
					a.Tensor = convert(a.Tensor)
				}
				if a.Type == onnx.AttrInt && isHalf(onnx.DataType(a.Int)) && typeAttributes[a.Name] {
					a.Int = int64(onnx.Float)
				}
			}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot convert to float32: %w", err)
	}
	p := &precision{model: m, report: r}
	p.removeCasts()
	return nil
}

// typeAttributes are the attributes that hold an element type.
var typeAttributes = set("to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type")

// widened converts a tensor of a half type.
func widened(t *onnx.Tensor, r *PrecisionReport) (*onnx.Tensor, error) {
	missing := false
	if t.External != nil {
		_, err := t.Bytes()
		missing = errors.Is(err, onnx.ErrMissingData)
	}
	if missing {
		r.Missing++
		c := t.Tied(t.Name)
		c.DataType = onnx.Float
		x := *t.External
		x.Offset, x.Length, x.Checksum = 2*x.Offset, 2*x.Length, ""
		if x.Length < 0 {
			x.Length = -1
		}
		c.External = &x
		return c, nil
	}
	from := t.DataType
	if t.Len() > fewElements {
		return onnx.NewDeferred(t.Name, onnx.Float, t.Dims, func(w io.Writer) error {
			return t.WriteElements(widening(from, w))
		})
	}
	var b bytes.Buffer
	if err := t.WriteElements(widening(from, &b)); err != nil {
		return nil, err
	}
	return onnx.NewTensor(t.Name, onnx.Float, t.Dims, b.Bytes())
}
