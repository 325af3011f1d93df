package reference

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
)

// Scope is an Override's view of the evaluation: the values that a node may read.
type Scope struct {
	e  *Evaluator
	sc *scope
	fr *op.Frame
}

// Bound returns the value that was computed or given for v. It returns nil for omitted inputs, and for constants, which
// it does not decode.
func (s *Scope) Bound(v *onnx.Value) *Tensor {
	if s.sc.isOmitted(v) {
		return nil
	}
	return s.sc.lookup(v)
}

// Value returns the value of v, including constants.
func (s *Scope) Value(v *onnx.Value) (*Tensor, error) { return s.e.value(v, s.sc) }

// Bind makes later nodes read t for v.
func (s *Scope) Bind(v *onnx.Value, t *Tensor) { s.sc.values[v] = t }

// Op evaluates the node as usual and returns its outputs.
func (s *Scope) Op(n *onnx.Node) ([]*Tensor, error) {
	in, err := s.e.inputs(n, s.sc)
	if err != nil {
		return nil, err
	}
	return s.e.dispatch(n, in, s.sc, s.fr)
}
