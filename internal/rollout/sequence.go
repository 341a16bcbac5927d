package rollout

import (
	"math"
	"slices"
)

// sequence is an order of the numbers below n. The numbers are in blocks of about √n numbers, so that a
// removal and an insertion take O(√n).
type sequence struct {
	blocks [][]int
	// block contains the index of the block of each number.
	block []int
	// inserted counts the insertions since the numbers were last divided into blocks of equal
	// size. A block has enough capacity for all these insertions.
	inserted int
	// memory is the memory of the blocks. flat is the last result of order.
	memory, flat []int
}

func newSequence(order []int) *sequence {
	s := &sequence{block: make([]int, len(order))}
	s.memory = make([]int, 2*(len(order)+s.size()))
	s.divide(order)
	return s
}

func (s *sequence) size() int { return 1 + int(math.Sqrt(float64(len(s.block)))) }

func (s *sequence) divide(order []int) {
	s.blocks, s.inserted = s.blocks[:0], 0
	free := s.memory
	for block := range slices.Chunk(order, s.size()) {
		for _, n := range block {
			s.block[n] = len(s.blocks)
		}
		s.blocks = append(s.blocks, append(free[:0:2*s.size()], block...))
		free = free[2*s.size():]
	}
}

func (s *sequence) remove(n int) {
	block := &s.blocks[s.block[n]]
	at := slices.Index(*block, n)
	*block = slices.Delete(*block, at, at+1)
}

// insert inserts a removed number at an index.
func (s *sequence) insert(n, at int) {
	b := 0
	for ; at > len(s.blocks[b]); b++ {
		at -= len(s.blocks[b])
	}
	s.blocks[b], s.block[n] = slices.Insert(s.blocks[b], at, n), b
	if s.inserted++; s.inserted == s.size() {
		s.divide(s.order())
	}
}

// order returns the numbers in order. The next insertion may change the returned slice.
func (s *sequence) order() []int {
	s.flat = s.flat[:0]
	for _, block := range s.blocks {
		s.flat = append(s.flat, block...)
	}
	return s.flat
}
