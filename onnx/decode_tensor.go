package onnx

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"github.com/mojo-patch/mojo-patch/onnx/internal/wire"
)

func (d *decoder) tensor(p *onnxpb.TensorProto) (*Tensor, error) {
	t := &Tensor{Name: p.GetName(), DataType: DataType(p.GetDataType()), Dims: p.Dims, proto: p, files: d.files}
	if err := d.tensorData(t, p); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return t, nil
}

// tensorData finds the elements of t and checks that they fit its shape. Empty raw_data beside typed fields counts as
// absent.
func (d *decoder) tensorData(t *Tensor, p *onnxpb.TensorProto) (err error) {
	if p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		if t.External, err = parseExternal(p); err != nil {
			return err
		}
		return d.files.check(t)
	}
	n, err := elementCount(t.Dims)
	if err != nil || p.RawData == nil {
		return err
	}
	if len(p.RawData) == 0 && n > 0 && hasTypedData(p) {
		return nil
	}
	t.raw = p.RawData
	if t.DataType == String || t.DataType > lastDataType { // types of later versions pass through unchecked
		return nil
	}
	if n, err = byteSize(t.DataType, t.Dims); err != nil {
		return err
	}
	if n != int64(len(t.raw)) {
		return fmt.Errorf("%s%v takes %d bytes, but raw_data holds %d", t.DataType, t.Dims, n, len(t.raw))
	}
	return nil
}

func hasTypedData(p *onnxpb.TensorProto) bool {
	return len(p.FloatData)+len(p.Int32Data)+len(p.Int64Data)+len(p.DoubleData)+len(p.Uint64Data)+len(p.StringData) > 0
}

// opaqueTensor checks a tensor in a field that is not modeled.
func (d *decoder) opaqueTensor(p *onnxpb.TensorProto) error {
	t, err := d.tensor(p)
	if err == nil {
		d.opaque = append(d.opaque, t)
	}
	return err
}

func (d *decoder) sparse(p *onnxpb.SparseTensorProto) (err error) {
	wire.Tensors(func(tp *onnxpb.TensorProto, _ bool) {
		if e := d.opaqueTensor(tp); err == nil && e != nil {
			err = fmt.Errorf("sparse %w", e)
		}
	}).Sparse(p)
	return err
}
