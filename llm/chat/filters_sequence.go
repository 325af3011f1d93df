package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

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
