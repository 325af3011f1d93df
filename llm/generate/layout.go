package generate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// port is an input or output of the model.
type port struct {
	name     string
	dataType onnx.DataType
	dims     []onnx.Dim
	role     roles.Role
}

// String returns the name, type and shape.
func (p port) String() string {
	dims := make([]string, len(p.dims))
	for i, d := range p.dims {
		dims[i] = axisName(d)
	}
	return fmt.Sprintf("%s %s[%s]", p.name, p.dataType, strings.Join(dims, ", "))
}

func axisName(d onnx.Dim) string {
	switch {
	case d.Value >= 0:
		return fmt.Sprint(d.Value)
	case d.Param != "":
		return d.Param
	}
	return "?"
}

// layout describes how to feed a model: the meaning of each input, and the content of its outputs.
type layout struct {
	ids    port
	others []port // all inputs except the ids and the cache
	caches []cache
	paged  *pagedLayout // how to feed a model whose caches are pools of blocks, else nil
	logits port
	sample *samplePorts // how to choose tokens in the model, nil if it does not
	// vocabulary is the number of ids that the model accepts, 0 if the graph leaves it open.
	vocabulary int64
	// positions is the number of positions that the model supports, 0 for no limit.
	positions int64
}

// cached reports whether the model keeps keys, values or states of earlier tokens.
func (l *layout) cached() bool { return len(l.caches) > 0 || l.paged != nil }

// batch returns the fixed number of sequences that the graph takes, or 0 for any number.
func (l *layout) batch() int {
	switch {
	case l.paged != nil:
		return 0
	case len(l.ids.dims) == 1:
		return 1
	case l.ids.dims[0].Value > 0:
		return int(l.ids.dims[0].Value)
	}
	return 0
}

// sequence returns the fixed number of new tokens per run that the graph takes, or 0 for any number.
func (l *layout) sequence() int { return max(0, int(l.ids.dims[len(l.ids.dims)-1].Value)) }

func (l *layout) has(role roles.Role) bool {
	return slices.ContainsFunc(l.others, func(p port) bool { return p.role == role })
}

// LayoutError reports that a model cannot generate text, or that its inputs are not understood.
type LayoutError struct {
	Reason string
	Inputs []string // each with its assumed meaning
}

func (e *LayoutError) Error() string {
	return e.Reason + "\nits inputs and their purpose:\n  " + strings.Join(e.Inputs, "\n  ")
}

// newLayout finds out how to feed the model.
func newLayout(m *onnx.Model) (*layout, error) {
	l := &layout{}
	inputs := roles.Find(m)
	if err := l.read(m, inputs); err != nil {
		e := &LayoutError{Reason: err.Error()}
		for _, in := range inputs {
			e.Inputs = append(e.Inputs, fmt.Sprintf("%s: %s", toPort(in), l.meaning(in)))
		}
		if len(inputs) == 0 {
			e.Inputs = []string{"none"}
		}
		return nil, e
	}
	return l, nil
}

func toPort(in *roles.Input) port {
	return port{in.Value.Name, in.DataType, in.Dims, in.Role}
}

// meaning describes the assumed meaning of an input.
func (l *layout) meaning(in *roles.Input) string {
	name := in.Value.Name
	switch {
	case name == l.ids.name:
		return "token ids"
	case slices.ContainsFunc(l.caches, func(c cache) bool { return c.past.name == name }):
		return "cache"
	case typeIDs(in):
		return "token types"
	}
	return in.Role.String()
}

