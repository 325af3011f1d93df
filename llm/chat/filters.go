package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// filters are jinja2's filters (x|name), and tojson as transformers has it. Those that escape HTML are none of them; safe
// changes nothing, where in jinja2 what is joined to its result is escaped.
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
