package golden

import (
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// role is what an input of a language model is for.
type role int

const (
	roleOther      role = iota
	roleIndex           // rows of a table: token ids
	rolePosition        // positions of the new tokens
	roleMask            // which positions may be attended to
	rolePast            // keys, values or states of earlier tokens
	roleTotal           // number of positions, past and new
	roleLast            // the last position
	rolePastLength      // number of past positions
	roleCacheFlag       // whether there is a past at all
)

// input is an input of the model with what RandomInputs knows of it.
type input struct {
	value    *onnx.Value
	typed    bool
	dataType onnx.DataType
	dims     []onnx.Dim
	role     role
	tables   []onnx.Dim // sizes of the axes that the input indexes
}

// findRoles tells what the inputs are for: by what reads them where that says it (the index of a Gather, the lengths of a
// GroupQueryAttention), else by words of their names that all exporters share.
func findRoles(m *onnx.Model) []*input {
	var list []*input
	for _, v := range inputValues(m) {
		in := &input{value: v}
		if t, ok := v.Type(); ok {
			in.typed, in.dataType = true, t.DataType
			for _, d := range t.Dims {
				in.dims = append(in.dims, number(d))
			}
		}
		w := walker{model: m, in: in, seen: map[*onnx.Value]bool{}}
		w.follow(v, nil)
		in.role = in.guess(w.found)
		list = append(list, in)
	}
	return list
}

// number turns a symbol that is a number, as some exporters write fixed dimensions, into one.
func number(d onnx.Dim) onnx.Dim {
	if n, err := strconv.ParseInt(d.Param, 10, 64); d.Value < 0 && err == nil && n >= 0 {
		return onnx.Dim{Value: n}
	}
	return d
}

func (in *input) guess(found role) role {
	name, integer := in.value.Name, in.dataType.IsInteger()
	switch {
	case integer && found != roleOther && found != roleIndex:
		return found
	case integer && nameHas(name, "position") && !nameHas(name, "mask"):
		return rolePosition
	case nameHas(name, "mask"):
		return roleMask
	case integer && len(in.tables) > 0:
		return roleIndex
	case in.dataType == onnx.Bool && nameHas(name, "cache"):
		return roleCacheFlag
	case integer && nameHas(name, "total_seq"):
		return roleTotal
	case integer && nameHas(name, "past_seq", "past_len"):
		return rolePastLength
	case in.dataType.IsFloat() && len(in.dims) >= 3 && in.symbols(1) > 0:
		return rolePast
	}
	return roleOther
}

// symbols counts the dimensions without a number from axis on.
func (in *input) symbols(axis int) int {
	n := 0
	for _, d := range in.dims[min(axis, len(in.dims)):] {
		if d.Value < 0 {
			n++
		}
	}
	return n
}

// scope maps the inputs of a function's body to the values of the call.
type scope struct {
	arguments map[*onnx.Value]*onnx.Value
	caller    *scope
	depth     int
}

// walker follows an input to the nodes that say what it is for.
type walker struct {
	model *onnx.Model
	in    *input
	seen  map[*onnx.Value]bool
	found role
}

// passThrough are ops whose output has the elements of input 0, or some of them.
var passThrough = map[string]bool{"Cast": true, "Identity": true, "Reshape": true, "Squeeze": true, "Unsqueeze": true,
	"Flatten": true, "Expand": true, "Transpose": true, "Slice": true, "Tile": true}

const maxCallDepth = 8

func (w *walker) follow(v *onnx.Value, s *scope) {
	if w.seen[v] {
		return
	}
	w.seen[v] = true
	for _, u := range v.Uses() {
		n := u.Node
		switch {
		case onnx.IsStandardDomain(n.Domain) && passThrough[n.OpType] && u.Index == 0:
			if o := n.OutputValue(0); o != nil {
				w.follow(o, s)
			}
		case (n.Is("Gather") || n.Is("GatherElements")) && u.Index == 1:
			w.table(n.Input(0), n.AttrInt("axis", 0), s)
		case n.OpType == "GatherBlockQuantized" && u.Index == 1:
			w.table(n.Input(0), n.AttrInt("gather_axis", 0), s)
		case n.OpType == "GroupQueryAttention" && u.Index == 5:
			w.found = roleLast
		case n.OpType == "GroupQueryAttention" && u.Index == 6:
			w.found = roleTotal
		default:
			w.call(n, u.Index, s)
		}
	}
}

// call follows input i of a call of a model-local function into its body.
func (w *walker) call(n *onnx.Node, i int, s *scope) {
	f := w.model.Function(n.Domain, n.OpType, n.Overload)
	if f == nil || i >= len(f.Body.Inputs) || s != nil && s.depth >= maxCallDepth {
		return
	}
	inner := &scope{arguments: map[*onnx.Value]*onnx.Value{}, caller: s}
	if s != nil {
		inner.depth = s.depth + 1
	}
	for k, p := range f.Body.Inputs {
		inner.arguments[p] = n.Input(k)
	}
	w.follow(f.Body.Inputs[i], inner)
}

// table notes the size of the axis of data that the input indexes, if it can be told.
func (w *walker) table(data *onnx.Value, axis int64, s *scope) {
	for data != nil {
		if arg, ok := s.argument(data); ok {
			data, s = arg, s.caller
			continue
		}
		if t := data.Constant(); t != nil {
			var dims []onnx.Dim
			for _, d := range t.Dims {
				dims = append(dims, onnx.Dim{Value: d})
			}
			w.note(dims, axis)
			return
		}
		if t, ok := data.Type(); ok && t.HasShape {
			w.note(t.Dims, axis)
			return
		}
		n := data.Producer
		if n == nil || !n.Is("Cast") && !n.Is("Identity") && !n.Is("DequantizeLinear") {
			return
		}
		data = n.Input(0)
	}
}

func (s *scope) argument(v *onnx.Value) (*onnx.Value, bool) {
	if s == nil {
		return nil, false
	}
	arg, ok := s.arguments[v]
	return arg, ok
}

func (w *walker) note(dims []onnx.Dim, axis int64) {
	if axis < 0 {
		axis += int64(len(dims))
	}
	if axis >= 0 && axis < int64(len(dims)) {
		w.in.tables = append(w.in.tables, number(dims[axis]))
	}
}
