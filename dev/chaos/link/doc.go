// Package link is a TCP proxy whose connections can be cut, delayed and held: what
// is held is not lost, it arrives late.
package link
