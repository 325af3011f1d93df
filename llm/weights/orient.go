package weights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/llm/weights/parameters"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// matrix is a matrix of a checkpoint, or several of one shape in a tensor.
type matrix struct {
	name   string // a tensor's name, for messages
	dims   []int64
	gguf   bool
	outIn  bool   // it is [out, in], whatever the layout of PyTorch's parameter is
	stored string // the key of tensors with the same layout; see storedLike
}

// matrixOf describes a tensor, or the matrices of these dimensions in it.
func matrixOf(t *checkpoint.Tensor, dims []int64) matrix {
	return matrix{t.Name, dims, t.Arch != nil, t.OutIn, storedLike(t.Name)}
}

// storedLike returns the part of a parameter's name that parameters of one layout share. For a weight it is the
// module's name ("c_proj", which may be a Conv1D that stores [in, out]), for other parameters the containing module
// ("experts").
func storedLike(parameter string) string {
	words := strings.Split(parameter, ".")
	if len(words) < 2 {
		return parameter
	}
	return words[len(words)-2]
}

// mismatch is the error for a tensor whose shape does not fit.
type mismatch struct {
	tensor      string
	found, want []int64
}

func (e *mismatch) Error() string {
	return fmt.Sprintf("%s has the shape %v, which does not fit %v", e.tensor, e.found, e.want)
}

// orient reports whether the last two axes of a tensor must be swapped for the initializer. If the axes differ in size,
// the shapes decide. Otherwise the initializer's readers decide, with the layout of the checkpoint's similarly named
// tensors.
func (m *matcher) orient(v *onnx.Value, t matrix, own bool) (transposed bool, err error) {
	want := v.Const.Dims
	k := len(want)
	wrong := &mismatch{t.name, t.dims, want}
	if k < 2 || len(t.dims) != k {
		if slices.Equal(parameters.Squeezed(want), parameters.Squeezed(t.dims)) && len(parameters.Squeezed(want)) <= 1 {
			return false, nil
		}
		return false, wrong
	}
	swapped := slices.Clone(t.dims)
	swapped[k-1], swapped[k-2] = swapped[k-2], swapped[k-1]
	straight, turned := slices.Equal(want, t.dims), slices.Equal(want, swapped)
	switch {
	case !straight && !turned:
		return false, wrong
	case straight != turned:
		return turned, nil
	case want[k-1] <= 1:
		return false, nil
	}
	read := parameters.LayoutOf(v)
	stored := parameters.OutIn
	if l, known := m.stored[t.stored]; known && !t.gguf && !t.outIn {
		stored = l
	} else if k > 2 && own && !t.gguf && !t.outIn {
		return false, nil // the parameter itself
	}
	switch {
	case read != parameters.AnyLayout:
		return read != stored, nil
	case own && t.outIn: // of experts, whose parameter is [in, out]
		return true, nil
	case own:
		return false, nil
	}
	return false, fmt.Errorf(
		"%s is square, and no node that reads the initializer shows whether it is transposed: use --map", t.name)
}

// learn records how the checkpoint stores a matrix whose axes differ in size.
func (m *matcher) learn(v *onnx.Value, t matrix) {
	want := v.Const.Dims
	k := len(want)
	read := parameters.LayoutOf(v)
	if t.gguf || t.outIn || read == parameters.AnyLayout || k < 2 || len(t.dims) != k || want[k-1] == want[k-2] {
		return
	}
	stored := read
	if !slices.Equal(want, t.dims) {
		stored = parameters.OutIn + parameters.InOut - read
	}
	if l, known := m.stored[t.stored]; known && l != stored {
		stored = parameters.AnyLayout // two conventions under one name
	}
	m.stored[t.stored] = stored
}

// normFactor returns the number to add to a norm's weight: an exporter may have folded the 1 of "1 + weight" into it
// (Gemma), and llama.cpp's conversion adds it.
func (m *matcher) normFactor(v *onnx.Value, t *checkpoint.Tensor, own bool) (add float32, err error) {
	if len(parameters.Squeezed(v.Const.Dims)) > 1 || !v.Const.DataType.IsFloat() {
		return 0, nil
	}
	plusOne, factor := false, false
	for _, u := range parameters.Readers(v) {
		switch n := u.Node; {
		case n.Is("Add"):
			plusOne = plusOne || isOne(n.Input(1-u.Index).Constant())
		case n.Is("Mul"), n.Domain == fused.Domain,
			u.Index == 1 && (n.Is("RMSNormalization") || n.Is("LayerNormalization") ||
				n.OpType == "SimplifiedLayerNormalization"):
			factor = true
		}
	}
	switch {
	case t.Arch.AddsOne(t.Name):
		if plusOne == factor {
			return 0, fmt.Errorf("llama.cpp's conversion added 1 to %s, and no node that reads the initializer "+
				"shows whether it needs that: use --map", t.Name)
		}
		if plusOne {
			return -1, nil
		}
	case t.Arch == nil && factor && !plusOne && !own && strings.HasSuffix(t.Name, "norm.weight"):
		switch {
		case m.c.ModelType == "":
			return 0, fmt.Errorf("an exporter computed the factor from %s, perhaps as 1 + weight: load from the "+
				"folder with config.json, which describes the model, or use --map", t.Name)
		case normsPlusOne(m.c.ModelType):
			return 1, nil
		}
	}
	return 0, nil
}

// isOne reports whether a tensor is the number 1.
func isOne(t *onnx.Tensor) bool {
	if t == nil || t.Len() != 1 {
		return false
	}
	b, err := t.Bytes()
	if err != nil {
		return false
	}
	one := map[onnx.DataType][]byte{onnx.Float: {0, 0, 0x80, 0x3f}, onnx.Float16: {0, 0x3c},
		onnx.BFloat16: {0x80, 0x3f},
		onnx.Double:   {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}}[t.DataType]
	return one != nil && slices.Equal(b, one)
}

// plusOne are the Hugging Face model types whose norms multiply by 1 + weight.
var plusOne = []string{"gemma", "gemma2", "gemma3", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5", "qwen3_5_text",
	"qwen3_5_moe", "recurrent_gemma"}

func normsPlusOne(modelType string) bool { return slices.Contains(plusOne, modelType) }
