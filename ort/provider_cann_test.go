//go:build cgo

package ort

import (
	"maps"
	"strings"
	"testing"

	"github.com/yalue/onnxruntime_go"

	"github.com/mojo-patch/mojo-patch/ort/providers"
)

func TestCANNOptions(t *testing.T) {
	for _, c := range []struct {
		given, want map[string]string
		kernels     bool
	}{
		{nil, map[string]string{"enable_cann_graph": "0"}, true},
		{map[string]string{"device_id": "1"}, map[string]string{"device_id": "1", "enable_cann_graph": "0"}, true},
		{map[string]string{"enable_cann_graph": "0"}, map[string]string{"enable_cann_graph": "0"}, true},
		{map[string]string{"enable_cann_graph": "1"}, map[string]string{"enable_cann_graph": "1"}, false},
	} {
		got, err := cannOptions(c.given, c.kernels)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%v with kernels %t: %v, %v, want %v", c.given, c.kernels, got, err, c.want)
		}
	}
	if _, err := cannOptions(map[string]string{"enable_cann_graph": "1"}, true); err == nil {
		t.Error("CANN may compile the graph although kernels are registered")
	}
}

// TestAppendCANN makes the calls for CANN, which fail in an onnxruntime without CANN.
func TestAppendCANN(t *testing.T) {
	a, err := load("")
	if err != nil {
		t.Skip(err)
	}
	built, err := a.providers()
	if err != nil {
		t.Fatal(err)
	}
	o, err := onnxruntime_go.NewSessionOptions()
	if err != nil {
		t.Fatal(err)
	}
	defer o.Destroy()
	err = newConfig(nil).appendBuiltIn(a, o, providers.CANN,
		map[string]string{"device_id": "0", "enable_cann_graph": "0"})
	switch {
	case providers.Find(built, providers.CANN) != "":
		if err != nil {
			t.Error(err)
		}
	case err == nil || !strings.Contains(err.Error(), "CANN"):
		t.Errorf("an onnxruntime without CANN answers %v", err)
	}
}
