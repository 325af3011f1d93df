package chat

import (
	"math"
	"slices"
	"strings"
)

// orders are Python's comparisons of what has an order, by the sign of that order.
var orders = map[string]func(sign int) bool{
	"<":  func(sign int) bool { return sign < 0 },
	"<=": func(sign int) bool { return sign <= 0 },
	">":  func(sign int) bool { return sign > 0 },
	">=": func(sign int) bool { return sign >= 0 },
}

// compare is Python's a op b for ==, <, in and the like.
func (r *runner) compare(a any, op string, b any) bool {
	switch op {
	case "==", "!=":
		return r.equal(a, b, 0) == (op == "==")
	case "in", "not in":
		return r.contains(b, a) == (op == "in")
	}
	return orders[op](r.order(a, b))
}

// arithmetic is Python's a op b.
func arithmetic(a any, op string, b any) any {
	if op == "~" {
		return text(str(a) + str(b))
	}
	needDefined(a, b)
	i, isInt := integer(a)
	j, alsoInt := integer(b)
	switch {
	case isInt && alsoInt:
		return integers(i, op, j)
	case op == "*" && isInt:
		a, b, j, alsoInt = b, a, i, true
	}
	switch s := a.(type) {
	case string:
		if t, ok := b.(string); ok && op == "+" {
			return text(s + t)
		}
		if op == "*" && alsoInt {
			checkSize(len(s), j, maxText)
			return strings.Repeat(s, int(max(j, 0)))
		}
	case *sequence:
		if t, ok := b.(*sequence); ok && op == "+" && s.kind == "list" && t.kind == "list" {
			checkSize(len(s.items)+len(t.items), 1, maxItems)
			return newList(slices.Concat(s.items, t.items)...)
		}
		if op == "*" && alsoInt && s.kind == "list" {
			checkSize(len(s.items), j, maxItems)
			return newList(slices.Repeat(s.items, int(max(j, 0)))...)
		}
	}
	x, ok1 := number(a)
	y, ok2 := number(b)
	require(ok1 && ok2, "%s %s %s: Python has no such operation, or it is not supported", typeName(a), op, typeName(b))
	return floats(x, op, y)
}

// checkSize fails if n things, repeated, are more than bound.
func checkSize(n int, times int64, bound int) {
	require(n == 0 || times <= int64(bound/n), "a value of more than %d bytes or items: the template runs away", bound)
}

var floatOperators = map[string]func(x, y float64) float64{
	"+":  func(x, y float64) float64 { return x + y },
	"-":  func(x, y float64) float64 { return x - y },
	"*":  func(x, y float64) float64 { return x * y },
	"/":  func(x, y float64) float64 { return x / y },
	"//": func(x, y float64) float64 { div, _ := divmod(x, y); return div },
	"%":  func(x, y float64) float64 { _, mod := divmod(x, y); return mod },
	"**": math.Pow,
}

// divmod is Python's for floats: the remainder has the sign of y.
func divmod(x, y float64) (div, mod float64) {
	mod = math.Mod(x, y)
	div = (x - mod) / y
	if mod != 0 && (mod < 0) != (y < 0) {
		div, mod = div-1, mod+y
	}
	return math.Round(div), mod
}

func floats(x float64, op string, y float64) any {
	require(y != 0 || strings.Contains("+-**", op), "division by zero")
	z := floatOperators[op](x, y)
	require(op != "**" || !math.IsNaN(z) && !math.IsInf(z, 0), "%v ** %v is no number", x, y)
	return z
}

func integers(i int64, op string, j int64) any {
	f := floats(float64(i), op, float64(j)).(float64)
	const most = 1 << 53 // that every float up to it is exact
	require(max(math.Abs(f), math.Abs(float64(i)), math.Abs(float64(j))) < most,
		"an int of more than 53 bits: not supported")
	if op == "/" || op == "**" && j < 0 {
		return f
	}
	return int64(f)
}

// attribute is v.name as jinja2 has it: Python's method of that name, else the item; undefined if there is neither.
func attribute(v any, name string) any {
	needDefined(v)
	kind := typeName(v)
	if m, ok := methods[kind][name]; ok {
		return function(func(r *runner, a arguments) any {
			require(a.named.size() == 0 || strings.HasSuffix(name, "split"), "%s: named arguments: Python has none",
				name)
			return m.call(r, name, v, a)
		})
	}
	other := strings.Contains(" "+otherAttributes[kind]+" ", " "+name+" ")
	require(!other, "attribute %q of a value of type %s is not supported", name, kind)
	return subscript(v, name)
}

// item is v[key] as jinja2 has it: the item, else the attribute of that name.
func item(v, key any) any {
	needDefined(v)
	found := subscript(v, key)
	if name, ok := key.(string); ok && isUndefined(found) {
		return attribute(v, name)
	}
	return found
}

func subscript(v, key any) any {
	switch v := v.(type) {
	case *dict:
		return v.get(key)
	case *namespace:
		return v.get(key)
	case *loop:
		return v.attribute(key)
	case string:
		if i, ok := integer(key); ok {
			return at(iterate(v), i)
		}
	}
	l, ok1 := indexed(v)
	i, ok2 := integer(key)
	if ok1 && ok2 {
		return at(l, i)
	}
	return undefined{}
}

// at returns an item; a negative index counts from the end.
func at(l []any, i int64) any {
	if i < 0 {
		i += int64(len(l))
	}
	if i < 0 || i >= int64(len(l)) {
		return undefined{}
	}
	return l[i]
}

// slice is Python's v[start:stop:step].
func slice(v, start, stop, step any) any {
	needDefined(v)
	switch v := v.(type) {
	case string:
		return string(pick([]rune(v), start, stop, step))
	case *sequence:
		if v.kind == "list" || v.kind == "tuple" {
			return &sequence{v.kind, pick(v.items, start, stop, step)}
		}
	}
	panic(failure("a slice of a value of type %s: Python has none, or it is not supported", typeName(v)))
}

func pick[E any](l []E, start, stop, step any) (picked []E) {
	by, n := int64(1), int64(len(l))
	if step != nil {
		by = wantInteger(step)
	}
	require(by != 0, "the step of a slice is 0")
	first, last := int64(0), n
	if by < 0 {
		first, last = n-1, -1
	}
	least, greatest := min(first, last), max(first, last)
	bound := func(v any, otherwise int64) int64 {
		if v == nil {
			return otherwise
		}
		i := wantInteger(v)
		if i < 0 {
			i += n
		}
		return min(max(i, least), greatest)
	}
	i, end := bound(start, first), bound(stop, last)
	by = min(max(by, -n-1), n+1) // a longer step ends as well, and does not overflow
	for ; by > 0 && i < end || by < 0 && i > end; i += by {
		picked = append(picked, l[i])
	}
	return picked
}
