package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
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

// pairs gives tuples of keys and values.
func pairs(d *dict) []value.Value {
	out := make([]value.Value, len(d.keys))
	for i, key := range d.keys {
		item, _ := d.get(key)
		out[i] = newCollection(tupleKind, key, item)
	}
	return out
}

// stripper takes characters off the ends, white space where none are given.
func stripper(trims ...func(string, func(rune) bool) string) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		chars, given, err := a.strings("?chars")
		if err != nil {
			return v, err
		}
		s, _ := v.AsString()
		of := isSpace
		if given[0] {
			of = func(r rune) bool { return strings.ContainsRune(chars[0], r) }
		}
		for _, trim := range trims {
			s = trim(s, of)
		}
		return value.FromString(s), nil
	}
}

func stringList(parts []string) value.Value {
	out := make([]value.Value, len(parts))
	for i, part := range parts {
		out[i] = value.FromString(part)
	}
	return value.FromSlice(out)
}

// separator reads the arguments of split and rsplit.
func separator(v value.Value, a arguments) (s, sep string, given bool, limit int64, err error) {
	s, _ = v.AsString()
	args, err := a.take("?sep", "?maxsplit")
	if err != nil {
		return
	}
	if !args[0].IsUndefined() && !args[0].IsNone() {
		if sep, given = args[0].AsString(); !given || sep == "" {
			return s, sep, given, 0, fmt.Errorf("%s: the separator must be a str that is not empty", a.of)
		}
	}
	limit = -1
	if !args[1].IsUndefined() {
		var ok bool
		if limit, ok = integer(args[1]); !ok {
			err = fmt.Errorf("%s: maxsplit is of type %s, expected int", a.of, typeName(args[1]))
		}
	}
	return
}

func split(v value.Value, a arguments) (value.Value, error) {
	s, sep, given, limit, err := separator(v, a)
	if err != nil {
		return v, err
	}
	if given {
		if limit < 0 || limit > int64(len(s)) {
			return stringList(strings.Split(s, sep)), nil
		}
		return stringList(strings.SplitN(s, sep, int(limit)+1)), nil
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || limit >= 0 && int64(len(parts)) >= limit {
			i = len(s)
		}
		parts, s = append(parts, s[:i]), s[i:]
	}
	return stringList(parts), nil
}

func rsplit(v value.Value, a arguments) (value.Value, error) {
	s, sep, given, limit, err := separator(v, a)
	if err != nil {
		return v, err
	}
	if !given {
		if limit < 0 {
			return split(v, arguments{of: a.of})
		}
		return v, errors.New("rsplit with maxsplit alone is not supported")
	}
	parts := strings.Split(s, sep)
	if limit >= 0 && int64(len(parts)-1) > limit {
		n := len(parts) - int(limit)
		parts = append([]string{strings.Join(parts[:n], sep)}, parts[n:]...)
	}
	return stringList(parts), nil
}

func splitlines(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	s, _ := v.AsString()
	var lines []string
	for s != "" {
		i := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if i < 0 {
			lines = append(lines, s)
			break
		}
		n := 1
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		} else {
			_, n = utf8.DecodeRuneInString(s[i:])
		}
		lines, s = append(lines, s[:i]), s[i+n:]
	}
	return stringList(lines), nil
}

func partition(find func(s, sep string) int, last bool) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		args, given, err := a.strings("sep")
		if err != nil {
			return v, err
		}
		if !given[0] || args[0] == "" {
			return v, fmt.Errorf("%s: the separator must be a str that is not empty", a.of)
		}
		s, _ := v.AsString()
		parts := [3]string{s}
		if i := find(s, args[0]); i >= 0 {
			parts = [3]string{s[:i], args[0], s[i+len(args[0]):]}
		} else if last {
			parts = [3]string{"", "", s}
		}
		l, _ := stringList(parts[:]).AsSlice()
		return newCollection(tupleKind, l...), nil
	}
}

