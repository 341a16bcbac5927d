package rollout

import "sort"

// Claim is the claim of one SidecarSet on the slots of the cluster-wide limit. Used is the number of slots in
// use, and Want is the number of wanted slots. The SidecarSet keeps its used slots, even above the limit.
type Claim struct {
	Used, Want int
}

func (c Claim) most() int { return max(c.Used, c.Want) }

// at returns the share of the claim at a level: the claim gets no further slot above the level, but keeps its
// used slots.
func (c Claim) at(level int) int { return max(c.Used, min(c.Want, level)) }

// Shares divides the limit among the claims by max-min fairness. A claim gets a slot only if no
// claim with fewer slots wants this slot. The remaining slots go to the first claims, in order.
// The shares exceed the limit only if the used slots exceed the limit.
func Shares(limit int, claims []Claim) []int {
	most, used := 0, 0
	for _, claim := range claims {
		most, used = max(most, claim.most()), used+claim.Used
	}
	limit = max(limit, used)
	// level is the highest level at which the shares do not exceed the limit.
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
