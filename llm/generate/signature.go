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

// Paged describes the inputs and outputs of a decoder whose caches are pools of blocks (apply --cache paged).
type Paged struct {
	*Signature                    // its Caches are the pools, without an axis of sequences or tokens
	Cumulative, Past, Table Port  // the lengths, and the blocks of each sequence
	Windowed                *Port // the blocks of layers with a window, if others have none, else nil
	Window                  int64 // the longest of these
	Block                   int64 // tokens of a block
}

// Describe returns the signature of a decoder without pools, or the error of New.
func Describe(m *onnx.Model) (*Signature, error) {
	l, err := newLayout(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if l.paged != nil {
		return nil, fmt.Errorf("%s: its caches are pools of blocks, which only generate, genai's Engine (export genai "+
			"--engine) and your own loop can fill: apply --cache static makes a model for other engines", m.Path)
	}
	return l.signature(m), nil
}

// DescribePaged returns the signature of a decoder with pools, or the error of New.
func DescribePaged(m *onnx.Model) (*Paged, error) {
	l, err := newLayout(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if l.paged == nil || len(l.paged.pools) == 0 {
		return nil, fmt.Errorf("%s: its caches are not pools of blocks: patch it with --cache paged", m.Path)
	}
	p := &Paged{Signature: l.signature(m), Block: l.paged.pools[0].past.dims[1].Value}
	of := portsOf(m)
	p.Cumulative, p.Past, p.Table = of(l.paged.cumulative), of(l.paged.past), of(l.paged.tables[0])
	if len(l.paged.tables) > 1 {
		t := of(l.paged.tables[1])
		p.Windowed, p.Window = &t, int64(l.paged.groups[1].window)
	}
	return p, nil
}

// portsOf returns the function that finds the value of a port.
func portsOf(m *onnx.Model) func(port) Port {
	values := map[string]*onnx.Value{}
	for _, v := range append(m.Graph.Inputs[:len(m.Graph.Inputs):len(m.Graph.Inputs)], m.Graph.Outputs...) {
		values[v.Name] = v
	}
	return func(p port) Port { return Port{values[p.name], p.dataType, p.dims, p.role} }
}

func (l *layout) signature(m *onnx.Model) *Signature {
	of := portsOf(m)
	present := func(name string) Port { return of(outputPort(m.Graph.Value(name))) }
	s := &Signature{IDs: of(l.ids), Logits: of(l.logits), Vocabulary: l.vocabulary, Positions: l.positions}
	for _, p := range l.others {
		s.Others = append(s.Others, of(p))
	}
	if l.paged != nil {
		for _, c := range l.paged.all() {
			s.Caches = append(s.Caches, Cache{Past: of(c.past), Present: present(c.present), Batch: -1, Tokens: -1,
				InPlace: true})
		}
	}
	for _, c := range l.caches {
		s.Caches = append(s.Caches, Cache{Past: of(c.past), Present: present(c.present), Batch: c.batch,
			Tokens: c.sequence, InPlace: c.isBuffer()})
	}
	return s
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
