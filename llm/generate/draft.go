package generate

import (
	"context"
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/ort"
)

// drafts has the draft model's caches of each sequence of a batch, by row.
type drafts map[int]*batch

// drafts returns an error if the tokens of a draft model cannot be proposed to the model.
func (g *Generator) drafts(draft *Generator) error {
	if err := draft.layout.takesBack(); err != nil {
		return err
	}
	if own, other := g.layout.vocabulary, draft.layout.vocabulary; own != other {
		return fmt.Errorf("it has %d token ids, but the model has %d: use a draft with the model's tokenizer",
			other, own)
	}
	return nil
}

// propose returns up to most tokens that the draft model finds likeliest behind a text, with a run for each.
func (d drafts) propose(ctx context.Context, g *Generator, row int, text []int64, most, chunk int) ([]int64, error) {
	if limit := int(g.layout.positions); limit > 0 {
		most = min(most, limit-len(text)+1)
	}
	if most < 1 {
		return nil, nil
	}
	b := d[row]
	if b == nil {
		var err error
		if b, err = g.newBatch([][]int64{text}); err != nil {
			return nil, err
		}
		b.steady, b.presents = false, map[string]*ort.Value{}
		d[row] = b
	} else if err := b.follow(text); err != nil {
		return nil, err
	}
	var list []int64
	for len(list) < most {
		if err := b.advance(ctx, chunk); err != nil {
			return nil, err
		}
		logits, err := b.row(0)
		if err != nil {
			return nil, err
		}
		best, err := greatest(logits)
		if err != nil {
			return nil, fmt.Errorf("logits: %w", err)
		}
		b.add(0, int64(best))
		list = append(list, int64(best))
	}
	return list, nil
}

// follow continues a batch of one sequence from a text. Its caches keep the common start of both.
func (b *batch) follow(text []int64) error {
	seen := b.past
	switch {
	case b.paged != nil:
		seen = b.paged.ends[0].past
	case b.filled != nil:
		seen = b.filled[0]
	}
	same := 0
	for same < min(seen, len(text)-1) && b.sequences[0][same] == text[same] {
		same++
	}
	b.sequences[0] = append(b.sequences[0][:0], text...)
	if same == seen {
		return nil
	}
	return b.takeBack(0, seen-same)
}

func (d drafts) close() (err error) {
	for _, b := range d {
		err = errors.Join(err, b.close())
	}
	return err
}
