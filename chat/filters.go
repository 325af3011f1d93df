package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// filters are jinja2's filters (x|name), and tojson as transformers has it. Those that escape HTML are none of them.
var filters map[string]func(v value.Value, a arguments) (value.Value, error)

func init() {
	filters = map[string]func(value.Value, arguments) (value.Value, error){
		"tojson":     tojson,
		"trim":       trimFilter,
		"default":    defaultFilter,
		"d":          defaultFilter,
		"length":     length,
		"count":      length,
		"first":      func(v value.Value, a arguments) (value.Value, error) { return end(v, a, false) },
		"last":       func(v value.Value, a arguments) (value.Value, error) { return end(v, a, true) },
		"list":       listFilter,
		"items":      itemsFilter,
		"dictsort":   dictsort,
		"join":       joinFilter,
		"map":        mapFilter,
		"select":     func(v value.Value, a arguments) (value.Value, error) { return choose(v, a, false, true) },
		"reject":     func(v value.Value, a arguments) (value.Value, error) { return choose(v, a, false, false) },
		"selectattr": func(v value.Value, a arguments) (value.Value, error) { return choose(v, a, true, true) },
		"rejectattr": func(v value.Value, a arguments) (value.Value, error) { return choose(v, a, true, false) },
		"replace":    replaceFilter,
		"upper":      textFilter(upper),
		"lower":      textFilter(lower),
		"title":      textFilter(titleFilter),
		"capitalize": textFilter(capitalize),
		"string":     textFilter(func(s string) string { return s }),
		"safe":       textFilter(func(s string) string { return s }),
		"wordcount":  wordcount,
		"indent":     indent,
		"int":        intFilter,
		"float":      floatFilter,
		"abs":        abs,
		"round":      round,
		"sum":        sum,
		"min":        func(v value.Value, a arguments) (value.Value, error) { return extreme(v, a, -1) },
		"max":        func(v value.Value, a arguments) (value.Value, error) { return extreme(v, a, 1) },
		"sort":       sortFilter,
		"unique":     unique,
		"reverse":    reverse,
		"batch":      batch,
		"attr": func(v value.Value, a arguments) (value.Value, error) {
			names, given, err := a.strings("name")
			if err != nil || !given[0] {
				return v, errors.Join(err, errors.New("attr: the name must be a str"))
			}
			if _, ok := asDict(v); ok { // Python's getattr: no items
				return value.Undefined(), nil
			}
			return attribute(v, names[0])
		},
	}
}

// textFilter makes text of any value first, as jinja2's soft_str.
func textFilter(f func(string) string) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		if _, err := a.take(); err != nil {
			return v, err
		}
		s, err := str(v)
		return value.FromString(f(s)), err
	}
}

func trimFilter(v value.Value, a arguments) (value.Value, error) {
	s, err := str(v)
	if err != nil {
		return v, err
	}
	return methods["str"]["strip"](value.FromString(s), a)
}

func defaultFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?default_value", "?boolean")
	if err != nil {
		return v, err
	}
	if v.IsUndefined() || args[1].IsTrue() && !v.IsTrue() {
		if args[0].IsUndefined() && len(a.args) == 0 && len(a.named) == 0 {
			return value.FromString(""), nil
		}
		return args[0], nil
	}
	return v, nil
}

func size(v value.Value) (int, error) {
	if s, ok := v.AsString(); ok {
		return len([]rune(s)), nil
	}
	l, err := iterate(v)
	if err != nil || typeName(v) == "generator" {
		return 0, fmt.Errorf("a value of type %s has no length", typeName(v))
	}
	return len(l), nil
}

func length(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	n, err := size(v)
	return value.FromInt(int64(n)), err
}

func end(v value.Value, a arguments, last bool) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	o, _ := v.AsObject()
	g, ok := o.(*generator)
	if ok && last {
		return v, errors.New("last of a generator: Python cannot reverse it")
	}
	var l []value.Value
	var err error
	if ok {
		l, err = g.take(1)
	} else {
		l, err = iterate(v)
	}
	if err != nil || len(l) == 0 {
		return value.Undefined(), err
	}
	if last {
		return l[len(l)-1], nil
	}
	return l[0], nil
}

func listFilter(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	l, err := iterate(v)
	return value.FromSlice(slices.Clone(l)), err
}

