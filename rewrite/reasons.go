package rewrite

import (
	"errors"

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

// differs says on which inputs the replacement computes something else; exact is without roundings.
func differs(inputs string, exact bool, err error) error {
	mode := ""
	if exact {
		mode = " (in float64, without roundings)"
	}
	return reason.New(reason.Differs, nil, "differs from the matched nodes on %s%s: %w", inputs, mode, err).
		With("inputs", inputs).With("rounded", !exact)
}

// unknownElsewhere says that a value is known for some sizes of the symbolic dimensions alone.
func unknownElsewhere(v *onnx.Value) error {
	return reason.New(reason.Unknown, v.Producer, "the value of %q is not known for other dimensions", v.Name)
}
