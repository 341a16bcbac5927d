// Program chaos disturbs a whole installation at moments drawn from a seed, while
// package observer checks what docs/SPEC.md promises. See docs/chaos.md.
package main
