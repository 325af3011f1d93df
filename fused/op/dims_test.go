package op

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// ShapesAreWellFormed is TestShapesAreWellFormed for one op.
func ShapesAreWellFormed(t *testing.T, o *Op) {
	bound := func(name string) bool {
		return name == "?" || o.place(name) >= 0 || o.Let[name] != "" || slices.ContainsFunc(o.Inputs,
			func(p Param) bool {
				return p.Dims.has(name) || p.Dims.has(strings.TrimPrefix(name, "#")+"...")
			})
	}
	var names func(e *sizeOf)
	names = func(e *sizeOf) {
		switch {
		case e.operator != 0:
			names(e.left)
			names(e.right)
		case e.name != "" && !bound(e.name):
			t.Errorf("%s: nothing says what %s is", o.Name, e.name)
		}
	}
	look := func(s Shape) {
		selector, list := s.Alternatives()
		input, given := strings.CutSuffix(selector, "?")
		switch i := o.place(selector); {
		case selector == "":
		case i >= 0 && len(o.Attributes[i].Values) == len(list):
		case i >= 0 && o.Attributes[i].Type == onnx.AttrInt && -int(o.Attributes[i].Bounds.Least) == len(list):
		case given && o.input(input) >= 0 && len(list) == 2:
		default:
			t.Errorf("%s: %q selects among %d", o.Name, selector, len(list))
		}
		for _, text := range list {
			for _, d := range parseDims(text) {
				if d.size != nil {
					names(d.size)
				} else if !bound(d.spread + "...") {
					t.Errorf("%s: nothing says what %s... is", o.Name, d.spread)
				}
			}
		}
	}
	for _, p := range slices.Concat(o.Inputs, o.Outputs) {
		look(p.Dims)
	}
	for _, let := range o.Let {
		look(let)
	}
	for _, r := range o.Where {
		words := strings.Fields(r.Text)
		left, operator, right := words[0], words[1], words[2]
		if operator == "iff" || operator == "needs" {
			if o.input(left) < 0 || o.input(right) < 0 {
				t.Errorf("%s: %s is about no inputs", o.Name, r.Text)
			}
			continue
		}
		names(parseSize(left))
		names(parseSize(right))
	}
}

// TestShapes matches shapes of an op that has every kind of word.
func TestShapes(t *testing.T) {
	o := &Op{
		Name: "Test",
		Inputs: []Param{{Name: "x", Dims: "A... D"}, {Name: "tail", Dims: "A...[axis]"}, {Name: "table",
			Dims: "~A... R"},
			{Name: "mask", Dims: "~1 ~D >=S"}, {Name: "either", Dims: "1 | D"},
			{Name: "turned", Dims: "layout: D S | S D"}, {Name: "past", Dims: "P", Optional: true}},
		Outputs:    []Param{{Name: "y", Dims: "A... 2*D-1"}, {Name: "all", Dims: "past?: D P | P+D"}},
		Attributes: []AttributeSpec{{Name: "axis"}, {Name: "layout", Values: []string{"ds", "sd"}}},
		Let:        map[string]Shape{"S": "D/2"},
		Where:      []Relation{{"2 divides D unless layout=sd", "an even D"}, {"#A <= 6", "few rows"}},
	}
	o.Attributes[0].Bounds, o.Attributes[0].Type = Bounds{Least: -8, Most: -1}, onnx.AttrInt
	base := [][]int64{{2, 3, 8}, {3}, {3, 5}, {8, 4}, {8}, {8, 4}, nil}
	for _, test := range []struct {
		name  string
		input int
		shape []int64
		err   string
	}{
		{"right", 0, base[0], ""},
		{"unknown", 0, nil, ""},
		{"unknown dimensions", 0, []int64{-1, 3, -1}, ""},
		{"no rank", 0, []int64{}, "x of shape [A..., D], here [A..., D]: x is []"},
		{"another end", 1, []int64{2}, "tail of shape [A...[axis]]"},
		{"too long an end", 1, []int64{9, 2, 3}, "tail of shape"},
		{"a table of one row", 2, []int64{1, 7}, ""},
		{"a table of other rows", 2, []int64{2, 7},
			"table that broadcasts to [A..., R], here [2, 3, R]: table is [2 7]"},
		{"a table of a higher rank", 2, []int64{1, 2, 3, 7}, "table that broadcasts"},
		{"a longer mask", 3, []int64{1, 1, 9}, ""},
		{"a short mask", 3, []int64{3}, "mask that broadcasts to [1, D, >=S], here [1, 8, >=4]"},
		{"the other one", 4, []int64{1}, ""},
		{"neither", 4, []int64{2}, "either of shape [1], here [1], or [D], here [8]"},
		{"turned round", 5, []int64{4, 8}, "turned of shape [D, S], here [8, 4]"},
		{"another width", 0, []int64{2, 3, 9}, "an even D: 2 divides D, here 2 and 9"},
	} {
		s := Site{Attributes: []*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.StringAttr("layout", "ds")},
			Dims: slices.Clone(base), Types: slices.Repeat([]onnx.DataType{F32}, 6)}
		s.Dims[test.input] = test.shape
		err := o.checkShapes(s)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", test.name, err, test.err)
		}
	}
	s := Site{Attributes: []*onnx.Attribute{onnx.IntAttr("axis", -1), onnx.StringAttr("layout", "ds")},
		Dims: [][]int64{{2, 5, 7}}, Types: []onnx.DataType{F32}}
	if err := o.checkShapes(s); err == nil || !strings.Contains(err.Error(), "an even D: 2 divides D, here 2 and 7") {
		t.Errorf("an odd width: %v", err)
	}
	s.Attributes[1].String = "sd"
	if err := o.checkShapes(s); err == nil || !strings.Contains(err.Error(), "few rows: #A <= 6, here 10 and 6") {
		t.Errorf("many rows: %v", err)
	}
	same := func(a, b int64) int64 { return max(a, b) }
	if got := o.OutputShapes(s, same); !slices.Equal(got[0], []int64{2, 5, 13}) || !slices.Equal(got[1], []int64{7,
		0}) {
		t.Errorf("the outputs are %v", got)
	}
	s.Dims, s.Types = [][]int64{nil, nil, nil, nil, nil, nil, {3}}, slices.Repeat([]onnx.DataType{F32}, 7)
	if got := o.OutputShapes(s, same); got[0] != nil || !slices.Equal(got[1], []int64{-1}) {
		t.Errorf("the outputs of unknown inputs are %v", got)
	}
}
