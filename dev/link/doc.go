// Package link is a TCP proxy whose connections can be cut, delayed and paused. While a connection is paused,
// no bytes are lost. The bytes arrive after the pause.
package link
