// Package link is a TCP proxy whose connections can be cut, delayed and paused. While a
// connection is paused, no bytes are lost. They arrive late.
package link
