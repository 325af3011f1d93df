package chat

import (
	"fmt"
	"iter"
	"math"
	"strconv"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// dict is a Python dict: MiniJinja's maps have no order.
type dict struct {
	keys   []value.Value
	values map[string]value.Value
}

func newDict() *dict { return &dict{values: map[string]value.Value{}} }

// hash is equal for keys that Python holds to be equal; false for what cannot be a key.
func hash(key value.Value) (string, bool) {
	if s, ok := key.AsString(); ok {
		return "s" + s, true
	}
	if n, ok := number(key); ok {
		return "n" + strconv.FormatFloat(n, 'g', -1, 64), true
	}
	if key.IsNone() {
		return "none", true
	}
	return "", false
}

func (d *dict) set(key, v value.Value) error {
	h, ok := hash(key)
	if !ok {
		return fmt.Errorf("a %s cannot be the key of a dict", typeName(key))
	}
	if _, ok := d.values[h]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[h] = v
	return nil
}

func (d *dict) setString(key string, v value.Value) {
	h := "s" + key
	if _, ok := d.values[h]; !ok {
		d.keys = append(d.keys, value.FromString(key))
	}
	d.values[h] = v
}

func (d *dict) get(key value.Value) (value.Value, bool) {
	h, ok := hash(key)
	if !ok {
		return value.Undefined(), false
	}
	v, ok := d.values[h]
	if !ok {
		return value.Undefined(), false
	}
	return v, true
}

// GetAttr serves MiniJinja; templates get attributes by the function attribute.
func (d *dict) GetAttr(name string) value.Value {
	v, _ := d.get(value.FromString(name))
	return v
}

// ObjectRepr makes it a map.
func (d *dict) ObjectRepr() value.ObjectRepr { return value.ObjectReprMap }

// ObjectLen is the number of keys; an empty dict is false.
func (d *dict) ObjectLen() int { return len(d.keys) }

// Iterate returns the keys.
func (d *dict) Iterate() iter.Seq[value.Value] { return sequence(d.keys) }

// collection is one of Python's types that have items in an order and are no list.
type collection struct {
	items []value.Value
	kind  collectionKind
}

type collectionKind string

const (
	tupleKind  collectionKind = "tuple"
	rangeKind  collectionKind = "range"
	keysKind   collectionKind = "dict_keys"
	valuesKind collectionKind = "dict_values"
	itemsKind  collectionKind = "dict_items"
)

func newCollection(kind collectionKind, items ...value.Value) value.Value {
	return value.FromObject(&collection{items, kind})
}

// indexed reports whether Python has x[i] for it.
func (c *collection) indexed() bool { return c.kind == tupleKind || c.kind == rangeKind }

// GetAttr returns nothing: collections have no attributes.
func (c *collection) GetAttr(string) value.Value { return value.Undefined() }

// ObjectRepr makes it a sequence.
func (c *collection) ObjectRepr() value.ObjectRepr { return value.ObjectReprSeq }

// ObjectLen is the number of items.
func (c *collection) ObjectLen() int { return len(c.items) }

// Iterate returns the items.
func (c *collection) Iterate() iter.Seq[value.Value] { return sequence(c.items) }

// generator is what map, select and the like give in jinja2: it has no length, is always true, is worked out when it is
// iterated over, and has no items left then.
type generator struct {
	work  func() ([]value.Value, error)
	items []value.Value
}

func newGenerator(work func() ([]value.Value, error)) value.Value {
	return value.FromObject(&generator{work: work})
}

// take returns up to n of the items that are left.
func (g *generator) take(n int) ([]value.Value, error) {
	if g.work != nil {
		var err error
		if g.items, err = g.work(); err != nil {
			return nil, err
		}
		g.work = nil
	}
	n = min(n, len(g.items))
	taken := g.items[:n]
	g.items = g.items[n:]
	return taken, nil
}

// GetAttr returns nothing: generators have no attributes.
func (g *generator) GetAttr(string) value.Value { return value.Undefined() }

func sequence(items []value.Value) iter.Seq[value.Value] {
	return func(yield func(value.Value) bool) {
		for _, item := range items {
			if !yield(item) {
				return
			}
		}
	}
}

// namespace is what namespace() gives: its attributes can be set.
type namespace struct{ *dict }

// SetAttr serves {% set ns.x = … %}.
func (n *namespace) SetAttr(name string, v value.Value) { n.setString(name, v) }

// ObjectRepr makes it an object of its own kind.
func (n *namespace) ObjectRepr() value.ObjectRepr { return value.ObjectReprPlain }

// ObjectLen is unknown: a namespace is always true.
func (n *namespace) ObjectLen() int { return -1 }

// Iterate returns nothing: it is hidden from the dict.
func (n *namespace) Iterate() iter.Seq[value.Value] { return nil }

func asDict(v value.Value) (*dict, bool) {
	o, _ := v.AsObject()
	d, ok := o.(*dict)
	return d, ok
}

// items returns the elements of a list, tuple or range.
func items(v value.Value) ([]value.Value, bool) {
	if s, ok := v.AsSlice(); ok {
		return s, true
	}
	o, _ := v.AsObject()
	if c, ok := o.(*collection); ok && c.indexed() {
		return c.items, true
	}
	return nil, false
}

// iterate returns what Python's iteration over v gives; over an undefined value nothing, as in jinja2.
func iterate(v value.Value) ([]value.Value, error) {
	if v.IsUndefined() {
		return []value.Value{}, nil
	}
	if l, ok := items(v); ok {
		return l, nil
	}
	o, _ := v.AsObject()
	switch o := o.(type) {
	case *dict:
		return o.keys, nil
	case *collection:
		return o.items, nil
	case *generator:
		return o.take(math.MaxInt)
	}
	if s, ok := v.AsString(); ok {
		out := make([]value.Value, 0, len(s))
		for _, r := range s {
			out = append(out, value.FromString(string(r)))
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %s cannot be iterated over", typeName(v))
}

// integer returns v as an int; Python's booleans are integers.
func integer(v value.Value) (int64, bool) {
	if b, ok := v.AsBool(); ok {
		if b {
			return 1, true
		}
		return 0, true
	}
	if v.IsActualInt() {
		return v.AsInt()
	}
	return 0, false
}

func number(v value.Value) (float64, bool) {
	if i, ok := integer(v); ok {
		return float64(i), true
	}
	return v.AsFloat()
}