func (l *layout) read(m *onnx.Model, inputs []*roles.Input) error {
	for _, in := range inputs {
		name := in.Value.Name
		switch {
		case roles.NameHas(name, "encoder"):
			return fmt.Errorf("it is the decoder of an encoder-decoder model (input %q): generate supports only "+
				"decoder-only models", name)
		case !in.Typed:
			return fmt.Errorf("input %q is not a tensor", name)
		case in.DataType.IsFloat() && roles.NameHas(name, "embed"):
			return fmt.Errorf("it takes embeddings (input %q) instead of token ids: export it with its embedding "+
				"table", name)
		}
	}
	if err := l.findIDs(inputs); err != nil {
		return err
	}
	if err := l.findLogits(m); err != nil {
		return err
	}
	l.sample = findSample(m, l.logits.name)
	var pasts []*roles.Input
	for _, in := range inputs {
		p := toPort(in)
		switch {
		case p.name == l.ids.name:
		case p.role == roles.Pool || p.role == roles.Cumulative || p.role == roles.BlockTable:
			l.addPaged(in)
		case typeIDs(in):
			l.others = append(l.others, p) // all zeros
		case p.role == roles.Past || p.role == roles.Buffer || p.role == roles.Other && len(p.dims) >= 2:
			pasts = append(pasts, in)
		case p.role == roles.Other || p.role == roles.Index:
			return fmt.Errorf("cannot tell the purpose of input %q", p.name)
		default:
			l.others = append(l.others, p)
		}
		if p.role == roles.Position {
			l.limit(in.Tables)
		}
	}
	if err := errors.Join(l.findCaches(m, pasts), l.checkPaged(m, pasts)); err != nil {
		return err
	}
	for _, p := range l.others {
		if p.role == roles.Mask && len(p.dims) > 0 && !l.masksNew(p) {
			l.limit(p.dims[len(p.dims)-1:])
		}
	}
	if room, _ := l.room(); room > 0 {
		l.limit([]onnx.Dim{{Value: int64(room)}})
	}
	if !l.cached() {
		l.limit(l.ids.dims[len(l.ids.dims)-1:])
	}
	return nil
}

// masksNew reports whether a mask has columns only for the new tokens: as many as ids, in a model that keeps only
// states.
func (l *layout) masksNew(p port) bool {
	if !l.cached() || len(p.dims) != 2 || slices.ContainsFunc(l.caches, func(c cache) bool { return !c.isState() }) {
		return false
	}
	tokens := l.ids.dims[len(l.ids.dims)-1]
	return p.dims[1] == tokens && (tokens.Value > 0 || tokens.Param != "")
}

// limit bounds the positions by the tables that they index, or by fixed dimensions.
func (l *layout) limit(tables []onnx.Dim) {
	for _, d := range tables {
		if d.Value > 0 && (l.positions == 0 || d.Value < l.positions) {
			l.positions = d.Value
		}
	}
}

// typeIDs reports whether an input assigns tokens to one of two texts. Generation has only one text.
func typeIDs(in *roles.Input) bool {
	return in.DataType.IsInteger() && roles.NameHas(in.Value.Name, "token_type", "segment_id")
}

func outputPort(v *onnx.Value) port {
	p := port{name: v.Name}
	if t, ok := v.Type(); ok {
		p.dataType = t.DataType
		for _, d := range t.Dims {
			p.dims = append(p.dims, roles.Number(d))
		}
	}
	return p
}

// findIDs finds the token ids: of the integers that index a table, those with the largest table; else by name.
func (l *layout) findIDs(inputs []*roles.Input) error {
	best := int64(-1)
	for _, in := range inputs {
		rows := int64(0)
		for _, d := range in.Tables {
			rows = max(rows, d.Value)
		}
		named := roles.NameHas(in.Value.Name, "ids", "token")
		if !in.DataType.IsInteger() || typeIDs(in) || in.Role != roles.Index && !(in.Role == roles.Other && named) {
			continue
		}
		if rows > best || rows == best && roles.NameHas(in.Value.Name, "input_ids") {
			best, l.ids, l.vocabulary = rows, toPort(in), rows
		}
	}
	if best >= 0 && (len(l.ids.dims) == 1 || len(l.ids.dims) == 2) {
		return nil
	}
	if best >= 0 {
		shape := l.ids.String()
		l.ids = port{}
		return fmt.Errorf("token ids must have the shape [batch, sequence], but it has %s", shape)
	}
	return fmt.Errorf("it is not a language model: no input holds token ids (integers that index the rows of a table)")
}

// findLogits finds the output with a number for each token id.
func (l *layout) findLogits(m *onnx.Model) error {
	if list := roles.Logits(m); len(list) > 0 {
		l.logits = outputPort(list[0])
		return nil
	}
	names := make([]string, len(m.Graph.Outputs))
	for i, v := range m.Graph.Outputs {
		names[i] = outputPort(v).String()
	}
	return fmt.Errorf("no output holds logits: no output is named logits or has the vocabulary (%d) as its last "+
		"dimension; the outputs are %s",
		l.vocabulary, strings.Join(names, "; "))
}
