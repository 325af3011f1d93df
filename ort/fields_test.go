//go:build cgo

package ort

import (
	"reflect"
	"testing"

	"github.com/yalue/onnxruntime_go"
)

// TestFields checks the unexported fields of onnxruntime_go that this package reads, so that an update of that module
// that moves them fails here.
func TestFields(t *testing.T) {
	session := reflect.TypeFor[onnxruntime_go.DynamicAdvancedSession]()
	inner, ok := session.FieldByName("s")
	if !ok || inner.Type != reflect.TypeFor[*onnxruntime_go.AdvancedSession]() {
		t.Fatalf("DynamicAdvancedSession.s is %v, want *AdvancedSession", inner.Type)
	}
	raw, ok := inner.Type.Elem().FieldByName("ortSession")
	if !ok || raw.Type.Kind() != reflect.Pointer || raw.Type.Elem().Name() != "_Ctype_struct_OrtSession" {
		t.Fatalf("AdvancedSession.ortSession is %v, want *C.OrtSession", raw.Type)
	}
	options, ok := reflect.TypeFor[onnxruntime_go.SessionOptions]().FieldByName("o")
	if !ok || options.Type.Kind() != reflect.Pointer ||
		options.Type.Elem().Name() != "_Ctype_struct_OrtSessionOptions" {
		t.Fatalf("SessionOptions.o is %v, want *C.OrtSessionOptions", options.Type)
	}
	device, ok := reflect.TypeFor[onnxruntime_go.EpDevice]().FieldByName("p")
	if !ok || device.Type.Kind() != reflect.Pointer || device.Type.Elem().Name() != "_Ctype_struct_OrtEpDevice" {
		t.Fatalf("EpDevice.p is %v, want *C.OrtEpDevice", device.Type)
	}
	if _, err := rawDevice(&onnxruntime_go.EpDevice{}); err == nil {
		t.Error("a device without its C device is taken")
	}
	if _, err := rawOptions(&onnxruntime_go.SessionOptions{}); err == nil {
		t.Error("options without their C options are taken")
	}
	if _, err := rawSession(&onnxruntime_go.DynamicAdvancedSession{}); err == nil {
		t.Error("a session without its C session is taken")
	}
}
