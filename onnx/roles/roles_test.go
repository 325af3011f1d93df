package roles_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// TestFind finds roles by the inputs' readers, in a function's body too, and by their names.
func TestFind(t *testing.T) {
	m := onnx.New(10, 21)
	m.Graph.Name = "model"
	m.ImportOpset("com.microsoft", 1)
	input := func(name string, dt onnx.DataType, params ...string) *onnx.Value {
		ty := onnx.Type{DataType: dt, HasShape: true}
		for _, p := range params {
			ty.Dims = append(ty.Dims, onnx.Dim{Value: -1, Param: p})
		}
		return m.Graph.AddInput(name, ty)
	}
	node := func(op string, inputs ...*onnx.Value) *onnx.Node {
		return m.Graph.AddNode(op, inputs, []*onnx.Value{m.Graph.NewValue("y")})
	}
	table := func(name string, rows int64) *onnx.Value {
		return m.Graph.AddInitializer(onnx.NewFloat32s(name, []int64{rows, 2}, make([]float32, 2*rows)))
	}
	f := onnx.NewFunction("local", "Embed", "", 21)
	rows, ids := f.Body.AddInput("rows", onnx.Type{DataType: onnx.Float}),
		f.Body.AddInput("ids", onnx.Type{DataType: onnx.Int64})
	out := f.Body.NewValue("out")
	f.Body.AddNode("Gather", []*onnx.Value{rows, ids}, []*onnx.Value{out})
	f.Body.AddOutput(out)
	m.Functions = append(m.Functions, f)
	m.ImportOpset("local", 1)

	call := node("Embed", table("words", 7), node("Cast", input("x", onnx.Int64, "b", "s")).Outputs[0])
	call.Domain = "local"
	node("Gather", table("places", 5), input("position_ids", onnx.Int64, "b", "s"))
	coded := node("Embedding", input("tokens", onnx.Int64, "b", "s"), table("codes", 1))
	coded.Domain = "mojo"
	coded.SetAttr(onnx.IntAttr("n", 6))
	attention := node("GroupQueryAttention", nil, nil, nil, nil, nil, input("a", onnx.Int32, "b"),
		input("c", onnx.Int32))
	attention.Domain = "com.microsoft"
	input("attention_mask", onnx.Int64, "b", "t")
	input("past.0.key", onnx.Float, "b", "2", "p", "4")
	input("past_seq_len", onnx.Int32, "1")
	input("total_sequence_length", onnx.Int32)
	input("use_cache_branch", onnx.Bool, "1")
	input("num_logits_to_keep", onnx.Int64)
	input("seqlens_k", onnx.Int32, "b")
	input("temperature", onnx.Float)
	inPlace := node("Attention", nil, nil, nil, nil, input("buffer", onnx.Float, "b", "2", "8", "4"), nil,
		input("length", onnx.Int64, "1"))
	inPlace.Domain = "mojo"
	present := m.Graph.NewValue("present")
	inPlace.TakeOutput(1, present)
	m.Graph.AddOutput(present)
	grows := node("Attention", nil, nil, nil, nil, input("keys", onnx.Float, "b", "2", "p", "4"))
	grows.Domain = "mojo"
	want := map[string]roles.Role{"buffer": roles.Buffer, "length": roles.PastLength, "keys": roles.Past,
		"x": roles.Index, "tokens": roles.Index, "position_ids": roles.Position, "a": roles.Last, "c": roles.Total,
		"attention_mask": roles.Mask,
		"past.0.key":     roles.Past, "past_seq_len": roles.PastLength, "total_sequence_length": roles.Total,
		"use_cache_branch":   roles.CacheFlag,
		"num_logits_to_keep": roles.LogitsToKeep, "seqlens_k": roles.Last, "temperature": roles.Other}
	found := roles.Find(m)
	if len(found) != len(want) {
		t.Errorf("%d inputs, want %d", len(found), len(want))
	}
	for _, in := range found {
		name := in.Value.Name
		if got := in.Present(); (got != nil) != (name == "buffer") || got != nil && got != present {
			t.Errorf("what becomes of %s is %v", name, got)
		}
		if in.Role != want[name] {
			t.Errorf("%s: %s, want %s", name, in.Role, want[name])
		}
		rows := map[string]int64{"x": 7, "position_ids": 5, "tokens": 6}[name]
		if rows > 0 && (len(in.Tables) != 1 || in.Tables[0].Value != rows) {
			t.Errorf("%s indexes %v, want %d rows", name, in.Tables, rows)
		}
		if name == "past.0.key" && in.Dims[1].Value != 2 {
			t.Errorf("a dimension that is written as a symbol is %v", in.Dims[1])
		}
	}
	if n := roles.Vocabulary(m); n != 7 {
		t.Errorf("vocabulary %d, want 7", n)
	}
	var outputs []string
	for _, x := range []struct {
		name string
		dims []any
	}{{"router_logits", []any{"b", 3}}, {"scores", []any{"b", "7"}}, {"y_logits", []any{"b", "s", 7}}} {
		v := m.Graph.NewValue(x.name)
		v.SetType(onnxtest.Type(onnx.Float16, x.dims...))
		m.Graph.AddOutput(v)
		outputs = append(outputs, "")
		for _, v := range roles.Logits(m) {
			outputs[len(outputs)-1] += v.Name + " "
		}
	}
	if want := []string{"router_logits ", "scores ", "y_logits scores "}; !slices.Equal(outputs, want) {
		t.Errorf("logits %q, want %q", outputs, want)
	}
	if roles.Find(nil) != nil {
		t.Error("no model has inputs")
	}
}