// affix is startswith or endswith: of one string or any of a tuple.
func affix(has func(s, affix string) bool) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		args, err := a.take("prefix")
		if err != nil {
			return v, err
		}
		s, _ := v.AsString()
		of := []value.Value{args[0]}
		if typeName(args[0]) == string(tupleKind) {
			of, _ = items(args[0])
		}
		for _, one := range of {
			t, ok := one.AsString()
			if !ok {
				return v, fmt.Errorf("%s: the argument is of type %s, expected str", a.of, typeName(one))
			}
			if has(s, t) {
				return value.True(), nil
			}
		}
		return value.False(), nil
	}
}

func withString(param string, f func(s, t string) value.Value) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		args, given, err := a.strings(param)
		if err == nil && !given[0] {
			err = fmt.Errorf("%s: the argument is None, expected str", a.of)
		}
		if err != nil {
			return v, err
		}
		s, _ := v.AsString()
		return f(s, args[0]), nil
	}
}

// runeIndex turns an index of bytes into one of characters.
func runeIndex(s string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(utf8.RuneCountInString(s[:i]))
}

func index(v value.Value, a arguments) (value.Value, error) {
	found, err := methods["str"]["find"](v, a)
	if i, _ := integer(found); err == nil && i < 0 {
		err = errors.New("index: the text is not found")
	}
	return found, err
}

func replace(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("old", "new", "?count")
	if err != nil {
		return v, err
	}
	s, _ := v.AsString()
	old, ok1 := args[0].AsString()
	with, ok2 := args[1].AsString()
	n := int64(-1)
	ok3 := true
	if !args[2].IsUndefined() && !args[2].IsNone() {
		n, ok3 = integer(args[2])
	}
	if !ok1 || !ok2 || !ok3 {
		return v, fmt.Errorf("%s: arguments must be str, str and int", a.of)
	}
	if times := strings.Count(s, old); len(with) > 0 && times > (maxText-len(s))/len(with) {
		return v, errTooLong
	}
	return value.FromString(strings.Replace(s, old, with, int(max(n, -1)))), nil
}

func joinMethod(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("iterable")
	if err != nil {
		return v, err
	}
	l, err := iterate(args[0])
	if err != nil {
		return v, err
	}
	sep, _ := v.AsString()
	parts := make([]string, len(l))
	for i, part := range l {
		var ok bool
		if parts[i], ok = part.AsString(); !ok {
			return v, fmt.Errorf("join: item %d is of type %s, expected str", i, typeName(part))
		}
	}
	return joinText(parts, sep)
}

func joinText(parts []string, sep string) (value.Value, error) {
	total := len(parts) * len(sep)
	for _, part := range parts {
		total += len(part)
	}
	if total > maxText {
		return value.Undefined(), errTooLong
	}
	return value.FromString(strings.Join(parts, sep)), nil
}

func mapped(f func(string) string) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		_, err := a.take()
		s, _ := v.AsString()
		return value.FromString(f(s)), err
	}
}

func mappedTest(f func(string) bool) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		_, err := a.take()
		s, _ := v.AsString()
		return value.FromBool(f(s)), err
	}
}

// tested is true where the text is not empty and every character passes.
func tested(f func(rune) bool) func(value.Value, arguments) (value.Value, error) {
	return mappedTest(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0
	})
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return titleOf(s[:n]) + lower(s[n:])
}

func titleOf(s string) string {
	if s == "ß" {
		return "Ss"
	}
	return strings.Map(unicode.ToTitle, s)
}

// titleMethod is str.title: a letter behind none is large, others are small.
func titleMethod(s string) string {
	var b strings.Builder
	inWord := false
	for _, r := range s {
		letter := unicode.IsLetter(r)
		switch {
		case letter && !inWord:
			b.WriteString(titleOf(string(r)))
		case letter:
			b.WriteString(lower(string(r)))
		default:
			b.WriteRune(r)
		}
		inWord = letter
	}
	return b.String()
}
