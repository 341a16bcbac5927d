// Program chaos injects faults into an installation at random times. The faults and the times depend only on
// a seed. Meanwhile, package observer checks the rules of docs/SPEC.md. See docs/chaos.md.
package main
