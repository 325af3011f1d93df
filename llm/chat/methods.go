package chat

import (
	"errors"
	"strings"
	"unicode"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// methods are Python's methods that templates may call, by the type's name. Those that change a value are none of them:
// transformers' sandbox forbids them too.
var methods map[string]map[string]func(v value.Value, a arguments) (value.Value, error)

func init() {
	methods = map[string]map[string]func(value.Value, arguments) (value.Value, error){
		"str": {
			"strip":        stripper(strings.TrimLeftFunc, strings.TrimRightFunc),
			"lstrip":       stripper(strings.TrimLeftFunc),
			"rstrip":       stripper(strings.TrimRightFunc),
			"split":        split,
			"rsplit":       rsplit,
			"splitlines":   splitlines,
			"partition":    partition(strings.Index, false),
			"rpartition":   partition(strings.LastIndex, true),
			"startswith":   affix(strings.HasPrefix),
			"endswith":     affix(strings.HasSuffix),
			"removeprefix": withString("prefix", func(s, t string) value.Value { return value.FromString(strings.TrimPrefix(s, t)) }),
			"removesuffix": withString("suffix", func(s, t string) value.Value { return value.FromString(strings.TrimSuffix(s, t)) }),
			"replace":      replace,
			"find":         withString("sub", func(s, t string) value.Value { return value.FromInt(runeIndex(s, strings.Index(s, t))) }),
			"rfind":        withString("sub", func(s, t string) value.Value { return value.FromInt(runeIndex(s, strings.LastIndex(s, t))) }),
			"index":        index,
			"count":        withString("sub", func(s, t string) value.Value { return value.FromInt(int64(strings.Count(s, t))) }),
			"join":         joinMethod,
			"upper":        mapped(upper),
			"lower":        mapped(lower),
			"title":        mapped(titleMethod),
			"capitalize":   mapped(capitalize),
			"isspace":      tested(isSpace),
			"isdigit":      tested(unicode.IsDigit),
			"isdecimal":    tested(unicode.IsDigit),
			"isalpha":      tested(unicode.IsLetter),
			"isalnum":      tested(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
			"islower":      mappedTest(func(s string) bool { return s == lower(s) && s != upper(s) }),
			"isupper":      mappedTest(func(s string) bool { return s == upper(s) && s != lower(s) }),
		},
		"dict": {
			"get": func(v value.Value, a arguments) (value.Value, error) {
				args, err := a.take("key", "?default")
				if err != nil {
					return v, err
				}
				d, _ := asDict(v)
				if found, ok := d.get(args[0]); ok {
					return found, nil
				}
				if len(a.args) > 1 || len(a.named) > 0 {
					return args[1], nil
				}
				return value.None(), nil
			},
			"items": func(v value.Value, a arguments) (value.Value, error) {
				_, err := a.take()
				d, _ := asDict(v)
				return newCollection(itemsKind, pairs(d)...), err
			},
			"keys": func(v value.Value, a arguments) (value.Value, error) {
				_, err := a.take()
				d, _ := asDict(v)
				return newCollection(keysKind, d.keys...), err
			},
			"values": func(v value.Value, a arguments) (value.Value, error) {
				_, err := a.take()
				d, _ := asDict(v)
				var out []value.Value
				for _, key := range d.keys {
					item, _ := d.get(key)
					out = append(out, item)
				}
				return newCollection(valuesKind, out...), err
			},
		},
		"list":  listMethods(),
		"tuple": listMethods(),
	}
}

func listMethods() map[string]func(value.Value, arguments) (value.Value, error) {
	where := func(v value.Value, a arguments) (first, n int64, err error) {
		args, err := a.take("value")
		if err != nil {
			return 0, 0, err
		}
		l, _ := items(v)
		first = -1
		for i, item := range l {
			eq, err := equal(item, args[0])
			if err != nil {
				return 0, 0, err
			}
			if eq {
				if n++; first < 0 {
					first = int64(i)
				}
			}
		}
		return first, n, nil
	}
	return map[string]func(value.Value, arguments) (value.Value, error){
		"count": func(v value.Value, a arguments) (value.Value, error) {
			_, n, err := where(v, a)
			return value.FromInt(n), err
		},
		"index": func(v value.Value, a arguments) (value.Value, error) {
			first, _, err := where(v, a)
			if err == nil && first < 0 {
				err = errors.New("index: the value is not in the list")
			}
			return value.FromInt(first), err
		},
	}
}

// pairs returns tuples of keys and values.
func pairs(d *dict) []value.Value {
	out := make([]value.Value, len(d.keys))
	for i, key := range d.keys {
		item, _ := d.get(key)
		out[i] = newCollection(tupleKind, key, item)
	}
	return out
}
