package generate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// dims parses a shape of numbers, names, and ? for an unknown dimension.
func dims(shape string) []onnx.Dim {
	var list []onnx.Dim
	for _, s := range strings.Fields(shape) {
		d := roles.Number(onnx.Dim{Value: -1, Param: s})
		if s == "?" {
			d.Param = ""
		}
		list = append(list, d)
	}
	return list
}

// decoder makes a model whose input ids index a table, with further inputs and outputs "name type shape".
func decoder(ids string, inputs, outputs []string) *onnx.Model {
	m := onnx.New(10, 21)
	m.Graph.Name = "decoder"
	typed := func(text string) (string, onnx.Type) {
		f := strings.SplitN(text, " ", 3)
		dt, err := onnx.ParseDataType(f[1])
		if err != nil {
			panic(err)
		}
		return f[0], onnx.Type{DataType: dt, HasShape: true, Dims: dims(f[2])}
	}
	if ids != "" {
		name, t := typed(ids)
		x := m.Graph.AddInput(name, t)
		table := m.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{32, 4}, make([]float32, 128)))
		m.Graph.AddNode("Gather", []*onnx.Value{table, x}, []*onnx.Value{m.Graph.NewValue("h")})
	}
	for _, text := range inputs {
		name, t := typed(text)
		m.Graph.AddInput(name, t)
	}
	for _, text := range outputs {
		name, t := typed(text)
		v := m.Graph.NewValue(name)
		v.SetType(t)
		m.Graph.AddOutput(v)
	}
	return m
}

