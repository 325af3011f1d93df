package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// globals are the functions that templates have from jinja2 and transformers.
var globals = map[string]func(r *render, a arguments) (value.Value, error){
	"raise_exception": func(_ *render, a arguments) (value.Value, error) {
		args, err := a.take("message")
		if err != nil {
			return value.Undefined(), err
		}
		message, err := str(args[0])
		if err != nil {
			return value.Undefined(), err
		}
		return value.Undefined(), &RaisedError{message}
	},
	"strftime_now": func(r *render, a arguments) (value.Value, error) {
		args, given, err := a.strings("format")
		if err != nil || !given[0] {
			return value.Undefined(), errors.Join(err, errors.New("strftime_now: the format must be a str"))
		}
		s, err := strftime(r.now, args[0])
		return value.FromString(s), err
	},
	"namespace": func(_ *render, a arguments) (value.Value, error) {
		n := &namespace{newDict()}
		if len(a.args) > 1 {
			return value.Undefined(), errors.New("namespace: more than one argument without a name")
		}
		if len(a.args) == 1 {
			d, ok := asDict(a.args[0])
			if !ok {
				return value.Undefined(), errors.New("namespace: the argument is no dict")
			}
			for _, key := range d.keys {
				v, _ := d.get(key)
				if err := n.set(key, v); err != nil {
					return value.Undefined(), err
				}
			}
		}
		for name, v := range a.named {
			n.setString(name, v)
		}
		for _, key := range n.keys {
			if s, ok := key.AsString(); !ok || strings.HasPrefix(s, "_") {
				return value.Undefined(), errors.New("namespace: transformers refuses attributes that begin with _")
			}
		}
		return value.FromObject(n), nil
	},
	"range": func(_ *render, a arguments) (value.Value, error) {
		args, err := a.take("start", "?stop", "?step")
		if err != nil || len(a.named) > 0 {
			return value.Undefined(), errors.Join(err, errors.New("range: one to three integers"))
		}
		bounds := [3]int64{0, 0, 1}
		for i, arg := range args[:len(a.args)] {
			var ok bool
			if bounds[i], ok = integer(arg); !ok {
				return value.Undefined(), fmt.Errorf("range: a value of type %s, expected int", typeName(arg))
			}
		}
		if len(a.args) == 1 {
			bounds[0], bounds[1] = 0, bounds[0]
		}
		return rangeList(bounds[0], bounds[1], bounds[2])
	},
}

// maxRange is that of jinja2's sandbox.
const maxRange = 100_000

func rangeList(start, stop, step int64) (value.Value, error) {
	if step == 0 {
		return value.Undefined(), errors.New("range: the step is 0")
	}
	out := []value.Value{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if len(out) == maxRange {
			return value.Undefined(), fmt.Errorf("range: more than %d numbers", maxRange)
		}
		out = append(out, value.FromInt(i))
		next := i + step
		if (next > i) != (step > 0) {
			break
		}
		i = next
	}
	return newCollection(rangeKind, out...), nil
}
