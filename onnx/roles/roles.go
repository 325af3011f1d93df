// Package roles finds the roles of a language model's inputs, from the graph's own names and shapes: token ids, masks,
// positions, the cache of past tokens, and the lengths that attention ops need. It does not look at model names.
package roles

import (
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Role is the role of an input of a language model.
type Role int

// The roles that Find knows.
const (
	Other        Role = iota
	Index             // rows of a table: token ids
	Position          // positions of the new tokens
	Mask              // the positions that may be attended to
	Past              // keys, values or states of earlier tokens
	Total             // number of positions, past and new
	Last              // the last position
	PastLength        // number of past positions
	CacheFlag         // whether there is a past
	LogitsToKeep      // the number of last positions to compute logits for, 0 for all
	Buffer            // a past [batch, heads, tokens, width] that is written in place and has spare room
	Pool              // blocks of keys or values that sequences share, or of their scales, written in place
	Cumulative        // index of the first packed token of each sequence, then the number of tokens
	BlockTable        // the blocks of each sequence, [sequences, blocks]
)

var names = [...]string{"not known", "indexes a table", "positions", "mask", "past", "number of positions",
	"last position",
	"number of past positions", "whether there is a past", "number of logits to keep", "past that is written in place",
	"pool of blocks", "first token of each sequence", "blocks of each sequence"}

// String describes the role in a few words.
func (r Role) String() string {
	if r < 0 || int(r) >= len(names) {
		return "role(" + strconv.Itoa(int(r)) + ")"
	}
	return names[r]
}

// Input is an input of the model with its properties.
type Input struct {
	Value    *onnx.Value
	Typed    bool // whether the model declares a tensor type, in DataType and Dims
	DataType onnx.DataType
	Dims     []onnx.Dim
	Role     Role
	Tables   []onnx.Dim // the sizes of the axes that the input indexes
}

// Find returns the roles of the inputs that a caller must provide, in model order. The readers of an input decide if
// possible (the index of a Gather, the lengths of a GroupQueryAttention, the cache of mojo.Attention), else words in
// its name that all exporters share.
func Find(m *onnx.Model) []*Input {
	if m == nil {
		return nil
	}
	var list []*Input
	for _, v := range m.Graph.Inputs {
		if v.Const != nil { // it has a default
			continue
		}
		in := &Input{Value: v}
		if t, ok := v.Type(); ok {
			in.Typed, in.DataType = true, t.DataType
			for _, d := range t.Dims {
				in.Dims = append(in.Dims, Number(d))
			}
		}
		w := walker{model: m, in: in, seen: map[*onnx.Value]bool{}}
		w.follow(v, nil)
		in.Role = in.guess(w.found)
		list = append(list, in)
	}
	return list
}

// Vocabulary returns the number of tokens of a language model: the rows of the largest table that its integer inputs
// index, or 0 if no table has a known size.
func Vocabulary(m *onnx.Model) int64 {
	var greatest int64
	for _, in := range Find(m) {
		if in.Role != Index {
			continue
		}
		for _, d := range in.Tables {
			greatest = max(greatest, d.Value)
		}
	}
	return greatest
}

// Logits returns the outputs that hold logits: floats with the vocabulary as their declared last dimension, those named
// logits first. If there are none, it returns floats that are only named so: the model takes embeddings, or pads its
// vocabulary.
func Logits(m *onnx.Model) []*onnx.Value {
	var both, wide, named []*onnx.Value
	vocabulary := Vocabulary(m)
	for _, v := range m.Graph.Outputs {
		t, _ := v.Type()
		if !t.DataType.IsFloat() || len(t.Dims) == 0 {
			continue
		}
		isNamed := NameHas(v.Name, "logit")
		switch isWide := vocabulary > 1 && Number(t.Dims[len(t.Dims)-1]).Value == vocabulary; {
		case isNamed && isWide:
			both = append(both, v)
		case isWide:
			wide = append(wide, v)
		case isNamed:
			named = append(named, v)
		}
	}
	if list := append(both, wide...); len(list) > 0 {
		return list
	}
	return named
}

// Number converts a symbol that is a number, as some exporters write fixed dimensions, to a number.
func Number(d onnx.Dim) onnx.Dim {
	if n, err := strconv.ParseInt(d.Param, 10, 64); d.Value < 0 && err == nil && n >= 0 {
		return onnx.Dim{Value: n}
	}
	return d
}

// Present returns the output of the model that a Buffer or Pool is written to, nil for another input.
func (in *Input) Present() *onnx.Value {
	for _, u := range in.Value.Uses() {
		if role, out := written(u); role == in.Role && out != nil && out.IsOutput() {
			return out
		}
	}
	return nil
}

// pastLengthInput is the input past_length of the fused ops with caches; the cache inputs precede it.
const pastLengthInput = 6

// isPaged reports whether the cache inputs of a node are pools. cumulative_sequence_length precedes its past_seqlens,
// and block_table follows, in onnxruntime's op too.
func isPaged(n *onnx.Node) bool {
	return n.OpType == "PagedAttention" && (n.Domain == "mojo" || n.Domain == onnx.Microsoft) || isCoded(n)
}

// isCoded reports whether the pools of a node have codes; inputs with their scales follow the block table.
func isCoded(n *onnx.Node) bool { return n.OpType == "QPagedAttention" && n.Domain == "mojo" }

// firstPast returns the first cache input of a node: past_key of mojo.Attention, past of mojo.LatentAttention,
// key_cache of PagedAttention; 0 for another node.
func firstPast(n *onnx.Node) int {
	switch {
	case isPaged(n):
		return pastLengthInput - 3
	case n.Domain != "mojo":
	case n.OpType == "Attention":
		return pastLengthInput - 2
	case n.OpType == "LatentAttention":
		return pastLengthInput - 1
	}
	return 0
}

func (in *Input) guess(found Role) Role {
	name, integer := in.Value.Name, in.DataType.IsInteger()
	switch {
	case found == Buffer || found == Pool:
		return found
	case integer && found != Other && found != Index:
		return found
	case integer && NameHas(name, "position") && !NameHas(name, "mask"):
		return Position
	case integer && len(in.Dims) == 1 && NameHas(name, "cumulative_seq"):
		return Cumulative
	case integer && len(in.Dims) == 2 && NameHas(name, "block_table"):
		return BlockTable
	case NameHas(name, "mask"):
		return Mask
	case integer && len(in.Tables) > 0:
		return Index
	case in.DataType == onnx.Bool && NameHas(name, "cache"):
		return CacheFlag
	case integer && NameHas(name, "logits_to_keep"):
		return LogitsToKeep
	case integer && NameHas(name, "total_seq"):
		return Total
	case integer && NameHas(name, "seqlens_k"):
		return Last
	case integer && NameHas(name, "past_seq", "past_len", "past_seen", "cache_len", "start_pos"):
		return PastLength
	case in.DataType.IsFloat() && len(in.Dims) >= 3 && in.symbols(1) > 0:
		return Past
	}
	return Other
}

// symbols counts the dimensions without a number from axis on.
func (in *Input) symbols(axis int) int {
	n := 0
	for _, d := range in.Dims[min(axis, len(in.Dims)):] {
		if d.Value < 0 {
			n++
		}
	}
	return n
}

// NameHas reports whether a name contains one of the words, in any case.
func NameHas(name string, words ...string) bool {
	name = strings.ToLower(name)
	for _, w := range words {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}
