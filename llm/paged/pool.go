// Package paged hands out the blocks of the pools in which a paged model (apply --cache paged) keeps keys and values.
// It decides which sequence has which block; the caller owns the pools and runs the model.
package paged

import (
	"errors"
	"fmt"
	"slices"
)

// ErrFull reports that too few blocks are free.
var ErrFull = errors.New("no block is free")

// Pool hands out blocks. One goroutine may use it at a time.
type Pool struct {
	size int     // tokens of a block
	refs []int   // the number of tables that have each block
	free []int32 // the blocks that no table has; the last one is taken first
}

// Freed is in a table for each block that Drop has freed.
const Freed = -1

// Table is the blocks of one sequence, in order. The zero value is an empty one.
type Table struct{ Blocks []int32 }

// Dropped returns the number of blocks that Drop has freed.
func (t Table) Dropped() int {
	n := 0
	for n < len(t.Blocks) && t.Blocks[n] == Freed {
		n++
	}
	return n
}

// Copy asks the caller to copy the contents of a block to another one, before the next run of the model.
type Copy struct{ From, To int32 }

// New returns a pool of n free blocks of size tokens.
func New(size, n int) (*Pool, error) {
	if size < 1 || n < 0 {
		return nil, fmt.Errorf("a pool of %d blocks of %d tokens is not possible", n, size)
	}
	p := &Pool{size: size}
	p.Extend(n)
	return p, nil
}

// Blocks returns the number of all blocks.
func (p *Pool) Blocks() int { return len(p.refs) }

// Free returns the number of free blocks.
func (p *Pool) Free() int { return len(p.free) }

// Extend adds n free blocks after the others.
func (p *Pool) Extend(n int) {
	was := len(p.refs)
	p.refs = append(p.refs, make([]int, n)...)
	added := make([]int32, n)
	for i := range added {
		added[i] = int32(was + n - 1 - i)
	}
	p.free = append(added, p.free...)
}

// Needs returns the number of blocks of n tokens.
func (p *Pool) Needs(n int) int { return (n + p.size - 1) / p.size }

// Fork returns a table that shares the blocks of the first n tokens of another one. The last of them may be full only
// in part: Write replaces it before it is written. Blocks that were freed are freed in both.
func (p *Pool) Fork(t Table, n int) Table {
	shared := slices.Clone(t.Blocks[:p.Needs(n)])
	for _, b := range shared {
		if b != Freed {
			p.refs[b]++
		}
	}
	return Table{shared}
}

// Drop frees the blocks of a table whose tokens are all before number n.
func (p *Pool) Drop(t *Table, n int) {
	for i := t.Dropped(); (i+1)*p.size <= n && i < len(t.Blocks); i++ {
		p.release(t.Blocks[i])
		t.Blocks[i] = Freed
	}
}

// Write gives the table blocks for the tokens from begin to end-1 that no other table has: free ones after its last
// block, and copies of shared ones. If it returns ErrFull, nothing has changed. The blocks must not be freed.
func (p *Pool) Write(t *Table, begin, end int) ([]Copy, error) {
	var shared []int
	for i := begin / p.size; i < min(p.Needs(end), len(t.Blocks)); i++ {
		if p.refs[t.Blocks[i]] > 1 {
			shared = append(shared, i)
		}
	}
	missing := max(0, p.Needs(end)-len(t.Blocks))
	if need := len(shared) + missing; need > len(p.free) {
		return nil, fmt.Errorf("%w: %d of %d are free, and %d are needed", ErrFull, len(p.free), len(p.refs), need)
	}
	var copies []Copy
	for _, i := range shared {
		own := p.take()
		copies = append(copies, Copy{t.Blocks[i], own})
		p.refs[t.Blocks[i]]--
		t.Blocks[i] = own
	}
	for range missing {
		t.Blocks = append(t.Blocks, p.take())
	}
	return copies, nil
}

// Release returns the blocks of a table, which is empty then. A block is free when no table has it.
func (p *Pool) Release(t *Table) {
	for _, b := range t.Blocks {
		if b != Freed {
			p.release(b)
		}
	}
	t.Blocks = nil
}

func (p *Pool) release(b int32) {
	if p.refs[b]--; p.refs[b] == 0 {
		p.free = append(p.free, b)
	}
}

func (p *Pool) take() int32 {
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.refs[b] = 1
	return b
}
