package dims

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestPlacesOfDimensions finds a dimension by its name, by the usual axes, or by the axes that the user lists.
func TestPlacesOfDimensions(t *testing.T) {
	b := onnxtest.New(18)
	b.Input("ids", onnx.Int64, 2, 7)
	b.Input("mask", onnx.Int64, "batch", "total")
	b.Input("past", onnx.Float, 2, 4, 9, 8)
	b.Input("image", onnx.Float, 2, 3, 9, 9, 1)
	for text, c := range map[string]struct {
		places string
		size   int64 // at export
		err    string
	}{
		"total":               {"mask.1", 0, ""},
		"total=11":            {"mask.1", 11, ""},
		"batch":               {"mask.0", 0, ""},
		"sequence=ids.1":      {"ids.1", 7, ""},
		"past":                {"past.2", 9, ""},
		"rows=ids.0+past.0":   {"ids.0 past.0", 2, ""},
		"rows=2@ids.0+mask.0": {"ids.0 mask.0", 2, ""},
		"last=image.4":        {"image.4", 1, ""},
		"rows=3@ids.0":        {"", 0, "it is 2 at ids.0 and 3 elsewhere"},
		"rows=ids.0+ids.1":    {"", 0, "it is 7 at ids.1 and 2 elsewhere"},
		"rows=ids.2":          {"", 0, `input "ids" has 2 dimensions`},
		"rows=ids.-1":         {"", 0, `input "ids" has 2 dimensions`},
		"rows=other.0":        {"", 0, "the model has no such input"},
		"rows=ids.x":          {"", 0, "the model has no such input"},
		"rows=a.ids.0":        {"", 0, "the model has no such input"},
		"rows=2@ids":          {"", 0, "is not INPUT.AXIS"},
		"rows=0":              {"", 0, `the size at export, "0", is not a positive number`},
		"rows=1@past.0":       {"", 0, "it is 2 at past.0 and 1 elsewhere"},
		"rows=many@past.0":    {"", 0, "is not a positive number"},
		"rows=2@":             {"", 0, "is not a dimension"},
		"=2":                  {"", 0, "is not a dimension"},
		"tokens":              {"", 0, "no input has it"},
	} {
		d, err := Find(b.Model, text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", text, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var places []string
		for _, p := range d.places {
			places = append(places, p.String())
		}
		name, _, _ := strings.Cut(text, "=")
		if d.Name != name || d.Size != c.size || strings.Join(places, " ") != c.places {
			t.Errorf("%s: %s at %q, %d at export", text, d.Name, places, d.Size)
		}
	}
	numbers := onnxtest.New(18)
	for name, dims := range map[string][]any{"ids": {2, 7}, "past": {2, 4, 9, 8}, "x": {2, 7, 8}, "on": {2}} {
		numbers.Input(name, onnx.Float, dims...)
	}
	for name, want := range map[string][2]any{Batch: {4, int64(2)}, Sequence: {2, int64(7)}, Past: {1, int64(9)}} {
		d, err := Find(numbers.Model, name)
		if err != nil || len(d.places) != want[0] || d.Size != want[1] {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	var names []string
	for _, d := range Known(b.Model) {
		names = append(names, d.Name)
	}
	if !slices.Contains(names, "batch") || !slices.Contains(names, "total") || !slices.Contains(names, "past") ||
		slices.Contains(names, "") || len(names) != len(slices.Compact(slices.Sorted(slices.Values(names)))) {
		t.Errorf("the model's dimensions are %q", names)
	}
	list, err := FindAll(b.Model, []string{"total", "past"})
	if err != nil || len(list) != 2 || list[1].Name != "past" {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := FindAll(b.Model, []string{"total", "tokens"}); err == nil {
		t.Error("an unknown dimension is found")
	}
}
