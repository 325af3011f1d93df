package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

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
