package rollout

import "sort"

// Claim is one set's claim on the fleet's budget, in pods: how many of it are
// unavailable because of upgrades, and how many it would have unavailable. It may
// keep what it uses, whatever the limit.
type Claim struct {
	Used, Want int
}

func (c Claim) most() int { return max(c.Used, c.Want) }

// at is the claim's share when no set gets more than the level, but for what it
// uses already.
func (c Claim) at(level int) int { return max(c.Used, min(c.Want, level)) }

// Shares divides the limit among the claims, max-min fairly: nobody gets a slot
// that somebody wants who has fewer. What does not divide goes to the first in
// order. Only what is used already may exceed the limit.
func Shares(limit int, claims []Claim) []int {
	most, used := 0, 0
	for _, claim := range claims {
		most, used = max(most, claim.most()), used+claim.Used
	}
	limit = max(limit, used)
	// The highest level at which the limit suffices.
	level := max(sort.Search(most+1, func(level int) bool { return sumAt(claims, level) > limit })-1, 0)
	left := limit - sumAt(claims, level)
	shares := make([]int, len(claims))
	for i, claim := range claims {
		shares[i] = claim.at(level)
		if left > 0 && claim.at(level+1) > shares[i] {
			shares[i]++
			left--
		}
	}
	return shares
}

func sumAt(claims []Claim, level int) (sum int) {
	for _, claim := range claims {
		sum += claim.at(level)
	}
	return sum
}
