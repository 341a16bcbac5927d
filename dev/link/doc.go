// Package link is a TCP proxy whose connections can be cut, delayed and held. Held bytes are
// not lost, they arrive late.
package link
