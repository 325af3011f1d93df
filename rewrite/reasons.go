package rewrite

import (
	"errors"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// explain writes down why a site was left as it was.
func (s *SiteReport) explain(err error) {
	s.Reason, s.Code = err.Error(), reason.Unchecked
	if r := reason.As(err); r != nil {
		s.Code, s.Figures = r.Code, r.Figures
		if r.Node != nil {
			s.At = nodeName(r.Node)
		}
	}
	if errors.Is(err, onnx.ErrMissingData) {
		s.Code = reason.MissingWeights
	}
	if s.Status = Refused; s.Code == reason.Target {
		s.Status = Open
	}
}

// supports errs unless the op's kernels take the site. It is the types that they do not take where they would take the
// site in float32.
func supports(op *fused.Op, s fused.Site) error {
	err := op.Supports(s)
	if err == nil || reason.As(err) != nil {
		return err
	}
	code, float := reason.Signature, s
	float.Types = slices.Clone(s.Types)
	for i, t := range float.Types {
		if t.IsFloat() {
			float.Types[i] = onnx.Float
		}
	}
	if op.Supports(float) == nil {
		code = reason.Types
	}
	return reason.New(code, nil, "%w", err).With("op", op.Name)
}

// differs says on which inputs the replacement computes something else; exact is without roundings.
func differs(inputs string, exact bool, err error) error {
	return reason.New(reason.Differs, nil, "differs from the matched nodes on %s%s: %w", inputs, mode(exact), err).
		With("inputs", inputs).With("rounded", !exact)
}

// unknownElsewhere says that a value is known for some sizes of the symbolic dimensions alone.
func unknownElsewhere(v *onnx.Value) error {
	return reason.New(reason.Unknown, v.Producer, "the value of %q is not known for other dimensions", v.Name)
}
