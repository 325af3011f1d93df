package chat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	minijinja "github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// render is what one rendering keeps; functions find it by the context.
type render struct {
	sites    []string
	now      time.Time
	written  int
	work     int       // what is left, see spend
	deadline time.Time // for what spend does not count
	err      error     // the first error of a function, as it was before MiniJinja wrapped it
}

// maxWork is how many items and pieces of text one rendering may go through, maxTime how long it may take.
const (
	maxWork = 500_000_000
	maxTime = time.Minute
)

// spend counts the work of an operation by its operands and its result: MiniJinja counts it as one step.
func (r *render) spend(v value.Value, args []value.Value) error {
	r.work -= 1 + bulk(v)
	for _, arg := range args {
		r.work -= bulk(arg)
	}
	if r.work < 0 || time.Now().After(r.deadline) {
		return errors.New("too much work: the template runs away")
	}
	return nil
}

// bulk is the number of items or of 64 bytes of text.
func bulk(v value.Value) int {
	if s, ok := v.AsString(); ok {
		return len(s) / 64
	}
	if l, ok := items(v); ok {
		return len(l)
	}
	return 0
}

type renderKey struct{}

func renderOf(state *minijinja.State) *render { return state.Context().Value(renderKey{}).(*render) }

func (r *render) write(s string) error {
	if r.written += len(s); r.written > maxText {
		return errTooLong
	}
	return nil
}

func (r *render) fail(err error) error {
	if err != nil && r.err == nil {
		r.err = err
	}
	return err
}

// A RaisedError is what a template reports by raise_exception: that it is not made for this conversation.
type RaisedError struct {
	// Message is the template's own.
	Message string
}

// Error is the message.
func (e *RaisedError) Error() string { return "the chat template refuses the messages: " + e.Message }

type function = func(s *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error)

// addFunctions gives env what translated templates call, and the functions that transformers gives templates.
func addFunctions(env *minijinja.Environment) {
	for name, f := range operations {
		env.AddFunction(functionPrefix+name, sited(f, name != "attribute" && name != "item" && name != "call"))
	}
	env.AddFunction(functionPrefix+"text", func(s *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
		text, _ := args[0].AsString()
		r := renderOf(s)
		return args[0], r.fail(r.write(text))
	})
	for name, f := range globals {
		env.AddFunction(name, func(s *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
			v, err := f(renderOf(s), arguments{name, args, kwargs})
			return v, renderOf(s).fail(err)
		})
	}
}

// sited takes the site off the arguments, and puts it into errors; whole says that f goes through its arguments.
func sited(f function, whole bool) function {
	return func(s *minijinja.State, args []value.Value, kwargs map[string]value.Value) (value.Value, error) {
		r := renderOf(s)
		if len(args) == 0 {
			return value.Undefined(), errors.New("called by a template")
		}
		v, err := f(s, args[1:], kwargs)
		if err == nil {
			operands := args[1:]
			if !whole {
				operands = nil
			}
			err = r.spend(v, operands)
		}
		if err == nil || r.err != nil {
			return v, err
		}
		var raised *RaisedError
		if i, ok := integer(args[0]); ok && i >= 0 && i < int64(len(r.sites)) && !errors.As(err, &raised) {
			err = fmt.Errorf("%s: %w", r.sites[i], err)
		}
		return v, r.fail(err)
	}
}

// at gives args[i]; translated templates always have it.
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

func withRender(r *render) context.Context {
	return context.WithValue(context.Background(), renderKey{}, r)
}