func itemsFilter(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	return newGenerator(func() ([]value.Value, error) {
		if v.IsUndefined() {
			return nil, nil
		}
		d, ok := asDict(v)
		if !ok {
			return nil, fmt.Errorf("items of a value of type %s, expected dict", typeName(v))
		}
		return pairs(d), nil
	}), nil
}

// attributeOf follows a dotted path of attributes, as jinja2's make_attrgetter.
func attributeOf(v, path value.Value) (value.Value, error) {
	if path.IsUndefined() || path.IsNone() {
		return v, nil
	}
	if i, ok := integer(path); ok {
		return item(v, value.FromInt(i))
	}
	s, ok := path.AsString()
	if !ok {
		return v, fmt.Errorf("an attribute's name is of type %s", typeName(path))
	}
	for _, name := range strings.Split(s, ".") {
		key := value.FromString(name)
		if i, err := strconv.ParseInt(name, 10, 64); err == nil {
			key = value.FromInt(i)
		}
		var err error
		if v, err = item(v, key); err != nil {
			return v, err
		}
	}
	return v, nil
}

func joinFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?d", "?attribute")
	if err != nil {
		return v, err
	}
	l, err := iterate(v)
	if err != nil {
		return v, err
	}
	sep, err := str(args[0])
	if err != nil {
		return v, err
	}
	parts := make([]string, len(l))
	for i, part := range l {
		if part, err = attributeOf(part, args[1]); err != nil {
			return v, err
		}
		if parts[i], err = str(part); err != nil {
			return v, err
		}
	}
	return joinText(parts, sep)
}

// mapFilter applies a filter to each item, or takes an attribute of each.
func mapFilter(v value.Value, a arguments) (value.Value, error) {
	var f func(item value.Value) (value.Value, error)
	if path, ok := a.named["attribute"]; ok {
		if len(a.args) > 0 {
			return v, errors.New("map: an attribute and a filter")
		}
		otherwise, hasDefault := a.named["default"]
		f = func(item value.Value) (value.Value, error) {
			item, err := attributeOf(item, path)
			if item.IsUndefined() && hasDefault {
				item = otherwise
			}
			return item, err
		}
	} else {
		if len(a.args) == 0 {
			return v, errors.New("map: the filter is missing")
		}
		name, _ := a.args[0].AsString()
		filter := filters[name]
		if filter == nil {
			return v, fmt.Errorf("map: there is no filter %q", name)
		}
		f = func(item value.Value) (value.Value, error) { return filter(item, arguments{name, a.args[1:], a.named}) }
	}
	return newGenerator(func() ([]value.Value, error) {
		if !v.IsTrue() {
			return nil, nil // jinja2 does not even look at None
		}
		l, err := iterate(v)
		if err != nil {
			return nil, err
		}
		out := make([]value.Value, len(l))
		for i, item := range l {
			if out[i], err = f(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}), nil
}

// choose keeps the items that pass a test, or fail it; without a test, those that are true.
func choose(v value.Value, a arguments, byAttribute, keep bool) (value.Value, error) {
	args := a.args
	path := value.Undefined()
	if byAttribute {
		if len(args) == 0 {
			return v, fmt.Errorf("%s: the attribute is missing", a.of)
		}
		path, args = args[0], args[1:]
	}
	test := func(item value.Value) (bool, error) { return item.IsTrue(), nil }
	if len(args) > 0 {
		name, _ := args[0].AsString()
		f := tests[name]
		if f == nil {
			return v, fmt.Errorf("%s: there is no test %q", a.of, name)
		}
		test = func(item value.Value) (bool, error) { return f(item, arguments{name, args[1:], a.named}) }
	} else if len(a.named) > 0 {
		return v, fmt.Errorf("%s: named arguments are not supported", a.of)
	}
	return newGenerator(func() ([]value.Value, error) {
		if !v.IsTrue() {
			return nil, nil
		}
		l, err := iterate(v)
		if err != nil {
			return nil, err
		}
		var out []value.Value
		for _, item := range l {
			at, err := attributeOf(item, path)
			if err != nil {
				return nil, err
			}
			ok, err := test(at)
			if err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return out, nil
	}), nil
}

func replaceFilter(v value.Value, a arguments) (value.Value, error) {
	s, err := str(v)
	if err != nil {
		return v, err
	}
	return replace(value.FromString(s), a)
}

// titleFilter makes the first letter of each word large, as jinja2's filter, whose words end at fewer characters than
// those of str.title.
func titleFilter(s string) string {
	var b strings.Builder
	first := true
	for _, r := range s {
		switch {
		case isSpace(r) || strings.ContainsRune("-({[<", r):
			b.WriteRune(r)
			first = true
			continue
		case first:
			b.WriteString(upper(string(r)))
		default:
			b.WriteString(lower(string(r)))
		}
		first = false
	}
	return b.String()
}

func wordcount(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	s, err := str(v)
	n := len(strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }))
	return value.FromInt(int64(n)), err
}

func indent(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?width", "?first", "?blank")
	if err != nil {
		return v, err
	}
	s, ok := v.AsString()
	if !ok {
		return v, fmt.Errorf("indent: a value of type %s, expected str", typeName(v))
	}
	by := "    "
	if w, ok := args[0].AsString(); ok {
		by = w
	} else if n, ok := integer(args[0]); ok {
		if n > 1000 {
			return v, errTooLong
		}
		by = strings.Repeat(" ", int(max(n, 0)))
	}
	lines := strings.Split(s, "\n")
	if (len(lines)+1)*len(by) > maxText {
		return v, errTooLong
	}
	for i := range lines {
		if i == 0 && !args[1].IsTrue() || i > 0 && lines[i] == "" && !args[2].IsTrue() {
			continue
		}
		lines[i] = by + lines[i]
	}
	return value.FromString(strings.Join(lines, "\n")), nil
}

func intFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?default", "?base")
	if err != nil {
		return v, err
	}
	otherwise := value.FromInt(0)
	if !args[0].IsUndefined() {
		otherwise = args[0]
	}
	if !args[1].IsUndefined() {
		if base, ok := integer(args[1]); !ok || base != 10 {
			return v, errors.New("int: other bases than 10 are not supported")
		}
	}
	if i, ok := integer(v); ok {
		return value.FromInt(i), nil
	}
	if s, ok := v.AsString(); ok {
		s = strings.TrimFunc(s, isSpace)
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return value.FromInt(i), nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<62 {
			return value.FromInt(int64(f)), nil
		}
		return otherwise, nil
	}
	if f, ok := v.AsFloat(); ok && math.Abs(f) < 1<<62 {
		return value.FromInt(int64(f)), nil
	}
	if v.IsUndefined() {
		return v, undefinedError(v)
	}
	return otherwise, nil
}

func floatFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?default")
	if err != nil {
		return v, err
	}
	if f, ok := number(v); ok {
		return value.FromFloat(f), nil
	}
	if s, ok := v.AsString(); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return value.FromFloat(f), nil
		}
	}
	if v.IsUndefined() {
		return v, undefinedError(v)
	}
	if !args[0].IsUndefined() {
		return args[0], nil
	}
	return value.FromFloat(0), nil
}

func abs(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	negative, err := compare(v, "<", value.FromInt(0))
	if err != nil {
		return v, err
	}
	if negative {
		return arithmetic(value.FromInt(0), "-", v)
	}
	return arithmetic(value.FromInt(0), "+", v) // True is 1
}

func round(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?precision", "?method")
	if err != nil {
		return v, err
	}
	f, ok := number(v)
	if !ok {
		return v, fmt.Errorf("round: a value of type %s", typeName(v))
	}
	precision, _ := integer(args[0])
	method, given := args[1].AsString()
	switch {
	case precision < -300 || precision > 300:
		return v, errors.New("round: the precision is out of range")
	case given && method != "common":
		scale := math.Pow(10, float64(precision))
		switch method {
		case "ceil":
			return value.FromFloat(math.Ceil(f*scale) / scale), nil
		case "floor":
			return value.FromFloat(math.Floor(f*scale) / scale), nil
		}
		return v, fmt.Errorf("round: there is no method %q", method)
	}
	if precision < 0 {
		scale := math.Pow(10, float64(-precision))
		return value.FromFloat(math.RoundToEven(f/scale) * scale), nil
	}
	// Rounds the exact value, half to even, as Python does.
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
	if _, isInt := integer(v); isInt {
		return value.FromInt(int64(r)), err
	}
	return value.FromFloat(r), err
}

func sum(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?attribute", "?start")
	if err != nil {
		return v, err
	}
	l, err := iterate(v)
	if err != nil {
		return v, err
	}
	total := args[1]
	if total.IsUndefined() {
		total = value.FromInt(0)
	}
	for _, item := range l {
		if item, err = attributeOf(item, args[0]); err != nil {
			return v, err
		}
		if total, err = arithmetic(total, "+", item); err != nil {
			return v, err
		}
	}
	return total, nil
}

