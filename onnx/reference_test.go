package onnx

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestReference writes a model with a reference to missing data, and reads the same reference.
func TestReference(t *testing.T) {
	m := New(10, 20)
	at := External{Location: "absent.bin", Offset: 4096, Length: 24}
	w, err := NewReference("w", Float, []int64{2, 3}, at)
	if err != nil {
		t.Fatal(err)
	}
	out := m.Graph.NewValue("out")
	m.Graph.AddNode("Identity", []*Value{m.Graph.AddInitializer(w)}, []*Value{out})
	m.Graph.AddOutput(out)
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := Write(path, m, ExternalDataOver(0)); err != nil {
		t.Fatal(err)
	}
	r, err := Read(path, AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	v := r.Graph.Value("w").Const
	if v.External == nil || *v.External != at || v.Len() != 6 {
		t.Errorf("%+v", v)
	}
	if _, err := v.Bytes(); !errors.Is(err, ErrMissingData) {
		t.Errorf("error %v", err)
	}
	for _, bad := range []External{{Location: "absent.bin", Length: 23}, {Length: 24},
		{Location: "absent.bin", Offset: -1, Length: 24}} {
		if _, err := NewReference("w", Float, []int64{2, 3}, bad); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}
