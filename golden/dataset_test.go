package golden_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestDirRoundTrip(t *testing.T) {
	cases := everyType(t)
	cases[0].Inputs = append(cases[0].Inputs, tensor(t, "packed", onnx.Int4, []int64{3}, []byte{0x21, 0x03}))
	for len(cases) < 12 { // more than one digit
		cases = append(cases, golden.Case{Inputs: []*onnx.Tensor{onnx.NewInt64s("n", []int64{int64(len(cases))})}})
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := golden.SaveDir(dir, cases); err != nil {
		t.Fatal(err)
	}
	got, err := golden.Load(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(cases) {
		t.Fatalf("%d cases, want %d", len(got), len(cases))
	}
	for i := range got {
		equal(t, got[i].Inputs, cases[i].Inputs)
		equal(t, got[i].Outputs, cases[i].Outputs)
	}
	one, err := golden.Load(filepath.Join(dir, "test_data_set_3"), nil)
	if err != nil || len(one) != 1 {
		t.Fatal(one, err)
	}
	equal(t, one[0].Inputs, cases[3].Inputs)

	if err := golden.SaveDir(dir, cases[:1]); err == nil || !strings.Contains(err.Error(), "test_data_set_0") {
		t.Errorf("test data were overwritten: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 12 {
		t.Errorf("files were left behind: %v", entries)
	}
}

func TestDirErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := golden.Load(dir, nil); err == nil {
		t.Error("an empty folder is test data")
	}
	set := filepath.Join(dir, "test_data_set_0")
	if err := errors.Join(os.Mkdir(set, 0o755),
		os.WriteFile(filepath.Join(set, "input_1.pb"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := golden.Load(dir, nil); err == nil || !strings.Contains(err.Error(), "input_0.pb is missing") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(set, "input_0.pb"), []byte("\xff\xff"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := golden.Load(dir, nil); err == nil || !strings.Contains(err.Error(), "input_0.pb") {
		t.Error(err)
	}
}

// TestNamesByPosition reads tensors without names, as in ONNX's own tests.
func TestNamesByPosition(t *testing.T) {
	dir := t.TempDir()
	unnamed := pattern(t, "", onnx.Float, 2)
	if err := golden.SaveDir(dir,
		[]golden.Case{{Inputs: []*onnx.Tensor{unnamed}, Outputs: []*onnx.Tensor{unnamed}}}); err != nil {
		t.Fatal(err)
	}
	m := onnx.New(10, 21)
	m.Graph.AddInitializer(onnx.NewInt64s("w", []int64{1}))
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
	y := m.Graph.NewValue("y")
	m.Graph.AddNode("Identity", []*onnx.Value{x}, []*onnx.Value{y})
	m.Graph.AddOutput(y)
	cases, err := golden.Load(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	if cases[0].Input("x") == nil || cases[0].Output("y") == nil || cases[0].Input("y") != nil {
		t.Errorf("names are %q and %q", cases[0].Inputs[0].Name, cases[0].Outputs[0].Name)
	}
}
