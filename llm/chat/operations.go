package chat

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	minijinja "github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// at returns args[i]; translated templates always have it.
func at(args []value.Value, i int) value.Value {
	if i < len(args) {
		return args[i]
	}
	return value.Undefined()
}

// list is a list that MiniJinja iterates over; it would not over nil.
func list(l []value.Value) value.Value {
	if l == nil {
		l = []value.Value{}
	}
	return value.FromSlice(l)
}

func word(args []value.Value, i int) string {
	s, _ := at(args, i).AsString()
	return s
}

func rest(args []value.Value, i int) []value.Value { return args[min(i, len(args)):] }

// operations are what translated expressions call.
var operations map[string]function

func init() {
	operations = map[string]function{
		"print": func(s *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			t, err := str(at(args, 0))
			if err != nil {
				return value.Undefined(), err
			}
			return value.FromString(t), renderOf(s).write(t)
		},
		"attribute": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			return attribute(at(args, 0), word(args, 1))
		},
		"item": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			return item(at(args, 0), at(args, 1))
		},
		"slice": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			return slice(at(args, 0), at(args, 1), at(args, 2), at(args, 3))
		},
		"method": func(s *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
			return callMethod(s, at(args, 0), word(args, 1), rest(args, 2), kwargs)
		},
		"call": func(s *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
			return call(s, at(args, 0), rest(args, 1), kwargs)
		},
		"filter": func(_ *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
			name := word(args, 1)
			if filters[name] == nil {
				return value.Undefined(), fmt.Errorf("there is no filter %q", name)
			}
			return filters[name](at(args, 0), arguments{name, rest(args, 2), kwargs})
		},
		"test": func(_ *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
			name := word(args, 1)
			if tests[name] == nil {
				return value.Undefined(), fmt.Errorf("there is no test %q", name)
			}
			ok, err := tests[name](at(args, 0), arguments{name, rest(args, 2), kwargs})
			return value.FromBool(ok), err
		},
		"arithmetic": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			v := at(args, 0)
			var err error
			for i := 1; i < len(args) && err == nil; i += 2 {
				v, err = arithmetic(v, word(args, i), at(args, i+1))
			}
			return v, err
		},
		"compare": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			for i := 1; i < len(args); i += 2 {
				ok, err := compare(at(args, i-1), word(args, i), at(args, i+1))
				if !ok || err != nil {
					return value.False(), err
				}
			}
			return value.True(), nil
		},
		"negative": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			if f, ok := at(args, 0).AsFloat(); ok && at(args, 0).IsActualFloat() {
				return value.FromFloat(-f), nil
			}
			return arithmetic(value.FromInt(0), "-", at(args, 0))
		},
		"positive": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			return arithmetic(value.FromInt(0), "+", at(args, 0))
		},
		"filtered": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			v := at(args, 0)
			if _, ok := v.AsString(); !ok {
				return v, fmt.Errorf("the filter of a block gives a value of type %s, expected str", typeName(v))
			}
			return v, nil
		},
		"float": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			f, err := strconv.ParseFloat(word(args, 0), 64)
			return value.FromFloat(f), err
		},
		"tuple": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			return newCollection(tupleKind, args...), nil
		},
		"dict": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			d := newDict()
			for i := 0; i+1 < len(args); i += 2 {
				if err := d.set(args[i], args[i+1]); err != nil {
					return value.Undefined(), err
				}
			}
			return value.FromObject(d), nil
		},
		"iterate": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			l, err := iterate(at(args, 0))
			return list(l), err
		},
		"mapping": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			d, ok := asDict(at(args, 0))
			if !ok {
				return value.Undefined(), fmt.Errorf("** of a value of type %s, expected dict", typeName(at(args, 0)))
			}
			m := map[string]value.Value{}
			for _, key := range d.keys {
				name, ok := key.AsString()
				if !ok {
					return value.Undefined(), errors.New("** of a dict whose keys are no str")
				}
				m[name], _ = d.get(key)
			}
			return value.FromMap(m), nil
		},
		"unpack": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			l, err := iterate(at(args, 0))
			if n, _ := integer(at(args, 1)); err == nil && int64(len(l)) != n {
				err = fmt.Errorf("%d values for %d names", len(l), n)
			}
			return list(l), err
		},
		"attributeOf": func(_ *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
			o, _ := at(args, 0).AsObject()
			if _, ok := o.(*namespace); !ok {
				return value.Undefined(), fmt.Errorf("attributes of a value of type %s cannot be set", typeName(at(args, 0)))
			}
			if strings.HasPrefix(word(args, 1), "_") {
				return value.Undefined(), errors.New("transformers refuses attributes that begin with _")
			}
			return at(args, 2), nil
		},
	}
}
