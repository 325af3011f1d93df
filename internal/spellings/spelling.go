package spellings

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Spelling is one model with one block.
type Spelling struct {
	Kind  Kind
	Seed  uint64
	Model *onnx.Model
	// Change is the edit that changed the meaning, or "".
	Change string
	// Smaller means that the change left a smaller block of the kind inside.
	Smaller bool
	// Read means that an inner value has other readers.
	Read bool
	// Place is the location of the block.
	Place string
}

// String identifies the spelling so that it can be written again.
func (s *Spelling) String() string {
	text := fmt.Sprintf("%s, seed %d, opset %d, in %s", s.Kind.Name, s.Seed, s.Model.Opset(""), s.Place)
	if s.Change != "" {
		text += ", changed: " + s.Change
	}
	return text
}

// Text returns the model as text.
func (s *Spelling) Text() string {
	text := s.Model.Graph.Text()
	for _, f := range s.Model.Functions {
		text += f.Text()
	}
	return text
}

// Spell writes the block of the kind for the seed.
func Spell(k Kind, seed uint64) *Spelling {
	s, _ := spell(k, seed, "")
	return s
}

// spell writes the model with the edit named change, and returns the offered edits.
func spell(k Kind, seed uint64, change string) (*Spelling, []string) {
	w := writer.New(k.Name, seed, k.minOpset)
	w.Change = change
	w.Leave(k.write(w))
	read := detours(w.Model, writer.NewRand(k.Name, seed, "detours"), w)
	return &Spelling{Kind: k, Seed: seed, Model: w.Model, Change: change, Smaller: w.Smaller, Read: read,
		Place: w.Place.String()}, w.Offered
}

// maxTries limits how often an edit without effect is redrawn.
const maxTries = 20

// Change writes the seed's spelling with one edit of its writer, and the unchanged one. It redraws the edit until the
// results differ, and returns an error if no edit changes them. Both are nil if the writer offers no edit.
func Change(k Kind, seed uint64) (changed, unchanged *Spelling, err error) {
	unchanged, offered := spell(k, seed, "")
	r := writer.NewRand(k.Name, seed, "change")
	for range maxTries {
		if len(offered) == 0 {
			return nil, nil, nil
		}
		changed, _ = spell(k, seed, offered[r.IntN(len(offered))])
		if differ(unchanged.Model, changed.Model) {
			return changed, unchanged, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: no edit changes the results", unchanged)
}

// Edit writes the seed's spelling with one edit of any kind somewhere in the finished graph, redrawn until the results
// differ. The result may still be a block of the kind, for example with another constant. It returns an error if no
// edit changes the results.
func Edit(k Kind, seed uint64) (*Spelling, error) {
	unchanged := Spell(k, seed)
	r := writer.NewRand(k.Name, seed, "edit")
	for range maxTries {
		s := Spell(k, seed)
		if s.Change = edit(s.Model, r); s.Change == "" || !differ(unchanged.Model, s.Model) {
			continue
		}
		if _, err := evaluate(s.Model, 1, false); err == nil { // some ops reject inputs of two types
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s: no edit changes the results", unchanged)
}
