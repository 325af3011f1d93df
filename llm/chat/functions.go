package chat

import (
	"context"
	"errors"
	"fmt"
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

func withRender(r *render) context.Context {
	return context.WithValue(context.Background(), renderKey{}, r)
}
