package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

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
