// Package wire reads and writes encoded models with the contents of their tensors left out, so that weights are never
// copied.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file changes the raw_data fields of an encoded model without decoding it. Read removes the weights before it
// decodes the rest, and Write inserts them after it has encoded the rest. Both walk the messages that may contain a
// TensorProto. Every length prefix around a changed field is recomputed, and everything else is copied.

// wireKind is a kind of message (or the raw_data field) on the way from ModelProto to the tensors.
type wireKind uint8

const (
	wireOther wireKind = iota // a field without tensors: copied unread
	wireModel
	wireGraph
	wireNode
	wireAttribute
	wireTensor
	wireSparse
	wireFunction
	wireTraining
	wireRaw
)

var wireNames = [...]string{
	wireOther: "field", wireModel: "model", wireGraph: "graph", wireNode: "node", wireAttribute: "attribute",
	wireTensor: "tensor", wireSparse: "sparse tensor", wireFunction: "function", wireTraining: "training info",
	wireRaw: "raw_data",
}

const wireFieldCount = 27 // above the largest field number used in onnx.proto

// wireFields maps the field numbers of onnx.proto to kinds of messages.
var wireFields = [...][wireFieldCount]wireKind{
	wireModel:     {7: wireGraph, 20: wireTraining, 25: wireFunction},
	wireGraph:     {1: wireNode, 5: wireTensor, 15: wireSparse},
	wireNode:      {5: wireAttribute},
	wireAttribute: {5: wireTensor, 6: wireGraph, 10: wireTensor, 11: wireGraph, 22: wireSparse, 23: wireSparse},
	wireTensor:    {9: wireRaw},
	wireSparse:    {1: wireTensor, 2: wireTensor},
	wireFunction:  {7: wireNode, 11: wireAttribute},
	wireTraining:  {1: wireGraph, 2: wireGraph},
}

// MaxNesting bounds the nesting of graphs. All recursion in package onnx follows that nesting, so the bound protects
// the stack. The C++ decoder of other ONNX tools gives up at about 33.
const MaxNesting = 128

// A file of very many, almost empty messages takes far more memory decoded than encoded. Real models have over ten
// bytes per message and over five per field. A file with more than freeMessages messages or fields must have at least
// these many bytes for each.
const (
	FreeMessages   = 1 << 20
	minMessageSize = 8
	minFieldSize   = 3
)

var errTruncated = errors.New("the file is truncated")

// wireEdit replaces the bytes at..end of the source by a length prefix and, for raw_data, by new contents.
type wireEdit struct {
	at, end int
	size    int // the new length
	raw     int // the index of the raw_data field, -1 for the prefix of an enclosing message
}

// Walk collects the edits of one encoded ModelProto.
type Walk struct {
	b        []byte
	edits    []wireEdit
	Raws     [][]byte        // the raw_data fields of b, in order
	size     func(k int) int // returns the new length of raw_data field k
	messages int
	fields   int // with a length
}

// model walks the whole message and returns its new length.
func (w *Walk) model() (int, error) {
	delta, err := w.message(wireModel, 0, len(w.b), 0)
	return len(w.b) + delta, err
}

// message walks the fields in b[at:end] and returns by how many bytes they grow.
func (w *Walk) message(kind wireKind, at, end, graphs int) (delta int, err error) {
	if kind == wireGraph {
		if graphs++; graphs > MaxNesting {
			return 0, fmt.Errorf("graphs are nested more than %d deep at byte %d", MaxNesting, at)
		}
	}
	if w.messages++; w.messages > FreeMessages && len(w.b)/minMessageSize < w.messages {
		return 0, fmt.Errorf("more than %d messages in %d bytes: this is not a real model", FreeMessages, len(w.b))
	}
	for at < end {
		start := at
		num, typ, n := protowire.ConsumeTag(w.b[at:end])
		if n < 0 {
			return 0, w.malformed(kind, start, protowire.ParseError(n))
		}
		at += n
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, w.b[at:end]); n < 0 {
				return 0, w.malformed(kind, start, protowire.ParseError(n))
			}
			at += n
			continue
		}
		length, n := protowire.ConsumeVarint(w.b[at:end])
		if n < 0 {
			return 0, w.malformed(kind, start, protowire.ParseError(n))
		}
		if w.fields++; w.fields > FreeMessages && len(w.b)/minFieldSize < w.fields {
			return 0, fmt.Errorf("more than %d fields in %d bytes: this is not a real model", FreeMessages, len(w.b))
		}
		child := wireOther
		if num < wireFieldCount {
			child = wireFields[kind][num]
		}
		body := at + n
		if length > uint64(end-body) {
			return 0, w.short(kind, child, int(num), start, length, end-body)
		}
		bodyEnd := body + int(length)
		switch child {
		case wireOther:
		case wireRaw:
			k := len(w.Raws)
			w.Raws = append(w.Raws, w.b[body:bodyEnd:bodyEnd])
			e := wireEdit{at: at, end: bodyEnd, size: w.size(k), raw: k}
			w.edits = append(w.edits, e)
			delta += protowire.SizeVarint(uint64(e.size)) + e.size - (bodyEnd - at)
		default:
			slot := len(w.edits)
			w.edits = append(w.edits, wireEdit{})
			d, err := w.message(child, body, bodyEnd, graphs)
			if err != nil {
				return 0, err
			}
			if len(w.edits) == slot+1 { // nothing in it changes
				w.edits = w.edits[:slot]
				break
			}
			e := wireEdit{at: at, end: body, size: int(length) + d, raw: -1}
			w.edits[slot] = e
			delta += d + protowire.SizeVarint(uint64(e.size)) - n
		}
		at = bodyEnd
	}
	return delta, nil
}

