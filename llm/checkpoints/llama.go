package checkpoints

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// projections are the linear layers of a Llama layer, in execution order.
var projections = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
	"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}

// Llama returns the weights of an exported Llama as its checkpoint has them, sorted by name. The products with
// constants, in graph order, are the linear layers and finally the head, [in, out] in the graph. Other weights keep
// their names.
func Llama(m *onnx.Model) ([]Tensor, error) {
	var list []Tensor
	count := 0
	for _, n := range m.Graph.Nodes {
		v := n.Input(1)
		if !n.Is("MatMul") || !v.IsConstant() {
			continue
		}
		t, err := read(v.Const)
		if err != nil {
			return nil, err
		}
		layer, k := count/len(projections), count%len(projections)
		t.Name = fmt.Sprintf("model.layers.%d.%s.weight", layer, projections[k])
		if t.Dims[1] > 3*t.Dims[0]/2 && k == 0 && layer > 0 { // the vocabulary
			t.Name = "lm_head.weight"
		}
		t.Data = transposed(t.Data, t.Dims[0], t.Dims[1])
		t.Dims = []int64{t.Dims[1], t.Dims[0]}
		list = append(list, t)
		count++
	}
	for _, v := range m.Graph.Initializers() {
		if strings.HasSuffix(v.Name, "norm.weight") || strings.HasSuffix(v.Name, "embed_tokens.weight") {
			t, err := read(v.Const)
			if err != nil {
				return nil, err
			}
			t.Name = v.Name[strings.LastIndex(v.Name, "model."):]
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// ggufNames maps the parts of these names to llama.cpp's.
var ggufNames = strings.NewReplacer("model.layers.", "blk.", "self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k",
	"self_attn.v_proj", "attn_v",
	"self_attn.o_proj", "attn_output", "mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj",
	"ffn_down",
	"input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm", "model.norm", "output_norm",
	"model.embed_tokens", "token_embd", "lm_head", "output")

// LlamaGGUF returns the tensors as llama.cpp's conversion stores them, with the metadata. It reorders the rows of q and
// k by reshape(heads, 2, d/2, in).swapaxes(1, 2).
func LlamaGGUF(tensors []Tensor, heads, kv int) (metadata map[string]any, list []Tensor) {
	metadata = map[string]any{"general.architecture": "llama", "llama.attention.head_count": heads,
		"llama.attention.head_count_kv": kv}
	for _, t := range tensors {
		t.Name = ggufNames.Replace(t.Name)
		switch {
		case strings.Contains(t.Name, "attn_q."):
			t.Data = permuted(t, heads)
		case strings.Contains(t.Name, "attn_k."):
			t.Data = permuted(t, kv)
		}
		list = append(list, t)
	}
	return metadata, list
}

func permuted(t Tensor, heads int) []float32 {
	rows, cols := int(t.Dims[0]), int(t.Dims[1])
	half := rows / heads / 2
	var out []float32
	for h := range heads {
		for j := range half {
			for part := range 2 {
				row := (h*2+part)*half + j
				out = append(out, t.Data[row*cols:(row+1)*cols]...)
			}
		}
	}
	return out
}

func transposed(data []float32, rows, cols int64) []float32 {
	out := make([]float32, len(data))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = data[r*cols+c]
		}
	}
	return out
}

func read(t *onnx.Tensor) (Tensor, error) {
	b, err := t.Bytes()
	if err != nil {
		return Tensor{}, err
	}
	if t.DataType != onnx.Float {
		return Tensor{}, fmt.Errorf("%s is %s", t.Name, t.DataType)
	}
	data := make([]float32, len(b)/4)
	for i := range data {
		data[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return Tensor{Name: t.Name, Dims: t.Dims, Data: data}, nil
}
