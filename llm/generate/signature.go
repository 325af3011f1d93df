package generate

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// Signature describes the inputs and outputs of a decoder.
type Signature struct {
	IDs    Port
	Logits Port
	Others []Port // inputs that are neither ids nor a cache
	Caches []Cache
	// Vocabulary is the number of ids that the model accepts, Positions the number of positions; 0 if the graph does
	// not limit them.
	Vocabulary, Positions int64
}

// Port is an input or output of a model.
type Port struct {
	Value    *onnx.Value
	DataType onnx.DataType
	Dims     []onnx.Dim
	Role     roles.Role // of an input
}

// String returns the name, type and shape.
func (p Port) String() string { return port{p.Value.Name, p.DataType, p.Dims, p.Role}.String() }

// Cache is a past with the present that replaces it.
type Cache struct {
	Past, Present Port
	// Batch is the axis of the sequences, Tokens the axis that grows; -1 if absent.
	Batch, Tokens int
	InPlace       bool // the model writes into the past, and its present is the same tensor
}

// Describe returns the signature of a decoder, or the error of New.
func Describe(m *onnx.Model) (*Signature, error) {
	l, err := newLayout(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if l.paged != nil {
		return nil, fmt.Errorf("%s: its caches are pools of blocks, which only generate and your own loop can fill: "+
			"apply --cache static makes a model for engines", m.Path)
	}
	values := map[string]*onnx.Value{}
	for _, v := range append(m.Graph.Inputs[:len(m.Graph.Inputs):len(m.Graph.Inputs)], m.Graph.Outputs...) {
		values[v.Name] = v
	}
	of := func(p port) Port { return Port{values[p.name], p.dataType, p.dims, p.role} }
	s := &Signature{IDs: of(l.ids), Logits: of(l.logits), Vocabulary: l.vocabulary, Positions: l.positions}
	for _, p := range l.others {
		s.Others = append(s.Others, of(p))
	}
	for _, c := range l.caches {
		s.Caches = append(s.Caches, Cache{Past: of(c.past), Present: of(outputPort(values[c.present])), Batch: c.batch,
			Tokens: c.sequence, InPlace: c.isBuffer()})
	}
	return s, nil
}

// Input returns the input of a role other than ids and cache, or nil.
func (s *Signature) Input(role roles.Role) *Port {
	for _, p := range s.Others {
		if p.Role == role {
			return &p
		}
	}
	return nil
}