// TestLayouts finds ids, caches, axes and roles in inputs as exporters write them.
func TestLayouts(t *testing.T) {
	const ids, logits = "input_ids int64 b s", "logits float32 b s 32"
	for _, c := range []struct {
		name            string
		ids             string
		inputs, outputs []string
		want            string // past>present@batch,sequence of each cache, then name=role of the others
	}{
		{"none", ids, []string{"attention_mask int64 b s"}, []string{logits}, "attention_mask=mask"},
		{"optimum", ids, []string{"attention_mask int64 b t", "position_ids int64 b s",
			"past_key_values.0.key float32 b 2 p 8", "past_key_values.0.value float32 b 2 p 8"},
			[]string{"present.0.value float32 b 2 t 8", "present.0.key float32 b 2 t 8", logits},
			"past_key_values.0.key>present.0.key@0,2 past_key_values.0.value>present.0.value@0,2 attention_mask=mask " +
				"position_ids=positions"},
		{"sequence first", ids, []string{"past_0 float16 p b 2 8"}, []string{logits, "present_0 float16 t b 2 8"},
			"past_0>present_0@1,0"},
		{"heads of their own", ids, []string{"past_key_0 float32 b p 1 8", "past_key_1 float32 b p 4 16"},
			[]string{"present_key_1 float32 b t 4 16", "present_key_0 float32 b t 1 8", logits},
			"past_key_0>present_key_0@0,1 past_key_1>present_key_1@0,1"},
		{"keys turned", ids, []string{"past.0.key float32 b 2 8 p", "past.0.value float32 b 2 p 8"},
			[]string{logits, "present.0.key float32 b 2 8 t", "present.0.value float32 b 2 t 8"},
			"past.0.key>present.0.key@0,3 past.0.value>present.0.value@0,2"},
		{"in one", ids, []string{"past_key_values float32 6 2 b 3 p 8"},
			[]string{logits, "present_key_values float32 6 2 b 3 t 8"},
			"past_key_values>present_key_values@2,4"},
		{"unnamed", "input_ids int64 ? ?", []string{"past_k_0 float32 ? 2 ? 8"},
			[]string{logits, "present_k_0 float32 ? 2 ? 8"}, "past_k_0>present_k_0@0,2"},
		{"batch of one", "input_ids int64 1 s", []string{"past_k_0 float32 1 2 p 8"},
			[]string{"logits float32 1 s 32", "present_k_0 float32 1 2 t 8"},
			"past_k_0>present_k_0@-1,2"},
		{"state", ids, []string{"past_conv.0 float32 b 16 3", "past_key_values.1.key float32 b 2 p 8"},
			[]string{logits, "present_conv.0 float32 b 16 3", "present.1.key float32 b 2 t 8"},
			"past_conv.0>present_conv.0@0,-1 past_key_values.1.key>present.1.key@0,2"},
		{"state, unnamed", "input_ids int64 ? ?", []string{"past_conv.0 float32 ? 16 3"},
			[]string{"logits float32 ? ? 32", "present_conv.0 float32 ? 16 3"},
			"past_conv.0>present_conv.0@0,-1"},
		{"state, other names of its batch", ids, []string{"past_conv.0 float32 n 16 3"},
			[]string{logits, "present_conv.0 float32 Concatpresent_conv.0_dim_0 16 3"},
			"past_conv.0>present_conv.0@0,-1"},
		{"eight bits", ids, []string{"past_key_values.0.key int8 b 2 p 8"},
			[]string{logits, "present.0.key int8 b 2 t 8"},
			"past_key_values.0.key>present.0.key@0,2"},
		{"lengths", ids, []string{"past.0.key float32 b 2 p 8", "seqlens_k int32 b", "total_sequence_length int32 1",
			"past_sequence_length int32 1",
			"use_cache_branch bool 1", "cache_position int64 s", "num_logits_to_keep int64",
			"token_type_ids int64 b s"},
			[]string{logits, "present.0.key float32 b 2 t 8"},
			"past.0.key>present.0.key@0,2 seqlens_k=last position total_sequence_length=number of positions " +
				"past_sequence_length=number of past positions " +
				"use_cache_branch=whether there is a past cache_position=positions num_logits_to_keep=number of " +
				"logits to keep token_type_ids=not known"},
		{"states beside", ids, []string{"past_k_0 float32 b 2 p 8"},
			[]string{"hidden_states float32 b s 16", logits, "present_k_0 float32 b 2 t 8"},
			"past_k_0>present_k_0@0,2"},
		{"no name", "tokens int32 b s", nil, []string{"y float32 b s 32"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, text := range c.inputs { // a scalar has no shape
				if len(strings.Fields(text)) == 2 {
					c.inputs[i] += " "
				}
			}
			l, err := newLayout(decoder(c.ids, c.inputs, c.outputs))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range l.caches {
				got = append(got, fmt.Sprintf("%s>%s@%d,%d", x.past.name, x.present, x.batch, x.sequence))
			}
			for _, p := range l.others {
				got = append(got, p.name+"="+p.role.String())
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

// TestRefusals expects an error that names the problem and lists the inputs.
func TestRefusals(t *testing.T) {
	const ids, logits = "input_ids int64 b s", "logits float32 b s 32"
	for want, m := range map[string]*onnx.Model{
		"not a language model":   decoder("", []string{"x float32 b 16"}, []string{"y float32 b 16"}),
		"no output holds logits": decoder(ids, nil, []string{"hidden float32 b s 16"}),
		`decoder of an encoder-decoder model (input "encoder`: decoder(ids,
			[]string{"encoder_hidden_states float32 b e 16"}, []string{logits}),
		`cannot tell the purpose of input "temperature"`: decoder(ids, []string{"temperature float32 " +
			"1"}, []string{logits}),
		`cannot tell the purpose of input "pixel_values"`: decoder(ids, []string{"pixel_values float32 b 3 h w"},
			[]string{logits}),
		"it takes embeddings (input \"inputs_embeds\"": decoder("", []string{"inputs_embeds float32 b s 16"},
			[]string{logits}),
		"it takes embeddings (input \"input_embeds\"": decoder(ids, []string{"input_embeds float32 b s 16"},
			[]string{logits, "hidden float32 b s 16"}),
		"the size of its axis 1 (heads)": decoder(ids, []string{"past_k_0 float32 b heads p 8"},
			[]string{logits, "present_k_0 float32 b heads t 8"}),
	} {
		_, err := newLayout(m)
		var e *LayoutError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			continue
		}
		for _, v := range m.Graph.Inputs {
			if !strings.Contains(err.Error(), "\n  "+v.Name+" ") {
				t.Errorf("input %s is not listed: %v", v.Name, err)
			}
		}
	}
}

func TestConcatAxis(t *testing.T) {
	m := decoder("input_ids int64 ? ?", []string{"past_k_0 float32 ? ? 2 8", "new float32 ? ? 2 8"},
		[]string{"logits float32 ? ? 32"})
	past, fresh := m.Graph.Inputs[1], m.Graph.Inputs[2]
	y := m.Graph.NewValue("present_k_0")
	m.Graph.AddNode("Concat", []*onnx.Value{past, fresh}, []*onnx.Value{y}, onnx.IntAttr("axis", -4))
	y.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims("? ? 2 8")})
	m.Graph.AddOutput(y)
	c := cache{past: port{"past_k_0", onnx.Float, dims("? ? 2 8"), roles.Past}, present: "present_k_0"}
	if err := c.axes(m, dims("? ?"), port{name: "present_k_0", dims: dims("? ? 2 8")}); err != nil || c.batch != 1 ||
		c.sequence != 0 {
		t.Errorf("batch %d, sequence %d, %v", c.batch, c.sequence, err)
	}
	if got := c.shape(3); !slices.Equal(got, []int64{0, 3, 2, 8}) {
		t.Errorf("an empty past is %v", got)
	}
}
