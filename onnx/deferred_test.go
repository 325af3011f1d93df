package onnx

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deferredModel has two tied deferred initializers, and a third that is a view of one of them.
func deferredModel(t *testing.T, write func(w io.Writer) error) *Model {
	t.Helper()
	m := New(10, 20)
	w, err := NewDeferred("w", Float, []int64{600, 2}, write)
	if err != nil {
		t.Fatal(err)
	}
	half, err := w.View("half", []int64{2, 300}, 0, []int64{1, 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Tensor{w, w.Tied("tied"), half} {
		out := m.Graph.NewValue("copy_of_" + c.Name)
		m.Graph.AddNode("Identity", []*Value{m.Graph.AddInitializer(c)}, []*Value{out})
		m.Graph.AddOutput(out)
	}
	return m
}

func counting() []byte {
	b := make([]byte, 4*1200)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func TestDeferred(t *testing.T) {
	want := counting()
	write := func(w io.Writer) error {
		for i := 0; i < len(want); i += 480 {
			if _, err := w.Write(want[i : i+480]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, inFile := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "m.onnx")
		var options []WriteOption
		if inFile {
			options = append(options, ExternalDataOver(100))
		}
		if err := Write(path, deferredModel(t, write), options...); err != nil {
			t.Fatal(err)
		}
		m, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for _, name := range []string{"w", "tied"} {
			if b, err := m.Graph.Value(name).Const.Bytes(); err != nil || !bytes.Equal(b, want) {
				t.Errorf("%s: %d bytes that differ (%v)", name, len(b), err)
			}
		}
		view := []byte{}
		for _, start := range []int{0, 1} {
			for i := range 300 {
				at := 4 * (start + 4*i)
				view = append(view, want[at:at+4]...)
			}
		}
		if b, err := m.Graph.Value("half").Const.Bytes(); err != nil || !bytes.Equal(b, view) {
			t.Errorf("half: %d bytes that differ (%v)", len(b), err)
		}
		if !inFile {
			continue
		}
		w, tied := m.Graph.Value("w").Const.External, m.Graph.Value("tied").Const.External
		if w == nil || tied == nil || w.Offset != tied.Offset {
			t.Errorf("w lies at %v, tied at %v", w, tied)
		}
	}
}

func TestDeferredOfAnotherSize(t *testing.T) {
	for size, message := range map[int]string{4796: "4800 bytes, but 4796 were written", 4804: "4 beyond its end"} {
		path := filepath.Join(t.TempDir(), "m.onnx")
		m := deferredModel(t, func(w io.Writer) error { _, err := w.Write(make([]byte, size)); return err })
		if err := Write(path, m); err == nil || !strings.Contains(err.Error(), message) ||
			!strings.Contains(err.Error(), `"w"`) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
			t.Errorf("%d bytes: %v is left", size, left)
		}
	}
	if _, err := NewDeferred("s", String, []int64{2}, nil); err == nil {
		t.Error("strings have no size")
	}
}
