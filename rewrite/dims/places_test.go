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
	images := onnxtest.New(18) // its positions are those of time, height and width
	images.Output(images.Op("Cast", images.Input("position_ids", onnx.Int64, 3, 2, 7), onnx.IntAttr("to", 1)))
	images.Input("x", onnx.Float, 2, 7, 8)
	for name, want := range map[string]string{Batch: "position_ids.1 x.0", Sequence: "position_ids.2 x.1"} {
		d, err := Find(images.Model, name)
		if err != nil || strings.Join(d.inputs(), " ") != want {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	decoder := onnxtest.New(18) // its mask has the past and the new tokens
	table := decoder.Floats([]int64{9, 1}, make([]float32, 9)...)
	decoder.Output(decoder.Op("Gather", table, decoder.Input("ids", onnx.Int64, 2, 3)))
	decoder.Input("attention_mask", onnx.Int64, 2, 8)
	decoder.Input("past", onnx.Float, 2, 4, 5, 8)
	both, err := FindAll(decoder.Model, []string{Past, Sequence})
	if err != nil {
		t.Fatal(err)
	}
	past, sequence := both[0], both[1]
	expect(t, "sizes", []int64{past.Size, sequence.Size}, []int64{5, 3})
	mask := place{input(decoder.Model, "attention_mask"), 1, 5, true}
	expect(t, "mask", sequence.places[1], mask)
	expect(t, "names", []string{named(both, sequence, mask), named(both, past, past.places[1]),
		named(both[1:], sequence, mask), named(both[:1], past, past.places[1])},
		[]string{"past + sequence", "past + sequence", "sequence + 5", "past + 3"})
	a := &analysis{model: decoder.Model, dims: both}
	in, err := a.inputs(1, []int64{2, 4})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "inputs", in["attention_mask"].Shape, []int{2, 6})
	expect(t, "sizes of inputs", a.sizeOf(in), []int64{2, 4})
	row := whole([]int{1, 6}, 1, 2, 3, 4, 5, 6)
	expect(t, "new rows", mask.within(row, 4, mask.part(row, 4, 1, 3)).I, []int64{1, 2, 4, 5})
	expect(t, "past rows", past.places[1].within(row, 2, past.places[1].part(row, 2, 0, 1)).I, []int64{1, 3, 4, 5, 6})
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
