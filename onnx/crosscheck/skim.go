package crosscheck

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// messageKind is a message of onnx.proto and its treatment on the way to the second reader.
type messageKind uint8

const (
	skipped messageKind = iota // the field is left out
	copied                     // the field is copied as it is
	modelMessage
	graphMessage
	nodeMessage
	attributeMessage
	tensorMessage      // of an attribute
	initializerMessage // a tensor of which only the name is kept
	sparseMessage
	valueMessage
	functionMessage
)

// kept lists the fields to keep of each message, by their numbers in onnx.proto. Unlisted fields are left out.
var kept = map[messageKind]map[protowire.Number]messageKind{
	modelMessage:    {7: graphMessage, 25: functionMessage},
	functionMessage: {4: copied, 5: copied, 7: nodeMessage},
	graphMessage:    {1: nodeMessage, 5: initializerMessage, 11: valueMessage, 12: valueMessage, 15: sparseMessage},
	nodeMessage:     {1: copied, 2: copied, 3: copied, 4: copied, 5: attributeMessage, 7: copied},
	attributeMessage: {1: copied, 2: copied, 3: copied, 4: copied, 5: tensorMessage, 6: graphMessage, 7: copied,
		8: copied,
		9: copied, 11: graphMessage, 20: copied, 21: copied},
	tensorMessage:      {1: copied, 2: copied, 4: copied, 5: copied, 7: copied, 9: copied, 10: copied},
	initializerMessage: {8: copied},
	sparseMessage:      {1: initializerMessage},
	valueMessage:       {1: copied},
}

// largestField bounds the bytes copied from an attribute's tensor. Larger tensors are weights.
const largestField = 1 << 16

// deepestGraph bounds the nesting of graphs, as in package onnx.
const deepestGraph = 128

// largestGraph bounds the memory of the graph without its weights.
const largestGraph = 1 << 30

// skimmer reads an encoded model from start to end and seeks over the fields that are left out.
type skimmer struct {
	file     io.ReadSeeker
	r        *bufio.Reader
	read     int64 // bytes consumed so far
	unread   *unread
	produced int
	// graphs are the encoded graphs by place. The main graph's place is empty, and a function's is "f" with its number.
	// The place of a graph in an attribute is the outer graph's place, then the numbers of the node, of the attribute,
	// and of the graph in it.
	graphs map[string][]byte
}

// skim returns the graphs of an encoded model without their weights, prepared for the second reader.
func skim(file io.ReadSeeker, size int64, u *unread) (map[string][]byte, error) {
	s := &skimmer{file: file, r: bufio.NewReaderSize(file, 1<<16), unread: u, graphs: map[string][]byte{}}
	_, err := s.message(modelMessage, size, "")
	return s.graphs, err
}

// message reads a message of n bytes and returns the kept part.
func (s *skimmer) message(kind messageKind, n int64, place string) ([]byte, error) {
	if strings.Count(place, "/") > 3*deepestGraph {
		return nil, fmt.Errorf("graphs are nested more than %d deep", deepestGraph)
	}
	var out []byte
	count := map[messageKind]int{} // of the fields whose messages have a place
	for end := s.read + n; s.read < end; {
		start := s.read
		tag, err := s.varint(end)
		if err != nil {
			return nil, err
		}
		num, typ := protowire.DecodeTag(tag)
		if num < protowire.MinValidNumber {
			return nil, fmt.Errorf("byte %d: not a field of a protobuf message", start)
		}
		what := kept[kind][num]
		if typ != protowire.BytesType {
			value, err := s.plain(typ, end)
			if err != nil {
				return nil, err
			}
			if what == copied {
				out = append(protowire.AppendTag(out, num, typ), value...)
			}
			continue
		}
		length, err := s.varint(end)
		if err != nil {
			return nil, err
		}
		if length > uint64(end-s.read) {
			return nil, fmt.Errorf("byte %d: a field of %d bytes where %d are left", start, length, end-s.read)
		}
		inner := place
		switch what {
		case nodeMessage, attributeMessage:
			inner += fmt.Sprintf("/%d", count[what])
		case functionMessage:
			inner = fmt.Sprintf("f%d", count[what])
		case graphMessage:
			if kind == attributeMessage {
				inner += fmt.Sprintf("/%d", count[what])
			}
		}
		count[what]++
		body, err := s.field(kind, what, int64(length), inner)
		if err != nil {
			return nil, err
		}
		if what == graphMessage || what == functionMessage {
			s.graphs[inner] = body // decoded separately
		} else if body != nil {
			out = emit(out, kind, num, body, s.unread)
		}
		if s.produced += len(body); s.produced > largestGraph {
			return nil, fmt.Errorf("the graph without its weights takes over %d bytes", largestGraph)
		}
	}
	return out, nil
}

// emit appends a field, with a node in a form that the second reader supports.
func emit(out []byte, kind messageKind, num protowire.Number, body []byte, u *unread) []byte {
	switch {
	case kind == graphMessage && num == 1, kind == functionMessage && num == 7:
		num, body = prepareNode(body, u)
	case kind == functionMessage: // the names of its inputs and outputs become values
		num += 7
		body = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), body)
	case kind == graphMessage && num == 15: // a sparse initializer has the name of its values
		_, _, n := protowire.ConsumeField(body)
		if n == len(body) && n > 0 {
			num, body = 5, body[protowire.SizeTag(1):]
			body, _ = protowire.ConsumeBytes(body)
		}
	}
	return protowire.AppendBytes(protowire.AppendTag(out, num, protowire.BytesType), body)
}

// field reads n bytes of a field with a length. It returns nil for a field that is left out.
func (s *skimmer) field(in, what messageKind, n int64, place string) ([]byte, error) {
	switch {
	case what == skipped, what == copied && in == tensorMessage && n > largestField:
		return nil, s.skip(n)
	case what == copied && n > largestGraph:
		return nil, fmt.Errorf("a name or list of %d bytes", n)
	case what == copied:
		b := make([]byte, n)
		_, err := io.ReadFull(s.r, b)
		s.read += n
		return b, truncated(err)
	}
	body, err := s.message(what, n, place)
	if body == nil {
		body = []byte{}
	}
	return body, err
}

// plain reads an encoded number.
func (s *skimmer) plain(typ protowire.Type, end int64) ([]byte, error) {
	switch typ {
	case protowire.VarintType:
		x, err := s.varint(end)
		return protowire.AppendVarint(nil, x), err
	case protowire.Fixed32Type, protowire.Fixed64Type:
		b := make([]byte, 4)
		if typ == protowire.Fixed64Type {
			b = make([]byte, 8)
		}
		_, err := io.ReadFull(s.r, b)
		s.read += int64(len(b))
		return b, truncated(err)
	}
	return nil, fmt.Errorf("byte %d: wire type %d, which no field of onnx.proto has", s.read, typ)
}

func (s *skimmer) varint(end int64) (uint64, error) {
	x, err := binary.ReadUvarint(s)
	if err == nil && s.read > end {
		err = fmt.Errorf("byte %d: a number that goes past the end of its message", s.read)
	}
	return x, truncated(err)
}

// ReadByte counts the bytes of varints.
func (s *skimmer) ReadByte() (byte, error) {
	s.read++
	return s.r.ReadByte()
}

func (s *skimmer) skip(n int64) error {
	s.read += n
	if n <= int64(s.r.Buffered()) {
		_, err := s.r.Discard(int(n))
		return err
	}
	_, err := s.file.Seek(n-int64(s.r.Buffered()), io.SeekCurrent)
	s.r.Reset(s.file)
	return err
}

func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is truncated")
	}
	return err
}
