package tokenizer

// symbol is a token of the word being merged, in a doubly linked list.
type symbol struct {
	token      uint32
	prev, next int
	merged     bool
}

// candidate is a possible merge: the symbol at an index with the next one.
type candidate struct {
	rank, token uint32
	at          int
}

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.at < b.at
}

// mergeAll merges pairs of a word, smallest rank first and then leftmost, until no pair can merge. Candidates are in a
// heap, so that a word of n symbols takes n log n steps. A candidate whose symbols have since merged otherwise is
// skipped unless its place now merges to the same token (Word::merge_all of tokenizers).
func mergeAll(tokens []uint32, merges map[uint64]merge) []uint32 {
	if len(tokens) < 2 {
		return tokens
	}
	list := make([]symbol, len(tokens))
	for i, t := range tokens {
		list[i] = symbol{token: t, prev: i - 1, next: i + 1}
	}
	list[len(list)-1].next = -1

	var h heap
	propose := func(at int) {
		if m, ok := merges[pair(list[at].token, list[list[at].next].token)]; ok {
			h.push(candidate{m.rank, m.token, at})
		}
	}
	for i := range len(list) - 1 {
		propose(i)
	}
	for len(h) > 0 {
		c := h.pop()
		left := &list[c.at]
		if left.merged || left.next < 0 {
			continue
		}
		right := &list[left.next]
		if m, ok := merges[pair(left.token, right.token)]; !ok || m.token != c.token {
			continue
		}
		left.token, left.next, right.merged = c.token, right.next, true
		if left.next >= 0 {
			list[left.next].prev = c.at
		}
		if left.prev >= 0 {
			propose(left.prev)
		}
		if left.next >= 0 {
			propose(c.at)
		}
	}
	out := tokens[:0]
	for i := 0; i >= 0; i = list[i].next {
		out = append(out, list[i].token)
	}
	return out
}

// heap is a binary heap of candidates with the next one to merge on top.
type heap []candidate

func (h *heap) push(c candidate) {
	*h = append(*h, c)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *heap) pop() candidate {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	for i := 0; ; {
		least := i
		for _, k := range [2]int{2*i + 1, 2*i + 2} {
			if k < len(s) && s[k].before(s[least]) {
				least = k
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}
