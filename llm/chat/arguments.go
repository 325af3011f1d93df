package chat

import (
	"fmt"
	"slices"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// arguments are those of a call of a method, filter or function.
type arguments struct {
	of    string
	args  []value.Value
	named map[string]value.Value
}

// take returns the arguments in the order of params, absent ones as undefined; "?" before a name says that it may be absent.
func (a arguments) take(params ...string) ([]value.Value, error) {
	out := make([]value.Value, len(params))
	if len(a.args) > len(params) {
		return nil, fmt.Errorf("%s: %d arguments, at most %d are supported", a.of, len(a.args), len(params))
	}
	used := 0
	for i, param := range params {
		optional := param[0] == '?'
		if optional {
			param = param[1:]
		}
		v, ok := a.named[param]
		switch {
		case i < len(a.args):
			if ok {
				return nil, fmt.Errorf("%s: argument %s is given twice", a.of, param)
			}
			out[i] = a.args[i]
		case ok:
			out[i] = v
			used++
		case optional:
			out[i] = value.Undefined()
		default:
			return nil, fmt.Errorf("%s: argument %s is missing", a.of, param)
		}
	}
	if used < len(a.named) {
		for name := range a.named {
			if !slices.Contains(params, name) && !slices.Contains(params, "?"+name) {
				return nil, fmt.Errorf("%s: there is no argument %s, or it is not supported", a.of, name)
			}
		}
	}
	return out, nil
}

// strings is take for arguments that must be strings; absent ones and None are "".
func (a arguments) strings(params ...string) ([]string, []bool, error) {
	values, err := a.take(params...)
	if err != nil {
		return nil, nil, err
	}
	out, given := make([]string, len(values)), make([]bool, len(values))
	for i, v := range values {
		if v.IsUndefined() && params[i][0] == '?' || v.IsNone() {
			continue
		}
		if out[i], given[i] = v.AsString(); !given[i] {
			return nil, nil, fmt.Errorf("%s: an argument is of type %s, expected str", a.of, typeName(v))
		}
	}
	return out, given, nil
}
