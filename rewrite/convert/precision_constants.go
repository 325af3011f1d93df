package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// fewElements bounds the constants that are converted immediately, and that are kept twice if both types are read.
const fewElements = 4096

// place locates the elements of a tensor, so that tied weights stay tied.
type place struct {
	location       string
	offset, length int64
	dims           string
}

func (r *rewriting) constants(g *onnx.Graph) error {
	for _, v := range slices.Clone(g.Initializers()) {
		if v.Const.DataType == onnx.Float {
			if err := r.constant(v, v.Const, func(t *onnx.Tensor) { r.edit.SetConst(v, t) }); err != nil {
				return err
			}
		}
	}
	for _, n := range slices.Clone(g.Nodes) {
		v := n.OutputValue(0)
		if !n.Is("Constant") || v == nil {
			continue
		}
		t := v.Constant()
		if t == nil || t.DataType != onnx.Float {
			continue
		}
		err := r.constant(v, t, func(t *onnx.Tensor) {
			r.edit.Become(n, "Constant", onnx.TensorAttr("value", t))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// constant converts one constant and passes the new tensor to put.
func (r *rewriting) constant(v *onnx.Value, t *onnx.Tensor, put func(*onnx.Tensor)) error {
	inHalf, inFloat := r.wanted(v)
	inHalf = inHalf || v.IsInput
	large := t.Len() > fewElements
	stored := false
	if inFloat && !inHalf && t.Len() > 1 && r.lacking(v) {
		inHalf, stored = true, true // a weight or bias of ops that a provider lacks in this type is stored in it
	}
	if !inHalf {
		if inFloat {
			r.report.Kept++
			if slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return r.wide[u.Node] }) {
				return nil // the caller wants the original numbers
			}
			return r.keep(v.Name, t, put)
		}
		if len(v.Uses()) == 0 && !v.IsOutput() {
			return nil
		}
	}
	small, err := r.tensor(v.Name, t)
	if err != nil {
		return err
	}
	if inFloat {
		other := v
		switch {
		case large || stored || v.IsInput || t.External != nil: // missing data has only one type
			r.types[v] = r.to
			other = r.cast(v, onnx.Float)
		default: // few elements: once in each type
			wide := t
			if err := r.keep(v.Name, t, func(t *onnx.Tensor) { wide = t }); err != nil {
				return err
			}
			copied := wide.Tied(wide.Name)
			copied.Name = t.Name
			if copied.Name == "" {
				copied.Name = v.Name
			}
			copied.Name += "_float32"
			other = r.edit.AddInitializer(v.Graph, copied)
			r.report.Kept++
		}
		for _, u := range slices.Clone(v.Uses()) {
			if u.Node != other.Producer && r.wants(u) == onnx.Float {
				r.edit.SetInput(u.Node, u.Index, other)
			}
		}
	}
	put(small)
	if declared, ok := v.Type(); ok {
		declared.DataType = r.to
		v.SetType(declared)
	}
	r.report.Initializers++
	r.report.Values += max(t.Len(), 0)
	return nil
}

// lacking reports whether all readers are in float32 only because kernels are missing.
func (r *rewriting) lacking(v *onnx.Value) bool {
	for _, u := range v.Uses() {
		o := u.Node.OutputValue(0)
		if o == nil || r.wide[u.Node] || fusedOp(u.Node) != nil ||
			r.kinds[o] != wide && !(r.kinds[o] == constant && moving[u.Node.OpType] && r.lacking(o)) {
			return false
		}
	}
	return true
}

// keep handles a constant that stays float32. Numbers beyond the range of the half type, such as those of masks, become
// its largest ones, because a Cast would make them infinite.
func (r *rewriting) keep(name string, t *onnx.Tensor, put func(*onnx.Tensor)) error {
	if t.Len() > fewElements {
		return nil
	}
	b, err := t.Bytes()
	if errors.Is(err, onnx.ErrMissingData) {
		return nil
	}
	if err != nil {
		return err
	}
	limit := greatest(r.to)
	var out []byte
	for i := 0; i+4 <= len(b); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		if math.IsInf(float64(x), 0) || !(math.Abs(float64(x)) > limit) {
			continue
		}
		if out == nil {
			out = slices.Clone(b)
		}
		binary.LittleEndian.PutUint32(out[i:], math.Float32bits(float32(math.Copysign(limit, float64(x)))))
	}
	if out == nil {
		return nil
	}
	c := newNarrowing(r.to, nil)
	if _, err := c.Write(b); err != nil {
		return err
	}
	r.outOfRange(name, c)
	limited, err := onnx.NewTensor(t.Name, onnx.Float, t.Dims, out)
	if err != nil {
		return err
	}
	put(limited)
	return nil
}

func (r *rewriting) outOfRange(name string, c *narrowing) {
	if c.beyond > 0 {
		r.report.OutOfRange = append(r.report.OutOfRange, OutOfRange{name, c.beyond, c.largest})
	}
}

func (r *rewriting) tensor(name string, t *onnx.Tensor) (*onnx.Tensor, error) {
	var at place
	if t.External != nil {
		at = place{t.External.Location, t.External.Offset, t.External.Length, fmt.Sprint(t.Dims)}
		if known := r.shared[at]; known != nil {
			return known.Tied(t.Name), nil
		}
	}
	c := newNarrowing(r.to, nil)
	err := t.WriteElements(c)
	var out *onnx.Tensor
	switch {
	case errors.Is(err, onnx.ErrMissingData):
		r.report.Missing++
		missing := t.Tied(t.Name)
		missing.DataType = r.to
		if x := *t.External; x.Length > 0 {
			x.Length /= 2
			x.Checksum = ""
			missing.External = &x
		}
		return missing, nil
	case err != nil:
		return nil, fmt.Errorf("cannot convert to %s: %w", r.to, err)
	case t.Len() <= fewElements:
		var b bytes.Buffer
		if err := t.WriteElements(newNarrowing(r.to, &b)); err != nil {
			return nil, err
		}
		out, err = onnx.NewTensor(t.Name, r.to, t.Dims, b.Bytes())
	default:
		to := r.to
		out, err = onnx.NewDeferred(t.Name, to, t.Dims, func(w io.Writer) error {
			return t.WriteElements(newNarrowing(to, w))
		})
	}
	if err != nil {
		return nil, err
	}
	r.outOfRange(name, c)
	if at.location != "" {
		r.shared[at] = out
	}
	return out, nil
}
