package streams

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// exponents returns a chooser with the exponents a, b = 2a, c = -a and d, and items of these.
func exponents(items ...*item) *chooser {
	c := &chooser{builder: emptyBuilder(nil, nil), chosen: map[int]int{}, on: map[int][]*item{}}
	for range 4 {
		c.add(false)
	}
	c.equate(sum{0: 2}, sum{1: 1})
	c.equate(sum{0: 1, 2: 1}, nil)
	for _, i := range items {
		i.value = &onnx.Value{Name: "v"}
		c.items = append(c.items, i)
		for x := range c.system.of(i.x) {
			c.on[x] = append(c.on[x], i)
		}
	}
	return c
}

// TestRefusals: an exponent does not change if a value would leave its range.
func TestRefusals(t *testing.T) {
	const over, lost = `"v" would overflow instead`, "would lose digits"
	for _, c := range []struct {
		i    item
		step int
		want string
	}{
		{item{half: true, greatest: greatestHalf / 2}, 1, ""}, {item{half: true, greatest: greatestHalf / 2}, 2, over},
		{item{greatest: greatestHalf}, 2, ""}, {item{greatest: 0x1p126}, 1, ""}, {item{greatest: 0x1p126}, 2, over},
		{item{x: 2, half: true, greatest: greatestHalf / 2}, -2, over}, {item{x: 1, greatest: 0x1p126}, 1, over},
		{item{}, mostExponent, ""}, {item{}, mostExponent + 1, over}, {item{}, -mostExponent, ""},
		{item{}, -mostExponent - 1, over}, {item{half: true, greatest: 1}, -12, ""},
		{item{half: true, greatest: 1}, -13, lost}, {item{greatest: 1}, -13, ""}, {item{half: true}, -13, ""},
		{item{x: 2, half: true, greatest: 1}, 13, lost}, {item{least: 1, kept: 0.25}, -2, ""},
		{item{least: 1, kept: 0.25}, -3, lost}, {item{kept: 0.25}, -3, ""}, {item{x: 3, half: true}, -99, ""},
	} {
		i := c.i
		if got := exponents(&i).refuses(0, c.step); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v by %d: %q, want %q", c.i, c.step, got, c.want)
		}
	}
	i := &item{half: true, greatest: 1} // the steps add up
	c := exponents(i)
	if c.chosen[0] = -12; c.refuses(0, -1) == "" || c.refuses(0, 28) == "" || c.refuses(0, 27) != "" {
		t.Error("a step is not added to the present exponent")
	}
}

// TestLowering: a value gets the greatest exponent with which it fits, by the exponent on which the fewest depend.
func TestLowering(t *testing.T) {
	for _, c := range []struct {
		x      int
		excess float64
		want   int // of a
	}{{0, 2, -1}, {0, 4, -2}, {0, 4.5, -3}, {1, 4, -1}, {1, 4.5, -2}, {2, 4, 2}} {
		i := &item{x: c.x, half: true, greatest: c.excess * greatestHalf}
		s := exponents(i)
		if !s.overflows(i) || s.left() != 1 || !s.lower(i) || s.chosen[0] != c.want || s.overflows(i) {
			t.Errorf("exponent %d of %g times the range: %v", c.x, c.excess, s.chosen)
		}
	}
	fits := &item{half: true, greatest: greatestHalf}
	if s := exponents(fits, &item{greatest: 1e9}); s.overflows(fits) || s.left() != 0 {
		t.Error("a value within its range overflows")
	}
	i := &item{half: true, greatest: 2 * greatestHalf}
	s := exponents(i, &item{half: true, greatest: leastUseful})
	if s.lower(i) || s.chosen[0] != 0 || s.reason(i) != i.failed || !strings.Contains(i.failed, "lose digits") {
		t.Errorf("lowered to %v, although another value loses digits: %s", s.chosen, i.failed)
	}
	i = &item{x: 4, half: true, greatest: 2 * greatestHalf}
	s = exponents(&item{}, &item{x: 3})
	s.add(false)
	s.equate(sum{0: 1, 3: 1}, sum{4: 1}) // e = a + d, and more values depend on a
	s.items = append(s.items, i)
	s.on[0], s.on[3] = append(s.on[0], i, i), append(s.on[3], i)
	if !s.lower(i) || s.chosen[3] != -1 || s.chosen[0] != 0 {
		t.Errorf("lowered by %v instead of d", s.chosen)
	}
	over := &item{x: 3, half: true, greatest: 2 * greatestHalf}
	s = exponents(&item{half: true, greatest: 2 * greatestHalf}, over)
	s.add(false)
	s.equate(sum{2: 1, 3: 1}, sum{4: 1}) // e = d - a is within its range only if d falls before a
	i = &item{value: over.value, x: 4, half: true, greatest: greatestHalf}
	s.items, s.on[0], s.on[3] = append(s.items, i), append(s.on[0], i), append(s.on[3], i)
	if s.lowerAll(); s.left() != 0 || s.chosen[0] != -1 || s.chosen[3] != -1 {
		t.Errorf("all are lowered by %v", s.chosen)
	}
	for want, in := range map[int][2]int{0: {0, 3}, 1: {3, 3}, 2: {4, 3}} {
		if got := ceilDiv(in[0], in[1]); got != want {
			t.Errorf("%d / %d is %d", in[0], in[1], got)
		}
	}
}