// sortKey is what jinja2 sorts by: an attribute, small letters unless case_sensitive.
func sortKey(v, path, caseSensitive value.Value) (value.Value, error) {
	v, err := attributeOf(v, path)
	if s, ok := v.AsString(); ok && !caseSensitive.IsTrue() {
		v = value.FromString(lower(s))
	}
	return v, err
}

func sortValues(l []value.Value, reverse bool, key func(value.Value) (value.Value, error)) ([]value.Value, error) {
	type keyed struct{ key, v value.Value }
	all := make([]keyed, len(l))
	var failed error
	for i, v := range l {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		all[i] = keyed{k, v}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		c, err := order(a.key, b.key, 0)
		if err != nil {
			failed = err
		}
		if reverse {
			return -c
		}
		return c
	})
	out := make([]value.Value, len(l))
	for i := range all {
		out[i] = all[i].v
	}
	return out, failed
}

func sortFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?reverse", "?case_sensitive", "?attribute")
	if err != nil {
		return v, err
	}
	l, err := iterate(v)
	if err != nil {
		return v, err
	}
	l, err = sortValues(l, args[0].IsTrue(), func(v value.Value) (value.Value, error) { return sortKey(v, args[2], args[1]) })
	return value.FromSlice(l), err
}

func dictsort(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?case_sensitive", "?by", "?reverse")
	if err != nil {
		return v, err
	}
	d, ok := asDict(v)
	if !ok {
		return v, fmt.Errorf("dictsort: a value of type %s, expected dict", typeName(v))
	}
	by := value.FromInt(0)
	if s, _ := args[1].AsString(); s == "value" {
		by = value.FromInt(1)
	}
	l, err := sortValues(pairs(d), args[2].IsTrue(), func(v value.Value) (value.Value, error) { return sortKey(v, by, args[0]) })
	return value.FromSlice(l), err
}

// sortBy orders indices by the strings they stand for.
func sortBy(order []int, keys []string) {
	slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(keys[i], keys[j]) })
}

func extreme(v value.Value, a arguments, sign int) (value.Value, error) {
	args, err := a.take("?case_sensitive", "?attribute")
	if err != nil {
		return v, err
	}
	l, err := iterate(v)
	if err != nil || len(l) == 0 {
		return value.Undefined(), err
	}
	best := l[0]
	bestKey, err := sortKey(best, args[1], args[0])
	if err != nil {
		return v, err
	}
	for _, item := range l[1:] {
		key, err := sortKey(item, args[1], args[0])
		if err != nil {
			return v, err
		}
		c, err := order(key, bestKey, 0)
		if err != nil {
			return v, err
		}
		if c*sign > 0 {
			best, bestKey = item, key
		}
	}
	return best, nil
}

func unique(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?case_sensitive", "?attribute")
	if err != nil {
		return v, err
	}
	return newGenerator(func() ([]value.Value, error) {
		l, err := iterate(v)
		if err != nil {
			return nil, err
		}
		seen := newDict()
		var out []value.Value
		for _, item := range l {
			key, err := sortKey(item, args[1], args[0])
			if err != nil {
				return nil, err
			}
			if _, ok := seen.get(key); ok {
				continue
			}
			if err := seen.set(key, item); err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}), nil
}

func reverse(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	l, err := iterate(v)
	if err != nil {
		return v, err
	}
	l = slices.Clone(l)
	slices.Reverse(l)
	switch typeName(v) {
	case "str":
		parts := make([]string, len(l))
		for i := range l {
			parts[i], _ = l[i].AsString()
		}
		return joinText(parts, "")
	case "generator":
		return value.FromSlice(l), nil
	}
	return newGenerator(func() ([]value.Value, error) { return l, nil }), nil
}

func batch(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("linecount", "?fill_with")
	if err != nil {
		return v, err
	}
	n, ok := integer(args[0])
	if !ok || n <= 0 || n > maxItems {
		return v, errors.New("batch: linecount must be a positive int")
	}
	l, err := iterate(v)
	if err != nil {
		return v, err
	}
	var out []value.Value
	for part := range slices.Chunk(l, int(n)) {
		part = slices.Clone(part)
		for !args[1].IsUndefined() && !args[1].IsNone() && len(part) < int(n) {
			part = append(part, args[1])
		}
		out = append(out, value.FromSlice(part))
	}
	return newGenerator(func() ([]value.Value, error) { return out, nil }), nil
}