func (w *Walk) malformed(kind wireKind, at int, err error) error {
	if kind == wireModel && errors.Is(err, io.ErrUnexpectedEOF) && at > 0 {
		return fmt.Errorf("%w in the field at byte %d", errTruncated, at)
	}
	return fmt.Errorf("not a protobuf message of an ONNX model: byte %d, in a %s: %w", at, wireNames[kind], err)
}

// short reports a field that is longer than the rest of its message.
func (w *Walk) short(kind, child wireKind, num, at int, length uint64, left int) error {
	if kind == wireModel && child != wireOther {
		return fmt.Errorf("%w: the %s at byte %d has %d bytes, but the file holds only %d of "+
			"them", errTruncated, wireNames[child],
			at, length, left)
	}
	return fmt.Errorf("not a protobuf message of an ONNX model, or a truncated one: byte %d, field %d of a %s: "+
		"needs %d bytes, has %d",
		at, num, wireNames[kind], length, left)
}

// WriteTo writes the edited source. raw writes the contents of raw_data field k.
func (w *Walk) WriteTo(out io.Writer, raw func(out io.Writer, k int) error) error {
	from := 0
	var prefix [10]byte
	for _, e := range w.edits {
		if _, err := out.Write(w.b[from:e.at]); err != nil {
			return err
		}
		if _, err := out.Write(protowire.AppendVarint(prefix[:0], uint64(e.size))); err != nil {
			return err
		}
		if e.raw >= 0 {
			c := &CountingWriter{Writer: out, Left: int64(e.size)}
			if err := raw(c, e.raw); err != nil {
				return err
			}
			if c.Left != 0 {
				return fmt.Errorf("weights are %d bytes short of the expected %d", c.Left, e.size)
			}
		}
		from = e.end
	}
	_, err := out.Write(w.b[from:])
	return err
}

// Split removes the contents of every raw_data field of an encoded ModelProto. In rest each field contains its index
// in raws instead (placeholder); raws point into b.
func Split(b []byte) (rest []byte, raws [][]byte, err error) {
	w := &Walk{b: b, size: func(k int) int { return protowire.SizeVarint(uint64(k)) }}
	n, err := w.model()
	if err != nil {
		return nil, nil, err
	}
	if len(w.edits) == 0 {
		return b, nil, nil
	}
	out := bytes.NewBuffer(make([]byte, 0, n))
	write := func(out io.Writer, k int) error {
		_, err := out.Write(Placeholder(k))
		return err
	}
	if err := w.WriteTo(out, write); err != nil {
		return nil, nil, err
	}
	return out.Bytes(), w.Raws, nil
}

// Join is the inverse. It walks an encoded ModelProto whose raw_data fields contain placeholders, and returns the
// walk, ready to be written, and the total length.
func Join(rest []byte, size func(index int) int) (*Walk, int, error) {
	w := &Walk{b: rest, messages: -1 << 62, fields: -1 << 62} // our own message needs no checks
	w.size = func(k int) int { return size(PlaceholderIndex(w.Raws[k])) }
	n, err := w.model()
	return w, n, err
}

// Placeholder returns the contents of a raw_data field that stand for those with this index.
func Placeholder(index int) []byte { return protowire.AppendVarint(nil, uint64(index)) }

// PlaceholderIndex returns the index in a placeholder.
func PlaceholderIndex(b []byte) int {
	v, _ := protowire.ConsumeVarint(b)
	return int(v)
}

// CountingWriter rejects more than Left bytes.
type CountingWriter struct {
	Writer io.Writer
	Left   int64
}

// Write writes to Writer. It returns an error if b has more than Left bytes.
func (c *CountingWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > c.Left {
		return 0, fmt.Errorf("more bytes than its shape says: %d beyond its end", int64(len(b))-c.Left)
	}
	n, err := c.Writer.Write(b)
	c.Left -= int64(n)
	return n, err
}
