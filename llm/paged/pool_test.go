package paged_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/paged"
)

// TestPool forks, writes and releases tables at random, and compares what each sequence reads from its blocks with the
// tokens that it has.
func TestPool(t *testing.T) {
	const size = 4
	r := rand.New(rand.NewPCG(1, 2))
	p, err := paged.New(size, 24)
	if err != nil {
		t.Fatal(err)
	}
	content := make([][size]int, 40)
	type sequence struct {
		table  paged.Table
		tokens []int
		freed  int // tokens that may be in no block
	}
	var live []*sequence
	full, copied := 0, 0
	for step := range 40000 {
		switch {
		case step == 20000:
			p.Extend(16)
		case len(live) > 5 || len(live) > 0 && r.IntN(16) == 0:
			k := r.IntN(len(live))
			p.Release(&live[k].table)
			live = slices.Delete(live, k, k+1)
		case len(live) > 0 && r.IntN(6) == 0:
			from := live[r.IntN(len(live))]
			n := max(from.freed, r.IntN(len(from.tokens)+1))
			live = append(live, &sequence{p.Fork(from.table, n), slices.Clone(from.tokens[:n]), from.freed})
		case len(live) > 0 && r.IntN(60) == 0:
			s := live[r.IntN(len(live))]
			s.freed = max(s.freed, r.IntN(len(s.tokens)+1)-3)
			p.Drop(&s.table, s.freed)
			if n := s.table.Dropped(); n != max(0, s.freed/size) {
				t.Fatalf("step %d: %d blocks are dropped of %d tokens", step, n, s.freed)
			}
		case len(live) == 0 || r.IntN(10) == 0:
			live = append(live, &sequence{})
		default:
			s := live[r.IntN(len(live))]
			begin := max(s.freed, len(s.tokens)-r.IntN(min(len(s.tokens), 3)+1)) // at times a step back
			end := begin + 1 + r.IntN(6)
			free, before := p.Free(), slices.Clone(s.table.Blocks)
			copies, err := p.Write(&s.table, begin, end)
			if errors.Is(err, paged.ErrFull) {
				if full++; p.Free() != free || !slices.Equal(s.table.Blocks, before) {
					t.Fatalf("step %d: a full pool has changed", step)
				}
				continue
			}
			for _, c := range copies {
				content[c.To] = content[c.From]
				copied++
			}
			for s.tokens = s.tokens[:begin]; len(s.tokens) < end; {
				i := len(s.tokens)
				content[s.table.Blocks[i/size]][i%size] = step<<8 | i
				s.tokens = append(s.tokens, step<<8|i)
			}
		}
		used := map[int32]bool{}
		for _, s := range live {
			for i, want := range s.tokens {
				if i < s.freed {
					continue
				}
				if got := content[s.table.Blocks[i/size]][i%size]; got != want {
					t.Fatalf("step %d: token %d is %x, want %x", step, i, got, want)
				}
			}
			for _, b := range s.table.Blocks {
				if b != paged.Freed {
					used[b] = true
				}
			}
		}
		if len(used)+p.Free() != p.Blocks() {
			t.Fatalf("step %d: %d of %d blocks are in tables and %d are free", step, len(used), p.Blocks(), p.Free())
		}
	}
	if full < 100 || copied < 100 {
		t.Errorf("the pool was full %d times, and %d blocks were copied", full, copied)
	}
	for _, s := range live {
		p.Release(&s.table)
	}
	if p.Free() != 40 {
		t.Errorf("%d of 40 blocks are free at the end", p.Free())
	}
}

func TestNewRefuses(t *testing.T) {
	for _, bad := range [][2]int{{0, 1}, {4, -1}} {
		if _, err := paged.New(bad[0], bad[1]); err == nil {
			t.Errorf("a pool of %v was made", bad)
		}
	}
}
